#include "common/core/host_scope.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "common/core/status.h"

namespace troupe {
namespace {

struct Network4 {
  uint32_t address;  // host order
  int bits;
};

constexpr uint32_t ip4(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return a << 24 | b << 16 | c << 8 | d;
}

// 100.100.100.200, 168.63.129.16 and 192.0.0.192 are clouds' metadata services.
constexpr Network4 kLink4[] = {{ip4(0, 0, 0, 0), 8},          {ip4(169, 254, 0, 0), 16},
                               {ip4(100, 100, 100, 200), 32}, {ip4(192, 0, 0, 0), 24},
                               {ip4(168, 63, 129, 16), 32},   {ip4(224, 0, 0, 0), 4},
                               {ip4(240, 0, 0, 0), 4}};
constexpr Network4 kPrivate4[] = {{ip4(127, 0, 0, 0), 8},
                                  {ip4(10, 0, 0, 0), 8},
                                  {ip4(172, 16, 0, 0), 12},
                                  {ip4(192, 168, 0, 0), 16},
                                  {ip4(100, 64, 0, 0), 10}};

template <size_t N>
bool among(const Network4 (&networks)[N], uint32_t address) {
  return std::any_of(std::begin(networks), std::end(networks), [address](const Network4& network) {
    return (address ^ network.address) >> (32 - network.bits) == 0;
  });
}

HostScope scope_of_4(uint32_t address) {
  if (among(kLink4, address)) return HostScope::kLinkLocal;
  return among(kPrivate4, address) ? HostScope::kPrivate : HostScope::kPublic;
}

uint32_t four_bytes(const unsigned char* bytes) {
  return ip4(bytes[0], bytes[1], bytes[2], bytes[3]);
}

bool begins(const in6_addr& address, std::string_view bytes) {
  return std::memcmp(address.s6_addr, bytes.data(), bytes.size()) == 0;
}

// The IPv4 address that an IPv6 one stands for.
std::optional<uint32_t> embedded(const in6_addr& address) {
  using namespace std::string_view_literals;
  constexpr std::string_view kMapped = "\0\0\0\0\0\0\0\0\0\0\xff\xff"sv,
                             kNat64 = "\0\x64\xff\x9b\0\0\0\0\0\0\0\0"sv;
  constexpr std::string_view kCompatible = "\0\0\0\0\0\0\0\0\0\0\0\0"sv, k6to4 = "\x20\x02"sv;
  if (begins(address, kMapped) || begins(address, kNat64)) return four_bytes(address.s6_addr + 12);
  if (begins(address, k6to4)) return four_bytes(address.s6_addr + 2);
  const uint32_t low = four_bytes(address.s6_addr + 12);
  if (begins(address, kCompatible) && low > 1) return low;
  return std::nullopt;
}

HostScope scope_of_6(const in6_addr& address) {
  using namespace std::string_view_literals;
  if (const auto as_4 = embedded(address)) return scope_of_4(*as_4);
  if (IN6_IS_ADDR_LOOPBACK(&address)) return HostScope::kPrivate;
  // Metadata services of AWS (fd00:ec2::/32 is its own) and Google Cloud (fd20:ce::254).
  if (begins(address, "\xfd\x00\x0e\xc2"sv) || begins(address, "\xfd\x20\x00\xce"sv))
    return HostScope::kLinkLocal;
  const bool link = IN6_IS_ADDR_LINKLOCAL(&address) || IN6_IS_ADDR_SITELOCAL(&address) ||
                    IN6_IS_ADDR_MULTICAST(&address) || IN6_IS_ADDR_UNSPECIFIED(&address);
  if (link) return HostScope::kLinkLocal;
  return (address.s6_addr[0] & 0xfe) == 0xfc ? HostScope::kPrivate : HostScope::kPublic;
}

std::string_view without_brackets(std::string_view host) {
  return host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host;
}

HostScope scope_of_name(std::string_view name) {
  constexpr std::string_view kMetadata[] = {"metadata", "metadata.google.internal", "metadata.goog",
                                            "instance-data", "instance-data.ec2.internal"};
  const auto is = [name](std::string_view one) {
    return absl::EqualsIgnoreCase(to_absl(name), to_absl(one));
  };
  if (name.empty() || std::any_of(std::begin(kMetadata), std::end(kMetadata), is))
    return HostScope::kLinkLocal;
  if (name.find('.') == std::string_view::npos) return HostScope::kLocalName;
  constexpr std::string_view kEnds[] = {".local", ".localhost", ".internal", ".svc",      ".lan",
                                        ".home",  ".home.arpa", ".corp",     ".intranet", ".private"};
  const bool local = std::any_of(std::begin(kEnds), std::end(kEnds), [name](std::string_view end) {
    return absl::EndsWithIgnoreCase(to_absl(name), to_absl(end));
  });
  return local ? HostScope::kLocalName : HostScope::kPublicName;
}

}  // namespace

HostScope host_scope(std::string_view host) {
  std::string name(without_brackets(host));
  in6_addr v6;
  if (inet_pton(AF_INET6, name.c_str(), &v6) == 1) return scope_of_6(v6);
  if (name.ends_with('.')) name.pop_back();  // of the root
  in_addr v4;
  const bool is_number = !name.empty() && name.find_first_of(" \t\n") == std::string::npos;
  if (is_number && inet_aton(name.c_str(), &v4) == 1) return scope_of_4(ntohl(v4.s_addr));
  return scope_of_name(name);
}

bool is_address(std::string_view host) {
  const std::string text(without_brackets(host));
  in6_addr address;
  return inet_pton(AF_INET, text.c_str(), &address) == 1 || inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

std::string canonical_host(std::string_view host) {
  const std::string text(without_brackets(host));
  in6_addr address;
  char shortest[INET6_ADDRSTRLEN];
  if (inet_pton(AF_INET6, text.c_str(), &address) == 1 &&
      inet_ntop(AF_INET6, &address, shortest, sizeof shortest) != nullptr)
    return shortest;
  return absl::AsciiStrToLower(text);
}

}  // namespace troupe

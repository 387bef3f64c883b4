#include "gateway/access/worker_url_rules.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/core/host_scope.h"

namespace troupe {
namespace {

// The bytes of an IPv4 or IPv6 address; empty: it is none.
std::string address_bytes(std::string_view host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const std::string text(host);
  for (const auto& [family, size] :
       {std::pair(AF_INET, sizeof(in_addr)), std::pair(AF_INET6, sizeof(in6_addr))}) {
    std::string bytes(size, '\0');
    if (inet_pton(family, text.c_str(), bytes.data()) == 1) return bytes;
  }
  return "";
}

bool in_network(std::string_view address, std::string_view network, int bits) {
  if (address.size() != network.size()) return false;
  for (size_t i = 0; bits > 0; ++i, bits -= 8) {
    const auto mask = static_cast<unsigned char>(bits >= 8 ? 0xff : 0xff << (8 - bits));
    if (((address[i] ^ network[i]) & mask) != 0) return false;
  }
  return true;
}

// Goes back to the last `*` only, which is enough.
bool glob_matches(std::string_view glob, std::string_view text) {
  size_t g = 0, t = 0, star = std::string_view::npos, after = 0;
  while (t < text.size()) {
    if (g < glob.size() && (glob[g] == '?' || glob[g] == text[t]) && glob[g] != '*') {
      ++g, ++t;
    } else if (g < glob.size() && glob[g] == '*') {
      star = g++;
      after = t;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      t = ++after;
    } else {
      return false;
    }
  }
  return glob.find_first_not_of('*', g) == std::string_view::npos;
}

bool has_port(std::string_view glob) {
  const size_t bracket = glob.rfind(']');
  return glob.find(':', bracket == std::string_view::npos ? 0 : bracket) != std::string_view::npos;
}

Status malformed(std::string_view rule) {
  return invalid_argument(absl::StrCat("'", to_absl(rule),
                                       "' must be such as worker-?.internal:31000, 10.0.0.7:*, "
                                       "[fd00::7]:* or 10.0.0.0/8"));
}

// Could a host:port be like this? The letters of `host`: those of a name, or of an IPv6 address in brackets.
bool is_glob(std::string_view glob) {
  constexpr std::string_view kOfNames = "abcdefghijklmnopqrstuvwxyz0123456789-._*?";
  constexpr std::string_view kOfAddresses = "abcdef0123456789.:*?";
  const bool is_bracketed = glob.starts_with('[');
  const size_t end = is_bracketed ? glob.find(']') : std::min(glob.find(':'), glob.size());
  if (end == std::string_view::npos) return false;
  const std::string_view host = glob.substr(is_bracketed ? 1 : 0, end - (is_bracketed ? 1 : 0));
  const std::string_view rest = glob.substr(end + (is_bracketed ? 1 : 0));
  if (host.find_first_not_of(is_bracketed ? kOfAddresses : kOfNames) != std::string_view::npos) return false;
  return !host.empty() &&
         (rest.empty() || (rest.size() > 1 && rest.size() <= 6 && rest.front() == ':' &&
                           rest.find_first_not_of("0123456789*?", 1) == std::string_view::npos));
}

// A rule for addresses, which matches no names: who meant 10.0.0.* did not mean 10.0.0.x.elsewhere.example.
bool is_of_addresses(std::string_view glob) {
  const std::string_view host = glob.substr(0, glob.rfind(':'));
  return host.find_first_of("0123456789") != std::string_view::npos &&
         host.find_first_not_of("0123456789.*?") == std::string_view::npos;
}

}  // namespace

StatusOr<WorkerUrlRules> WorkerUrlRules::parse(const std::vector<std::string>& rules) {
  WorkerUrlRules parsed;
  for (const std::string& rule : rules) {
    const size_t slash = rule.find('/');
    if (slash == std::string::npos) {
      const std::string glob = absl::AsciiStrToLower(rule);
      if (!is_glob(glob)) return malformed(rule);
      parsed.globs_.push_back(has_port(glob) ? glob : glob + ":*");
      continue;
    }
    Network network;
    network.bytes = address_bytes(std::string_view(rule).substr(0, slash));
    const char* const end = rule.data() + rule.size();
    const auto [last, error] = std::from_chars(rule.data() + slash + 1, end, network.bits);
    const bool is_number = error == std::errc() && last == end;
    const int bits_max = static_cast<int>(network.bytes.size()) * 8;
    if (network.bytes.empty() || !is_number || network.bits < 0 || network.bits > bits_max)
      return malformed(rule);
    parsed.networks_.push_back(std::move(network));
  }
  return parsed;
}

void WorkerUrlRules::allow(std::string_view authority) {
  named_.insert(absl::AsciiStrToLower(to_absl(authority)));
}

bool WorkerUrlRules::allows(std::string_view host, std::string_view authority) const {
  const std::string lower = absl::AsciiStrToLower(to_absl(authority));
  if (named_.contains(lower)) return true;
  if (is_default()) {
    const HostScope scope = host_scope(host);
    return scope == HostScope::kPrivate || scope == HostScope::kLocalName;
  }
  const std::string address = address_bytes(host);
  return std::any_of(globs_.begin(), globs_.end(),
                     [&](const std::string& glob) {
                       return glob_matches(glob, lower) && (!address.empty() || !is_of_addresses(glob));
                     }) ||
         std::any_of(networks_.begin(), networks_.end(), [&](const Network& network) {
           return !address.empty() && in_network(address, network.bytes, network.bits);
         });
}

}  // namespace troupe

#pragma once

// Where a host is, by its name or address alone: in an operator's own network, in public, or where no server
// that one would choose can be. Pure: nothing is resolved.

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

enum class HostScope : uint8_t {
  kPrivate,    // an address of this machine or of a private network (RFC 1918, 6598, 4193)
  kLocalName,  // a name that only a local network resolves: one label, or below .local, .lan, .svc and the
               // like
  kPublic,     // any other address
  kPublicName,
  // An address of the link, multicast, or none; or a cloud's metadata service, which hands out the machine's
  // credentials to whatever asks from it (169.254.169.254, fd00:ec2::254, metadata.google.internal …).
  kLinkLocal,
};

// `host`: with or without IPv6's brackets. IPv6 forms of an IPv4 address (mapped, compatible, NAT64, 6to4)
// are that address, and so are the numbers that resolvers take for one (127.1, 2852039166, 0xa9fea9fe).
HostScope host_scope(std::string_view host);
// An IPv4 or IPv6 address in its usual form.
bool is_address(std::string_view host);
// The same host as it is compared: a name in lower case, an IPv6 address in its shortest form. Without
// brackets, if it has them.
std::string canonical_host(std::string_view host);

}  // namespace troupe

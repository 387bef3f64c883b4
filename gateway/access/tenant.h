#pragma once

// Tenants share no KV cache, so nobody learns from how fast an answer begins what others have asked. All that
// a tenant asks carries a salt of its own, in the prefix key and in the worker's hashes of its blocks
// (`cache_salt`, which vLLM knows too): made of a secret that only the gateways know, so no client can name
// it. What clients of a tenant keep apart by a cache_salt of their own stays apart.

#include <string>
#include <string_view>

namespace troupe {

// `secret`: as read_secret() (secret.h) gives it. 64 hex digits.
std::string tenant_salt(std::string_view secret, std::string_view tenant);
// For what a client of that tenant asks with this cache_salt (empty: with none).
std::string salt_within(std::string_view tenant_salt, std::string_view client_salt);

}  // namespace troupe

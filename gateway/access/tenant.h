#pragma once

// Tenants share no KV cache, so the latency of an answer reveals nothing of other tenants' prompts. All
// requests of a tenant carry a salt of its own, in the prefix key and in the worker's hashes of its blocks
// (`cache_salt`, which vLLM has too): derived from a secret that only the gateways have, so no client can
// name it. A tenant's clients with different cache_salts of their own stay separate.

#include <string>
#include <string_view>

namespace troupe {

// `secret`: from read_secret() (secret.h). 64 hex digits.
std::string tenant_salt(std::string_view secret, std::string_view tenant);
// Salt for a request of the tenant with this cache_salt (empty: without one).
std::string salt_within(std::string_view tenant_salt, std::string_view client_salt);

}  // namespace troupe

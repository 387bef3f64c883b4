#include "gateway/access/tenant.h"

#include "gateway/access/secret.h"

namespace troupe {

std::string tenant_salt(std::string_view secret, std::string_view tenant) {
  return keyed_hash(secret, tenant);
}

std::string salt_within(std::string_view tenant_salt, std::string_view client_salt) {
  return keyed_hash(tenant_salt, client_salt);
}

}  // namespace troupe

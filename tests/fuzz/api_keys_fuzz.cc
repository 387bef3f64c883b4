// A file of API keys: refused with its name, or every key has a name, a digest of its own and limits that can
// be counted by.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string_view>

#include "gateway/access/api_keys.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto keys = troupe::parse_api_keys({reinterpret_cast<const char*>(data), size}, "keys.yaml");
  if (!keys.ok()) {
    require(keys.status().message().find("keys.yaml") == 0);
    return 0;
  }
  require(!keys->empty() && keys->size() <= troupe::kApiKeysMax);
  std::set<std::string_view> names;
  std::set<troupe::Sha256> digests;
  for (const troupe::ApiKey& key : *keys) {
    require(!key.name.empty() && names.insert(key.name).second && digests.insert(key.digest).second);
    const troupe::route::QuotaLimits& limits = key.rights.quota;
    require(std::isfinite(limits.requests_per_s) && limits.requests_per_s >= 0);
    require(limits.tokens_per_min >= 0 && limits.requests_at_once >= 0);
    troupe::route::Quota quota(limits, {});
    if (!quota.begin({})) quota.end(100, {});
    if (const auto refusal = quota.begin({})) require(refusal->wait >= troupe::Duration::zero());
  }
  return 0;
}

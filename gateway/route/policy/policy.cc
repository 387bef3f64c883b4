#include "gateway/route/policy/policy.h"

#include <algorithm>

#include "gateway/route/policy/affinity.h"
#include "gateway/route/policy/baselines/baselines.h"
#include "gateway/route/policy/baselines/simple_policies.h"

namespace troupe::route {
namespace {

struct Named {
  std::string_view name;
  PolicyMaker make;
};

template <typename P>
std::unique_ptr<RoutePolicy> make(const AffinityOptions& options) {
  return std::make_unique<P>(options);
}

constexpr Named kPolicies[] = {
    {"affinity", make<AffinityPolicy>},
    {"round-robin", make<RoundRobinPolicy>},
    {"least-requests", make<LeastRequestsPolicy>},
    {"power-of-two", make_power_of_two},
    {"chwbl", make_chwbl},
    {"rendezvous-session", make_rendezvous_session},
    {"sglang-cache-aware", make_sglang_cache_aware},
    {"dynamo", make_dynamo},
    {"lmetric", make_lmetric},
    {"lmetric-p1", make_lmetric_p1},
    {"gie", make_gie},
    {"preble", make_preble},
};

}  // namespace

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const Named& named : kPolicies) names.emplace_back(named.name);
  return names;
}

Status check_policy(std::string_view name) {
  std::string known;
  for (const Named& named : kPolicies) {
    if (name == named.name) return absl::OkStatus();
    known += (known.empty() ? "" : ", ") + std::string(named.name);
  }
  return invalid_argument("policy: there is no '" + std::string(name) + "'; there are " + known);
}

std::unique_ptr<RoutePolicy> make_policy(std::string_view name, const AffinityOptions& options) {
  for (const Named& named : kPolicies) {
    if (name == named.name) return named.make(options);
  }
  return make<AffinityPolicy>(options);
}

}  // namespace troupe::route

#include "gateway/route/policy/policy.h"

#include "common/core/check.h"
#include "gateway/route/policy/affinity.h"
#include "gateway/route/policy/baselines/baselines.h"
#include "gateway/route/policy/baselines/simple_policies.h"

namespace troupe::route {
namespace {

struct Row {
  PolicyInfo info;
  PolicyMaker make;
};

template <typename P>
std::unique_ptr<RoutePolicy> make(const AffinityOptions& options) {
  return std::make_unique<P>(options);
}

constexpr Row kPolicies[] = {
    {{.name = "affinity",
      .summary = "ours: the node for which missing tokens, waiting work and load together cost least; hot "
                 "sets get several nodes",
      .reads_residency = true,
      .follows_table = true},
     make<AffinityPolicy>},
    {{.name = "round-robin", .summary = "each node in its turn, whatever it holds or does"},
     make<RoundRobinPolicy>},
    {{.name = "least-requests", .summary = "the node with the fewest requests, whatever it holds"},
     make<LeastRequestsPolicy>},
    {{.name = "power-of-two", .summary = "the less busy of two nodes drawn at random"}, make_power_of_two},
    {{.name = "chwbl",
      .summary = "a persona's home on a hash ring, or the next node on the ring while home is over its "
                 "share (consistent hashing with bounded loads)"},
     make_chwbl},
    {{.name = "rendezvous-session", .summary = "a fixed node for every conversation, by hash"},
     make_rendezvous_session},
    {{.name = "sglang-cache-aware",
      .summary = "the longest prefix this gateway itself has sent somewhere, unless load is "
                 "uneven (SGLang's router)"},
     make_sglang_cache_aware},
    {{.name = "dynamo",
      .summary = "missing blocks plus busy blocks, both counted in full (NVIDIA Dynamo)",
      .reads_residency = true},
     make_dynamo},
    {{.name = "lmetric",
      .summary = "missing tokens times requests at the node (LMetric)",
      .reads_residency = true},
     make_lmetric},
    {{.name = "lmetric-p1",
      .summary = "missing and pending tokens times requests at the node (LMetric, as published)",
      .reads_residency = true},
     make_lmetric_p1},
    {{.name = "gie",
      .summary = "a weighted sum of scores for queue, KV memory and prefix (Kubernetes' inference gateway)",
      .reads_residency = true},
     make_gie},
    {{.name = "preble",
      .summary = "follow the prefix if most of the prompt is cached, else the node with the least work "
                 "to come (Preble E2)"},
     make_preble},
};

// Null: there is no such policy.
const Row* find_policy(std::string_view name) {
  for (const Row& row : kPolicies) {
    if (row.info.name == name) return &row;
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const Row& row : kPolicies) names.emplace_back(row.info.name);
  return names;
}

const PolicyInfo& policy_info(std::string_view name) {
  const Row* const row = find_policy(name);
  TROUPE_CHECK(row != nullptr, "policy_info of an unknown policy");
  return row->info;
}

Status check_policy(std::string_view name) {
  if (find_policy(name) != nullptr) return absl::OkStatus();
  std::string known;
  for (const Row& row : kPolicies) known += (known.empty() ? "" : ", ") + std::string(row.info.name);
  return invalid_argument("policy: there is no '" + std::string(name) + "'; there are " + known);
}

std::unique_ptr<RoutePolicy> make_policy(std::string_view name, const AffinityOptions& options) {
  const Row* const row = find_policy(name);
  TROUPE_CHECK(row != nullptr, "make_policy of an unknown policy");
  return row->make(options);
}

}  // namespace troupe::route

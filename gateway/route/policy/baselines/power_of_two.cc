// Power of two choices: two nodes at random, the one with fewer requests. Knows nothing of caches; its
// strength is that it needs to look at two loads only, and that many gateways with stale loads do not herd.
//
// Source: Mitzenmacher, "The power of two choices in randomized load balancing", IEEE TPDS 12(10), 2001; as
// `power_of_two` in SMG (model_gateway/src/policies/power_of_two.rs), `p2c` in Dynamo. No parameters.

#include <algorithm>
#include <vector>

#include "gateway/route/policy/baselines/baselines.h"

namespace troupe::route {
namespace {

class PowerOfTwoPolicy final : public RoutePolicy {
 public:
  explicit PowerOfTwoPolicy(const AffinityOptions& options) : options_(options) {}

  CandidateOrder choose(const PolicyInput& input, Random& random) const override {
    const auto& nodes = input.group.nodes;
    // Draws as many distinct nodes as an order holds, by a partial shuffle; the first two are the choice.
    std::vector<NodeIndex> drawn(nodes.begin(), nodes.end());
    const size_t count = std::min({drawn.size(), options_.order_max, CandidateOrder::kMax});
    for (size_t i = 0; i < count; ++i)
      std::swap(drawn[i], drawn[i + random.below(static_cast<uint32_t>(drawn.size() - i))]);
    if (count > 1 && input.known.loads.own_requests(drawn[1]) < input.known.loads.own_requests(drawn[0]))
      std::swap(drawn[0], drawn[1]);
    const CachedPrefix resident(input.known, input.key, input.tokens);
    std::vector<Candidate> ranked;
    for (size_t i = 0; i < count; ++i) {
      ranked.push_back(plain_candidate(input, drawn[i], Branch::kBaseline, resident.at(drawn[i]).expected));
      ranked.back().cost = static_cast<double>(i);
    }
    return order_of(ranked, options_.order_max);
  }

 private:
  AffinityOptions options_;
};

}  // namespace

std::unique_ptr<RoutePolicy> make_power_of_two(const AffinityOptions& options) {
  return std::make_unique<PowerOfTwoPolicy>(options);
}

}  // namespace troupe::route

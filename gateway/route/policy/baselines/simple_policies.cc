#include "gateway/route/policy/baselines/simple_policies.h"

#include <algorithm>
#include <vector>

namespace troupe::route {

CandidateOrder RoundRobinPolicy::choose(const PolicyInput& input, Random&) const {
  const CachedPrefix resident(input.known, input.key, input.tokens);
  const auto& nodes = input.group.nodes;
  std::vector<Candidate> ranked;
  const size_t count = std::min(nodes.size(), options_.order_max);
  for (size_t i = 0; i < count; ++i) {
    const NodeIndex node = nodes[(input.turn + i) % nodes.size()];
    ranked.push_back(plain_candidate(input, node, Branch::kRoundRobin, resident.at(node).expected));
    ranked.back().cost = static_cast<double>(i);
  }
  return order_of(ranked, options_.order_max);
}

CandidateOrder LeastRequestsPolicy::choose(const PolicyInput& input, Random& random) const {
  const CachedPrefix resident(input.known, input.key, input.tokens);
  const auto& nodes = input.group.nodes;
  std::vector<Candidate> ranked;
  // Starts at a random node, so equal ones are chosen at random.
  const size_t start = random.below(static_cast<uint32_t>(nodes.size()));
  for (size_t i = 0; i < nodes.size(); ++i) {
    const NodeIndex node = nodes[(start + i) % nodes.size()];
    ranked.push_back(plain_candidate(input, node, Branch::kLeast, resident.at(node).expected));
    ranked.back().cost = input.known.loads.own_requests(node) / input.known.view->node(node).weight;
  }
  return order_of(ranked, options_.order_max);
}

}  // namespace troupe::route

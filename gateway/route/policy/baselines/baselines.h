#pragma once

// Baseline policies of other systems, for comparison: each in its own file, which cites its source and keeps
// its defaults. They read the same residency as the affinity policy, and of loads what the original knows:
// its own ledger, or what workers report. They are as strong as their originals: mere bugs are mended (and
// said so), their ideas are not. What the original cannot know (another gateway's tree, a session's name) the
// baseline does not use.

#include <absl/container/inlined_vector.h>

#include <memory>

#include "gateway/route/policy/policy.h"

namespace troupe::route {

using PolicyMaker = std::unique_ptr<RoutePolicy> (*)(const AffinityOptions&);

std::unique_ptr<RoutePolicy> make_power_of_two(const AffinityOptions& options);
std::unique_ptr<RoutePolicy> make_chwbl(const AffinityOptions& options);
std::unique_ptr<RoutePolicy> make_rendezvous_session(const AffinityOptions& options);
std::unique_ptr<RoutePolicy> make_sglang_cache_aware(const AffinityOptions& options);
std::unique_ptr<RoutePolicy> make_dynamo(const AffinityOptions& options);
std::unique_ptr<RoutePolicy> make_lmetric(const AffinityOptions& options);
std::unique_ptr<RoutePolicy> make_lmetric_p1(const AffinityOptions& options);
std::unique_ptr<RoutePolicy> make_gie(const AffinityOptions& options);
std::unique_ptr<RoutePolicy> make_preble(const AffinityOptions& options);

// Orders all nodes of the group by cost_of(node, what it holds), the least first; equal costs in order from
// place `start` on (a random one, so ties are random).
template <typename CostOf>
CandidateOrder order_by_cost(const PolicyInput& input, size_t order_max, size_t start, CostOf&& cost_of) {
  const CachedPrefix resident(input.known, input.key, input.tokens);
  const auto& nodes = input.group.nodes;
  absl::InlinedVector<Candidate, 64> ranked;
  ranked.reserve(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    const NodeIndex node = nodes[(start + i) % nodes.size()];
    const CachedPrefix::Here here = resident.at(node);
    ranked.push_back(plain_candidate(input, node, Branch::kBaseline, here.expected));
    ranked.back().miss = static_cast<double>(input.tokens.prompt - here.cached);
    ranked.back().cost = cost_of(node, here);
  }
  return order_of(ranked, order_max);
}
inline size_t random_start(const PolicyInput& input, Random& random) {
  return random.below(static_cast<uint32_t>(input.group.nodes.size()));
}

// A request as a radix tree sees it: prefixes of its prompt, each named by its hash, the shortest first. They
// are the anchors; a key without any (made by hand) has its set and its session, and a named session's
// earlier length is unknown, so a policy that remembers a link remembers its length.
struct PromptLink {
  Hash128 hash;
  int64_t tokens = 0;  // from the prompt's first token up to here
};
using PromptLinks = absl::InlinedVector<PromptLink, 32>;
PromptLinks prompt_links(const PrefixKey& key, const RequestTokens& tokens);

}  // namespace troupe::route

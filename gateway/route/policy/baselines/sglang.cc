// SGLang's cache-aware router (now SMG): a radix tree of the prompts this gateway has sent, each part with
// the node it went to last. If the loads are even, a request whose tree match is more than 0.3 of its prompt
// goes to that node, any other to the least loaded; if they are not (more than 64 apart, and the greatest
// more than 1.5 × the least), every request goes to the least loaded.
//
// Source: lightseekorg/smg model_gateway/src/policies/cache_aware.rs, with the command line's defaults: cache
// threshold 0.3, balance_abs 64, balance_rel 1.5, 67,108,864 characters of tree a worker. The load is this
// gateway's own requests in flight, over all nodes; of equally loaded ones the one that was sent the fewest
// so far. A prompt is learned when it is sent, not its answer.
//
// The original has two trees, which differ in the node that a part of a prompt keeps: its text tree the first
// one, its token tree that one until about one request of sixteen moves it. Here it is always the last.
//
// Known weaknesses, kept: one node a prefix, so a hot one sticks to a node until the cliff and then all
// affinity is dropped for all requests; the tree is each gateway's own; removing a worker does not clean the
// tree, so what matches a dead node goes to the first healthy one and is not learned anew.

#include <algorithm>
#include <limits>
#include <utility>

#include "common/core/lru_map.h"
#include "gateway/route/policy/baselines/baselines.h"

namespace troupe::route {
namespace {

constexpr double kCacheThreshold = 0.3;
constexpr int64_t kBalanceAbs = 64;
constexpr double kBalanceRel = 1.5;
// Weight of a request sent so far beside one in flight: it only breaks ties.
constexpr double kSentWeight = 1.0 / static_cast<double>(int64_t{1} << 32);
constexpr size_t kTreeLinksMax = size_t{1} << 20;

class SglangCacheAwarePolicy final : public RoutePolicy {
 public:
  explicit SglangCacheAwarePolicy(const AffinityOptions& options) : options_(options), tree_(kTreeLinksMax) {}

  void update_cluster(const ClusterView& view) override {
    sent_counts_.resize(view.size());
    incarnations_.resize(view.size());
    routable_.assign(view.size(), false);
    first_routable_ = kNoNode;
    for (NodeIndex n = 0; n < view.size(); ++n) {
      routable_[n] = view.routable(n);
      if (routable_[n]) first_routable_ = std::min(first_routable_, n);
    }
  }

  CandidateOrder choose(const PolicyInput& input, Random&) const override {
    const LoadTracker& loads = input.known.loads;
    int64_t least = std::numeric_limits<int64_t>::max();
    int64_t most = 0;
    for (const NodeIndex n : input.group.nodes) {
      least = std::min(least, loads.at(n).in_flight);
      most = std::max(most, loads.at(n).in_flight);
    }
    const bool balanced =
        most - least <= kBalanceAbs || static_cast<double>(most) <= kBalanceRel * static_cast<double>(least);
    NodeIndex chosen = balanced ? match(input.key, input.tokens) : kNoNode;
    if (chosen != kNoNode && !loads.in_group(input.group, chosen)) chosen = input.group.nodes.front();
    return order_by_cost(input, options_.order_max, 0, [&](NodeIndex node, const CachedPrefix::Here&) {
      if (node == chosen) return -1.0;
      return static_cast<double>(loads.at(node).in_flight) +
             static_cast<double>(sent_counts_[node]) * kSentWeight;
    });
  }

  void on_sent(const PolicyRequest& request, TimePoint) override {
    const NodeIndex tenant = match(request.key, request.tokens);
    const bool gone = tenant != kNoNode && (tenant >= routable_.size() || !routable_[tenant]);
    if (gone && request.node == first_routable_) return;  // not learned: see above
    if (request.node < sent_counts_.size()) sent_counts_[request.node] += 1;
    // The longest first: of a prompt the end is forgotten first.
    const PromptLinks links = prompt_links(request.key, request.tokens);
    for (auto link = links.rbegin(); link != links.rend(); ++link)
      tree_.touch(link->hash) = Tenant{request.node, incarnation_of(request.node), link->tokens};
  }

  // Not in the original, where a worker is its address and never shares a slot.
  void replace_node(NodeIndex node) override {
    if (node >= incarnations_.size()) return;
    incarnations_[node] += 1;
    sent_counts_[node] = 0;
  }

 private:
  struct Tenant {
    NodeIndex node = kNoNode;
    uint32_t incarnation = 0;  // of the slot
    int64_t tokens = 0;
  };

  uint32_t incarnation_of(NodeIndex node) const {
    return node < incarnations_.size() ? incarnations_[node] : 0;
  }

  // The node of the longest match, where that is enough of the prompt; else none.
  NodeIndex match(const PrefixKey& key, const RequestTokens& tokens) const {
    const PromptLinks links = prompt_links(key, tokens);
    NodeIndex tenant = kNoNode;
    int64_t matched = 0;
    for (const PromptLink& link : links) {
      const Tenant* found = tree_.find(link.hash);
      if (found == nullptr || found->incarnation != incarnation_of(found->node)) break;
      tenant = found->node;
      matched = std::min(found->tokens, link.tokens);
    }
    const double rate = static_cast<double>(matched) / static_cast<double>(tokens.prompt);
    return rate > kCacheThreshold ? tenant : kNoNode;
  }

  AffinityOptions options_;
  LruMap<Tenant> tree_;
  std::vector<int64_t> sent_counts_;    // by node
  std::vector<uint32_t> incarnations_;  // by node: number of earlier nodes in the slot
  std::vector<bool> routable_;
  NodeIndex first_routable_ = kNoNode;
};

}  // namespace

std::unique_ptr<RoutePolicy> make_sglang_cache_aware(const AffinityOptions& options) {
  return std::make_unique<SglangCacheAwarePolicy>(options);
}

}  // namespace troupe::route

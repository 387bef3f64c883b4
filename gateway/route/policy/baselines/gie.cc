// The Gateway API Inference Extension's endpoint picker (llm-d router): a weighted sum of scores in 0..1, the
// highest taken, ties at random:
//
//   2 × queue    1 − (waiting − least) / (most − least), 1 where all wait alike
//   2 × KV       1 − share of its KV in use
//   3 × prefix   share of the prompt that the node holds
//
// Source: llm-d/llm-d-router pkg/epp/framework/plugins/scheduling (queue, kv-cache-utilization, prefix), its
// weights 2-2-3. The prefix is exact for nodes that report their residency ("precise"), else approximate: a
// chain of hashes remembered a node when a request is sent there, the least recently used forgotten beyond
// 31,250 blocks of 16 tokens. At most 256 blocks of a prompt are matched there. Queue and KV are the nodes'
// last reports; there is no ledger.
//
// Known weakness: scores are relative. A long prompt whose persona is resident scores no more than a short
// one's, and between reports all requests see the same queues; weights decide more than knowledge.

#include <algorithm>
#include <limits>

#include "gateway/route/policy/baselines/baselines.h"

namespace troupe::route {
namespace {

constexpr double kQueueWeight = 2;
constexpr double kKvWeight = 2;
constexpr double kPrefixWeight = 3;
constexpr int64_t kTokensPerNode = 31'250 * 16;
constexpr int64_t kTokensMatchedMax = 256 * 16;
constexpr size_t kLinksPerNode = 31'250;

class GiePolicy final : public RoutePolicy {
 public:
  explicit GiePolicy(const AffinityOptions& options) : options_(options), lru_(kLinksPerNode) {}

  void update_cluster(const ClusterView& view) override {
    for (NodeIndex n = 0; n < view.size(); ++n) lru_.set_budget(n, kTokensPerNode);
  }

  CandidateOrder choose(const PolicyInput& input, Random& random) const override {
    const LoadTracker& loads = input.known.loads;
    int64_t least = std::numeric_limits<int64_t>::max();
    int64_t most = 0;
    for (const NodeIndex n : input.group.nodes) {
      least = std::min(least, loads.at(n).report.queued);
      most = std::max(most, loads.at(n).report.queued);
    }
    const PromptLinks links = matched_links(input.key, input.tokens);
    const int64_t considered = std::max<int64_t>(std::min(input.tokens.prompt, kTokensMatchedMax), 1);
    return order_by_cost(
        input, options_.order_max, random_start(input, random),
        [&](NodeIndex node, const CachedPrefix::Here& here) {
          const NodeReport& report = loads.at(node).report;
          const double queue = most == least ? 1
                                             : 1 - static_cast<double>(report.queued - least) /
                                                       static_cast<double>(most - least);
          const double kv = report.kv_tokens_total > 0 ? static_cast<double>(report.kv_tokens_free) /
                                                             static_cast<double>(report.kv_tokens_total)
                                                       : 1;
          const bool precise = input.known.exact->feeds.in_step(node);
          const double prefix =
              precise ? static_cast<double>(here.cached) / static_cast<double>(input.tokens.prompt)
                      : static_cast<double>(remembered(links, node)) / static_cast<double>(considered);
          return -(kQueueWeight * queue + kKvWeight * kv + kPrefixWeight * prefix);
        });
  }

  void on_sent(const PolicyRequest& request, TimePoint) override {
    const PromptLinks links = matched_links(request.key, request.tokens);
    // The longest first, so that the beginning is used last and forgotten last.
    for (size_t i = links.size(); i-- > 0;) {
      const int64_t before = i > 0 ? links[i - 1].tokens : 0;
      ResidencyIndex::Put put{links[i].hash, HolderKind::kSet, request.node, links[i].tokens, 0};
      put.charge = std::max<int64_t>(links[i].tokens - before, 0);
      lru_.put(put);
    }
  }

  void forget_node(NodeIndex node) override { lru_.drop_node(node); }

 private:
  static PromptLinks matched_links(const PrefixKey& key, const RequestTokens& tokens) {
    PromptLinks links = prompt_links(key, tokens);
    // Keeps the block that the limit falls into as the last one.
    while (links.size() > 1 && links[links.size() - 2].tokens >= kTokensMatchedMax) links.pop_back();
    if (!links.empty()) links.back().tokens = std::min(links.back().tokens, kTokensMatchedMax);
    return links;
  }

  // Tokens of the prompt on the node, from the first one on without a gap.
  int64_t remembered(const PromptLinks& links, NodeIndex node) const {
    int64_t tokens = 0;
    for (const PromptLink& link : links) {
      const int64_t held = lru_.tokens(link.hash, node);
      if (held == 0) break;
      tokens = std::min(held, link.tokens);
    }
    return tokens;
  }

  AffinityOptions options_;
  ResidencyIndex lru_;
};

}  // namespace

std::unique_ptr<RoutePolicy> make_gie(const AffinityOptions& options) {
  return std::make_unique<GiePolicy>(options);
}

}  // namespace troupe::route

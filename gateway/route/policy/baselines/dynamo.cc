// NVIDIA Dynamo's KV router: argmin of one linear cost in blocks of 16 tokens,
//
//   cost = prefill blocks waiting there + this prompt's − those it holds  (never below 0)
//        + blocks of all requests there, this one's counted, shared ones once
//
// over exact residency. Ties at random (temperature 0).
//
// Source: ai-dynamo/dynamo lib/kv-router/src/scheduling/selector/default.rs and docs/components/router:
// overlap credit 1, its decay 0, prefill scale 1, no weight on the number of requests, temperature 0. Prefill
// counts until a request's first token, blocks until its end. A router's ledger is its own: the exchange
// between routers (replica sync) is off there by default.
//
// Known weakness: waiting prefill and blocks in use weigh as much as a block of one's own to compute, so a
// few queued prompts, or merely more users, push a conversation off the node that holds it.

#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <vector>

#include "gateway/route/policy/baselines/baselines.h"

namespace troupe::route {
namespace {

class DynamoPolicy final : public RoutePolicy {
 public:
  explicit DynamoPolicy(const AffinityOptions& options) : options_(options) {}

  CandidateOrder choose(const PolicyInput& input, Random& random) const override {
    const LoadTracker& loads = input.known.loads;
    return order_by_cost(input, options_.order_max, random_start(input, random),
                         [&](NodeIndex node, const CachedPrefix::Here& here) {
                           const double prefill = loads.own_pending_tokens(node) +
                                                  static_cast<double>(input.tokens.prompt - here.cached);
                           auto held = static_cast<double>(input.tokens.prompt);
                           if (node < nodes_.size()) {
                             held += nodes_[node].tokens;
                             if (nodes_[node].sets.contains(input.key.set))
                               held -= static_cast<double>(input.tokens.prefix);
                           }
                           return (std::max(prefill, 0.0) + held) / kBlockTokens;
                         });
  }

  void on_sent(const PolicyRequest& request, TimePoint) override {
    if (request.node >= nodes_.size()) nodes_.resize(request.node + size_t{1});
    Node& node = nodes_[request.node];
    const Flight flight{request.node, node.incarnation, request.key.set,
                        static_cast<double>(request.tokens.prompt - request.tokens.prefix)};
    node.tokens += flight.own_tokens;
    if (!flight.set.is_zero()) {
      Shared& shared = node.sets[flight.set];
      if (shared.requests++ == 0) {
        shared.tokens = static_cast<double>(request.tokens.prefix);
        node.tokens += shared.tokens;
      }
    }
    flights_.emplace(request.id, flight);
  }

  void on_finished(const PolicyRequest& request, TimePoint) override {
    const auto it = flights_.find(request.id);
    if (it == flights_.end()) return;
    const Flight flight = it->second;
    flights_.erase(it);
    Node& node = nodes_[flight.node];
    if (node.incarnation != flight.incarnation) return;
    node.tokens -= flight.own_tokens;
    const auto shared = node.sets.find(flight.set);
    if (shared == node.sets.end() || --shared->second.requests > 0) return;
    node.tokens -= shared->second.tokens;
    node.sets.erase(shared);
  }

  void forget_node(NodeIndex node) override {
    if (node < nodes_.size()) nodes_[node] = Node{{}, 0, nodes_[node].incarnation + 1};
  }

 private:
  struct Shared {
    int64_t requests = 0;
    double tokens = 0;
  };
  struct Node {
    absl::flat_hash_map<Hash128, Shared> sets;  // of the requests there
    double tokens = 0;                          // of all of them, each set counted once
    uint32_t incarnation = 0;
  };
  struct Flight {
    NodeIndex node = kNoNode;
    uint32_t incarnation = 0;
    Hash128 set;
    double own_tokens = 0;  // beyond the set's
  };

  AffinityOptions options_;
  std::vector<Node> nodes_;
  absl::flat_hash_map<uint64_t, Flight> flights_;
};

}  // namespace

std::unique_ptr<RoutePolicy> make_dynamo(const AffinityOptions& options) {
  return std::make_unique<DynamoPolicy>(options);
}

}  // namespace troupe::route

// Rendezvous hashing of the conversation: every node draws a number for it, the highest is its home. History
// is always found where it was left, whatever the number of gateways; persona cards end up on every node, and
// load is as even as chance makes it.
//
// Source: Thaler, Ravishankar, "A name-based mapping scheme for rendezvous", 1996; `rendezvous_hash` of
// vllm-project/router. No parameters. A request without a session is keyed by the second link of its prompt
// (the first is often common to all), as a chat is by its first user turn.

#include "gateway/route/policy/baselines/baselines.h"

namespace troupe::route {
namespace {

class RendezvousSessionPolicy final : public RoutePolicy {
 public:
  explicit RendezvousSessionPolicy(const AffinityOptions& options) : options_(options) {}

  CandidateOrder choose(const PolicyInput& input, Random& random) const override {
    const Hash128 key = conversation(input.key, random);
    const ClusterView& view = *input.known.view;
    return order_by_cost(input, options_.order_max, 0, [&](NodeIndex node, const CachedPrefix::Here&) {
      const NodeView& n = view.node(node);
      return -rendezvous_score(rendezvous_draw(key.lo, n.hash.lo), n.weight, view.equal_weights());
    });
  }

 private:
  static Hash128 conversation(const PrefixKey& key, Random& random) {
    if (!key.session.is_zero()) return key.session;
    if (!key.anchors.empty()) return key.anchors[key.anchors.size() > 1 ? 1 : 0].hash;
    return Hash128{0, random.next()};
  }

  AffinityOptions options_;
};

}  // namespace

std::unique_ptr<RoutePolicy> make_rendezvous_session(const AffinityOptions& options) {
  return std::make_unique<RendezvousSessionPolicy>(options);
}

}  // namespace troupe::route

// Consistent hashing with bounded loads: a ring with 256 places a node; the key's place on it is its home,
// and clockwise from there the first node that would not carry more than 1.25 × the mean with it is taken.
// Stateless, so every gateway agrees.
//
// Source: KubeAI internal/loadbalancer/balance_chwbl.go (PrefixHash: load factor 1.25, replication 256),
// after Mirrokni, Thorup, Zadimoghaddam, "Consistent hashing with bounded loads", SODA 2018. Its bound counts
// the request itself on both sides, load + 1 <= 1.25 (total + 1) / n; an idle fleet has none; where no node
// is within it (any fleet with fewer requests than 0.8 × its nodes) the home takes it, however loaded.
// Stronger than the original in its key: that hashes the first 100 characters of the first user message,
// which misses the persona; here the key is the persona, or without one the conversation.
//
// Known weakness: a set's overflow always spills to the same neighbours, node by node, and conversations
// follow the load, not their history. One set for all (a common template line as key) is one walk for all.

#include <algorithm>
#include <vector>

#include "gateway/route/policy/baselines/baselines.h"

namespace troupe::route {
namespace {

constexpr double kLoadFactor = 1.25;
constexpr uint64_t kPlacesPerNode = 256;

class ChwblPolicy final : public RoutePolicy {
 public:
  explicit ChwblPolicy(const AffinityOptions& options) : options_(options) {}

  void update_cluster(const ClusterView& view) override {
    ring_.clear();
    ring_.reserve(view.size() * kPlacesPerNode);
    for (NodeIndex n = 0; n < view.size(); ++n) {
      if (!view.routable(n)) continue;
      for (uint64_t i = 0; i < kPlacesPerNode; ++i)
        ring_.push_back(Place{mix_hash(view.node(n).hash, Hash128{0, i}), n});
    }
    std::sort(ring_.begin(), ring_.end(),
              [](const Place& a, const Place& b) { return a.at != b.at ? a.at < b.at : a.node < b.node; });
    seen_.assign(view.size(), 0);
  }

  CandidateOrder choose(const PolicyInput& input, Random& random) const override {
    const CachedPrefix resident(input.known, input.key, input.tokens);
    const LoadTracker& loads = input.known.loads;
    const size_t nodes = input.group.nodes.size();
    double total = 0;
    for (const NodeIndex n : input.group.nodes) total += loads.own_requests(n);
    const double bound = kLoadFactor * (total + 1) / static_cast<double>(nodes);
    std::vector<Candidate> ranked;
    ++walk_;
    size_t within = 0;
    size_t place = first_place(key_of(input, random));
    // Each node of the group is met once: the walk ends after the last, or once enough nodes can take it.
    for (size_t i = 0; i < ring_.size() && ranked.size() < nodes && within < options_.order_max; ++i) {
      const NodeIndex node = ring_[place].node;
      place = place + 1 == ring_.size() ? 0 : place + 1;
      if (seen_[node] == walk_) continue;
      seen_[node] = walk_;
      if (!loads.in_group(input.group, node)) continue;
      const bool fits = total == 0 || loads.own_requests(node) + 1 <= bound;
      within += fits ? 1 : 0;
      ranked.push_back(plain_candidate(input, node, Branch::kBaseline, resident.at(node).expected));
      ranked.back().cost = static_cast<double>(ranked.size() - 1 + (fits ? 0 : nodes));
    }
    return order_of(ranked, options_.order_max);
  }

 private:
  struct Place {
    uint64_t at = 0;
    NodeIndex node = kNoNode;
  };

  static Hash128 key_of(const PolicyInput& input, Random& random) {
    const PrefixKey& key = input.key;
    if (!key.set.is_zero()) return key.set;
    if (!key.session.is_zero()) return key.session;
    return key.anchors.empty() ? Hash128{random.next(), 0} : key.anchors.front().hash;
  }
  size_t first_place(Hash128 key) const {
    const uint64_t at = mix_hash(key, Hash128{});
    const auto found = std::lower_bound(ring_.begin(), ring_.end(), at,
                                        [](const Place& p, uint64_t value) { return p.at < value; });
    return found == ring_.end() ? 0 : static_cast<size_t>(found - ring_.begin());
  }

  AffinityOptions options_;
  std::vector<Place> ring_;
  // Scratch: the number of the walk in which each node was met last.
  mutable std::vector<uint64_t> seen_;
  mutable uint64_t walk_ = 0;
};

}  // namespace

std::unique_ptr<RoutePolicy> make_chwbl(const AffinityOptions& options) {
  return std::make_unique<ChwblPolicy>(options);
}

}  // namespace troupe::route

#pragma once

// The homes of every set: an immutable snapshot with an epoch, made by the planner (planner.h), swapped
// whole. It guides; only in strict mode it forbids other nodes.
//
// Homes are found by weighted rendezvous: every node gets a score from (set, node) alone, the best are home.
// A node that dies moves only its own sets, a node that joins takes only what it wins, and every gateway
// computes the same without asking another. Source of the score -w/ln(u): Schindelhauer, Schomaker, "Weighted
// distributed hash tables", SPAA 2005.

#include <absl/container/flat_hash_map.h>
#include <absl/container/inlined_vector.h>

#include <algorithm>
#include <compare>
#include <cstdint>
#include <span>
#include <string_view>

#include "common/core/block_hash.h"
#include "gateway/route/fleet/view.h"

namespace troupe::route {

// A set's homes, in the order they became it.
class Homes {
 public:
  std::span<const NodeIndex> nodes() const { return nodes_; }
  size_t size() const { return nodes_.size(); }
  bool contains(NodeIndex node) const {
    return std::find(nodes_.begin(), nodes_.end(), node) != nodes_.end();
  }
  void push_back(NodeIndex node) { nodes_.push_back(node); }
  bool operator==(const Homes&) const = default;

 private:
  absl::InlinedVector<NodeIndex, 4> nodes_;
};

// A draw in (0, 1), never an end. Both hashes are well mixed already; two rounds of multiply and shift
// (splitmix64's) make their sum so, at a tenth of the cost of hashing them: the planner needs millions.
inline double rendezvous_draw(uint64_t key, uint64_t node) {
  uint64_t z = key + node * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return (static_cast<double>(z >> 11) + 0.5) * 0x1p-53;
}
// Higher is better. The logarithm rises with the draw, so where all weights are equal the draw itself ranks
// the same, at a fraction of the cost.
double rendezvous_score(double draw, double weight, bool equal_weights);
// The best of `candidates`; kNoNode where there is none.
NodeIndex rendezvous_best(Hash128 key, const ClusterView& view, std::span<const NodeIndex> candidates);

// Version of a table among all that the gateways of a fleet have made; of two the greater one counts. A
// planner uses every epoch at most once.
struct TableVersion {
  uint64_t epoch = 0;
  Hash128 planner;  // the gateway that made it
  auto operator<=>(const TableVersion&) const = default;
};

class SetTable {
 public:
  using Map = absl::flat_hash_map<Hash128, Homes>;
  struct Origin {
    TableVersion version;
    uint64_t loads_epoch = 0;  // epoch of the loads it was planned from; 0: this gateway's own sample
    // kStrict: number of sets that share all keys of a model; 0: every key is its own
    size_t strict_sets = 0;
  };
  SetTable() = default;
  SetTable(const Origin& origin, Map sets) : origin_(origin), sets_(std::move(sets)) {}

  uint64_t epoch() const { return origin_.version.epoch; }
  const TableVersion& version() const { return origin_.version; }
  const Origin& origin() const { return origin_; }
  // Null where the table has no home for it. Strict: a set that found no room shares the homes of the next.
  const Homes* find(Hash128 set, std::string_view model) const {
    const Map::value_type* found = entry(set, model);
    return found == nullptr ? nullptr : &found->second;
  }
  // The same with the name it has in the table.
  const Map::value_type* entry(Hash128 set, std::string_view model) const;
  // Name of a strict set in the table.
  static Hash128 strict_name(std::string_view model, size_t number);
  // The strict set a prefix key belongs to.
  static size_t strict_number(Hash128 set, size_t strict_sets) { return set.hi % strict_sets; }
  const Map& sets() const { return sets_; }

 private:
  Origin origin_;
  Map sets_;
};

}  // namespace troupe::route

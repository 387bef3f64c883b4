#pragma once

// A policy's answer: an order of nodes with reasons, not one node. The forwarder walks down it on failures,
// and never asks the same node twice.

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "gateway/route/fleet/load_tracker.h"
#include "gateway/route/fleet/view.h"

namespace troupe::route {

enum class Branch : uint8_t {
  kSession,     // it holds the conversation
  kHome,        // some of the set is resident there, or the plan has the set there
  kNewCopy,     // neither, and the set is hot: computed there anew, it has one more copy
  kLeast,       // neither, and the set is not hot
  kRoundRobin,  // its turn
  kBaseline,    // a baseline policy's own reason
};
std::string_view branch_name(Branch branch);
inline constexpr size_t kBranchCount = 6;

struct Candidate {
  NodeIndex node = kNoNode;
  Branch branch = Branch::kLeast;
  bool overloaded = false;    // at its limit of requests
  bool suspect = false;       // or it leaves, or waits for the set's prefix: asked after all others
  int64_t expect_cached = 0;  // predicted cached tokens
  // The cost and its parts, in prompt tokens; a policy without one leaves them 0.
  double cost = 0;
  double miss = 0;  // tokens to compute, discounts included
  LoadCost load;
  double evict = 0;  // tokens to evict there, at their weight
  double noise = 0;
};

// Bounded, in order of preference, no node twice.
class CandidateOrder {
 public:
  static constexpr size_t kMax = 8;
  std::span<const Candidate> all() const { return {items_.data(), count_}; }
  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  const Candidate& operator[](size_t i) const { return items_[i]; }
  bool contains(NodeIndex node) const;
  // False (and nothing changes) when full or already there.
  bool push_back(const Candidate& candidate);

 private:
  friend CandidateOrder order_of(std::span<const Candidate> ranked, size_t order_max);
  std::array<Candidate, kMax> items_;
  size_t count_ = 0;
};

// Orders `ranked` candidates (distinct nodes) by cost, but those at their limit after all others and suspects
// last; equal costs by their place in `ranked`. At most `order_max`.
CandidateOrder order_of(std::span<const Candidate> ranked, size_t order_max);

}  // namespace troupe::route

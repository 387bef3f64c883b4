#include "gateway/route/policy/candidates.h"

#include <algorithm>
#include <limits>

namespace troupe::route {
namespace {

// Class of last resort: smaller is better.
int last_resort(const Candidate& c) {
  return (c.suspect ? 2 : 0) + (c.overloaded ? 1 : 0);
}

// The fields of a comparison, side by side in memory.
struct Ranked {
  int last_resort = 0;
  double cost = 0;
  const Candidate* candidate = nullptr;
};

bool before(const Ranked& a, const Ranked& b) {
  return a.last_resort != b.last_resort ? a.last_resort < b.last_resort : a.cost < b.cost;
}

}  // namespace

std::string_view branch_name(Branch branch) {
  switch (branch) {
    case Branch::kSession:
      return "session";
    case Branch::kHome:
      return "home";
    case Branch::kNewCopy:
      return "copy";
    case Branch::kLeast:
      return "least";
    case Branch::kRoundRobin:
      return "round-robin";
    case Branch::kBaseline:
      return "rival";
  }
  return "least";
}

bool CandidateOrder::contains(NodeIndex node) const {
  for (const Candidate& c : all()) {
    if (c.node == node) return true;
  }
  return false;
}

bool CandidateOrder::push_back(const Candidate& candidate) {
  if (count_ == kMax || contains(candidate.node)) return false;
  items_[count_++] = candidate;
  return true;
}

CandidateOrder order_of(std::span<const Candidate> ranked, size_t order_max) {
  // The best few by insertion; candidates are copied once.
  std::array<Ranked, CandidateOrder::kMax> best;
  const size_t limit = std::min(order_max, CandidateOrder::kMax);
  size_t count = 0;
  for (const Candidate& candidate : ranked) {
    const Ranked c{last_resort(candidate), candidate.cost, &candidate};
    if (limit == 0 || (count == limit && !before(c, best[count - 1]))) continue;
    size_t at = count < limit ? count++ : count - 1;
    for (; at > 0 && before(c, best[at - 1]); --at) best[at] = best[at - 1];
    best[at] = c;
  }
  CandidateOrder order;
  for (size_t i = 0; i < count; ++i) order.items_[i] = *best[i].candidate;
  order.count_ = count;
  return order;
}

}  // namespace troupe::route

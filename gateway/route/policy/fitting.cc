#include "gateway/route/policy/fitting.h"

#include <algorithm>
#include <vector>

namespace troupe::route {
namespace {

// A prompt that is estimated from bytes may be so much longer: it goes where it fits for sure, if there is
// such a node.
constexpr double kPromptMargin = 1.1;

class Fitting {
 public:
  explicit Fitting(const PolicyInput& input) : in_(input), view_(*input.known.view) {
    const bool counted = in_.key.prompt_tokens > 0;
    const double prompt = static_cast<double>(in_.tokens.prompt) * (counted ? 1 : kPromptMargin);
    needed_ = std::max(static_cast<int64_t>(prompt) + in_.key.answer_tokens, in_.key.longer_than + 1);
    const int64_t shortest = view_.shortest_context(in_.model);
    by_length_ = shortest > 0 && needed_ > shortest;
  }

  bool matters() const { return by_length_ || in_.key.others_only; }

  // The order without those that do not fit, or else the fitting ones by load.
  CandidateOrder of(const CandidateOrder& order) {
    settle_length();
    CandidateOrder kept;
    for (const Candidate& candidate : order.all())
      if (fits(candidate.node)) kept.push_back(candidate);
    return kept.empty() ? by_load() : kept;
  }

 private:
  int64_t context_of(NodeIndex node) const { return view_.node(node).context_of(in_.model); }
  bool answers(NodeIndex node) const { return !in_.key.others_only || !view_.node(node).is_troupe_worker; }
  // (A node that does not report its context may have any.)
  bool fits(NodeIndex node) const {
    const int64_t context = context_of(node);
    return answers(node) && (!by_length_ || context == 0 || context >= needed_);
  }

  // A prompt that is too long for every context needs the longest.
  void settle_length() {
    if (!by_length_) return;
    int64_t longest = 0;
    for (const NodeIndex node : in_.group.nodes) {
      if (!answers(node)) continue;
      if (context_of(node) == 0) return;
      longest = std::max(longest, context_of(node));
    }
    needed_ = std::min(needed_, longest);
  }

  CandidateOrder by_load() const {
    std::vector<Candidate> ranked;
    const LoadTracker::Means means = in_.known.loads.means(in_.group);
    for (const NodeIndex node : in_.group.nodes) {
      if (!fits(node)) continue;
      Candidate& candidate = ranked.emplace_back(plain_candidate(in_, node, Branch::kLeast, 0));
      candidate.miss = static_cast<double>(in_.tokens.prompt);
      candidate.load = in_.known.loads.cost(means, node);
      candidate.cost = candidate.miss + candidate.load.total();
    }
    return order_of(ranked, CandidateOrder::kMax);
  }

  const PolicyInput& in_;
  const ClusterView& view_;
  int64_t needed_ = 0;
  bool by_length_ = false;
};

}  // namespace

void keep_fitting(const PolicyInput& input, CandidateOrder& order) {
  Fitting fitting(input);
  if (fitting.matters()) order = fitting.of(order);
}

}  // namespace troupe::route

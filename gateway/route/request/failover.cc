#include "gateway/route/request/failover.h"

#include <algorithm>
#include <utility>

#include "common/core/check.h"

namespace troupe::route {
namespace {

using CanResume = absl::FunctionRef<bool(NodeIndex)>;

bool may_be_asked(const FailoverState& state, NodeIndex node, const Router& router, CanResume can_resume) {
  if (!router.view().routable(node)) return false;  // not any more
  const bool tried = std::find(state.tried.begin(), state.tried.end(), node) != state.tried.end();
  const int64_t context = router.view().node(node).context_of(state.model);
  const bool may_fit = context == 0 || context > state.key.longer_than;
  return !tried && may_fit && (!state.started || can_resume(node));
}

// The first place from `place` on whom this request may be sent to; the order's end: nobody.
size_t next_place(const FailoverState& state, const Decision& decision, size_t place, const Router& router,
                  CanResume can_resume) {
  size_t unknown = decision.order.size();
  for (; place < decision.order.size(); ++place) {
    const NodeIndex node = decision.order[place].node;
    if (!may_be_asked(state, node, router, can_resume)) continue;
    if (state.key.longer_than == 0 || router.view().node(node).context_of(state.model) > 0) return place;
    unknown = std::min(unknown, place);  // it may be as short
  }
  return unknown;
}

}  // namespace

std::optional<NextAttempt> next_attempt(const FailoverState& told, const Failure& failure,
                                        CanResume can_resume, Router& router, RetryBudget& budget,
                                        TimePoint now) {
  FailoverState state = told;
  TROUPE_CHECK(!state.tried.empty(), "the node that failed is one of those tried");
  NextAttempt next;
  next.afresh = state.started && state.streamed >= budget.options().afresh_after;
  if (next.afresh && !state.tried.empty()) {
    state.tried = state.tried.last(1);
    state.length_refusals = 0;
  }
  if (state.started && state.resumable) {
    PrefixKey longer = state.key;
    longer.prompt_tokens = state.prompt_tokens;  // without those of an earlier resume
    longer.prompt_tokens = router.prompt_tokens(longer) + state.tokens_delivered;
    longer.displaced = true;
    next.prompt_tokens = longer.prompt_tokens;
    next.decision = router.decide(longer, state.model, now);
  } else if (refused_for_length(failure)) {
    next.decision = router.decide(state.key, state.model, now);
  } else {
    next.decision = state.decision;
    next.place = state.place + 1;
  }
  next.place = next_place(state, next.decision, next.place, router, can_resume);
  if (next.place == next.decision.order.size() && !state.started) {
    Decision anew = router.decide(state.key, state.model, now);
    const size_t place = next_place(state, anew, 0, router, can_resume);
    if (place < anew.order.size()) next = {std::move(anew), place};
  }
  const bool extends = next.place == next.decision.order.size() && node_failed(failure) &&
                       router.may_extend(state.key, next.decision);
  AttemptState attempt;
  attempt.attempts = static_cast<int>(state.tried.size()) - state.length_refusals;
  attempt.candidates_left = static_cast<int>(next.decision.order.size() - next.place) + (extends ? 1 : 0);
  attempt.first_byte_sent = state.started;
  attempt.resumable = state.resumable;
  attempt.remaining = state.remaining;
  attempt.resend = state.resend;
  if (decide_retry(failure, attempt, budget, now) != RetryAction::kNextCandidate) return std::nullopt;
  if (!extends) return next;
  if (!router.extend(state.key, state.model, next.decision, now)) return std::nullopt;
  next.place = next_place(state, next.decision, next.place, router, can_resume);
  if (next.place == next.decision.order.size()) return std::nullopt;
  return next;
}

}  // namespace troupe::route

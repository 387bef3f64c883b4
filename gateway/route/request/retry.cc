#include "gateway/route/request/retry.h"

#include <algorithm>
#include <array>

namespace troupe::route {

void RetryBudget::refill(TimePoint now) {
  if (started_ && now > last_) {
    const double seconds = std::chrono::duration<double>(now - last_).count();
    tokens_ = std::min(options_.budget_max, tokens_ + seconds * options_.budget_per_s);
  }
  started_ = true;
  last_ = std::max(last_, now);
}

void RetryBudget::earn(TimePoint now) {
  refill(now);
  tokens_ = std::min(options_.budget_max, tokens_ + options_.budget_ratio);
}

bool RetryBudget::spend(TimePoint now) {
  refill(now);
  if (tokens_ < 1) {
    refused_ += 1;
    return false;
  }
  tokens_ -= 1;
  return true;
}

bool retryable_status(int http_status) {
  if (http_status == 429) return true;
  const bool same_elsewhere = http_status == 501 || http_status == 504 || http_status == 508;
  return http_status >= 500 && http_status <= 599 && !same_elsewhere;
}

bool node_specific_rejection(const Failure& failure) {
  if (failure.kind != FailureKind::kStatus) return false;
  if (!failure.foreign) return failure.any_path && lacks_path(failure.http_status);
  if (failure.answered_whole) return true;
  constexpr std::array<int, 12> kAlone{401, 402, 403, 404, 405, 407, 408, 410, 421, 425, 501, 504};
  const int status = failure.http_status;
  return status / 100 == 3 || std::find(kAlone.begin(), kAlone.end(), status) != kAlone.end();
}

bool lacks_path(int http_status) {
  return http_status == 404 || http_status == 405 || http_status == 501;
}

bool refuses_key(int http_status) {
  return http_status == 401 || http_status == 402 || http_status == 403;
}

bool refused_for_length(const Failure& failure) {
  return failure.kind == FailureKind::kStatus && failure.too_long;
}

bool node_failed(const Failure& failure) {
  switch (failure.kind) {
    case FailureKind::kConnect:
    case FailureKind::kTransport:
    case FailureKind::kBody:
    case FailureKind::kSilent:
      return true;
    case FailureKind::kStatus:
      return failure.http_status != 429 && retryable_status(failure.http_status) && !failure.too_long;
    case FailureKind::kDeadline:
    case FailureKind::kLocal:
      return false;
  }
  return false;
}

bool affects_health(const Failure& failure) {
  const bool busy = failure.kind == FailureKind::kStatus && failure.http_status == 503;
  return node_failed(failure) && !busy;
}

bool may_have_begun(const Failure& failure) {
  if (failure.kind == FailureKind::kConnect || failure.kind == FailureKind::kLocal) return false;
  const bool waited = failure.answered_whole || failure.http_status == 504;
  const bool was_full = failure.kind == FailureKind::kStatus && failure.http_status == 429;
  return !was_full && (!node_specific_rejection(failure) || waited) && !refused_for_length(failure);
}

RetryAction decide_retry(const Failure& failure, const AttemptState& state, RetryBudget& budget,
                         TimePoint now) {
  const RetryOptions& options = budget.options();
  if (state.first_byte_sent && !state.resumable) return RetryAction::kForward;
  if (failure.kind == FailureKind::kDeadline) return RetryAction::kForward;
  // Another node would need the same of this gateway, and has done nothing to deserve its failures.
  if (failure.kind == FailureKind::kLocal) return RetryAction::kForward;
  if (failure.kind == FailureKind::kStatus && !retryable_status(failure.http_status) &&
      !node_specific_rejection(failure) && !refused_for_length(failure))
    return RetryAction::kForward;
  if (state.candidates_left <= 0 || state.attempts >= options.attempts_max) return RetryAction::kForward;
  if (state.remaining < options.remaining_min) return RetryAction::kForward;
  const bool begun = may_have_begun(failure);
  if (begun && !state.first_byte_sent && !state.resend) return RetryAction::kForward;
  // A refused connection and a 429 cost the fleet nothing: they need no budget.
  return !begun || budget.spend(now) ? RetryAction::kNextCandidate : RetryAction::kForward;
}

}  // namespace troupe::route

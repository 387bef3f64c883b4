#include "gateway/route/request/request_flow.h"

#include <algorithm>
#include <utility>

#include "common/core/check.h"

namespace troupe::route {

std::optional<HealthEvent> health_event_of(const Failure& failure, bool blame) {
  switch (failure.kind) {
    case FailureKind::kConnect:
      return HealthEvent::kConnectError;
    case FailureKind::kTransport:
    case FailureKind::kBody:
      return blame ? std::optional(HealthEvent::kTransportError) : std::nullopt;
    case FailureKind::kStatus:
      if (refused_for_length(failure)) return HealthEvent::kRefused;
      return affects_health(failure) ? std::optional(HealthEvent::kErrored) : std::nullopt;
    case FailureKind::kSilent:  // silent() has reported it
    case FailureKind::kDeadline:
    case FailureKind::kLocal:
      return std::nullopt;
  }
  return std::nullopt;
}

AdmissionRequest admission_request(const Router& router, const PrefixKey& key, const Decision& decision,
                                   const AdmissionSpec& spec) {
  AdmissionRequest request;
  request.pool = spec.pool;
  request.key = spec.key;
  request.persona = key.set;
  request.priority = spec.priority;
  const int64_t cached = decision.order.empty() ? 0 : decision.order[0].expect_cached;
  const int64_t prompt = std::max<int64_t>(router.prompt_tokens(key) - cached, 1);
  const int64_t usual = router.usual_answer_tokens();
  request.prompt_tokens = prompt;
  request.tokens = prompt + spec.answers * std::min(usual, spec.answer_tokens_max.value_or(usual));
  request.answers = spec.answers;
  request.deadline = spec.deadline;
  return request;
}

void RequestFlow::begin(PrefixKey& key, std::string_view model, int64_t answers) {
  key_ = &key;
  model_ = model;
  answers_ = answers;
  prompt_tokens_ = key.prompt_tokens;
}

namespace {

// A node that asks for more time than this is heard no further: it may be wrong.
constexpr Duration kBackoffMax = std::chrono::seconds(60);

void put_backoff_last(const NodeSignals& nodes, CandidateOrder& order, TimePoint now) {
  if (!nodes.any_in_backoff()) return;
  CandidateOrder last;
  for (const bool in_backoff : {false, true}) {
    for (const Candidate& candidate : order.all())
      if (nodes.in_backoff(candidate.node, now) == in_backoff) last.push_back(candidate);
  }
  order = last;
}

}  // namespace

Action RequestFlow::choose(const FlowContext& context, TimePoint now) {
  TROUPE_CHECK(key_ != nullptr, "a request begins before nodes are chosen for it");
  decision_ = context.router.decide(*key_, model_, now);
  put_backoff_last(context.nodes, decision_.order, now);
  place_ = 0;
  return decision_.order.empty() ? Action::kRefuse : Action::kAdmit;
}

Action RequestFlow::admitted(const FlowContext& context, bool waited, TimePoint now) {
  if (waited && choose(context, now) == Action::kRefuse) return Action::kRefuse;
  context.budget.earn(now);
  return send_next(context, false, now);
}

void RequestFlow::send_to(const FlowContext& context, const Candidate& candidate, bool resumes,
                          TimePoint now) {
  TROUPE_CHECK(key_ != nullptr && !attempt_.booked, "an attempt is sent while another is under way");
  attempt_ = Attempt();
  attempt_.candidate = candidate;
  attempt_.resumes = resumes;
  attempt_.sent = context.router.on_sent(*key_, model_, candidate, now, answers_);
  attempt_.booked = true;
  attempts_ += 1;
  tried_.push_back(candidate.node);
}

Action RequestFlow::send_next(const FlowContext& context, bool resumes, TimePoint now) {
  TROUPE_CHECK(place_ < decision_.order.size(), "a request is sent to a node that was not chosen");
  send_to(context, decision_.order[place_], resumes, now);
  return Action::kSend;
}

void RequestFlow::hand_back(const FlowContext& context, const std::optional<AnswerCounts>& counts,
                            TimePoint now) {
  if (std::exchange(attempt_.booked, false)) context.router.on_finished(*key_, attempt_.sent, counts, now);
}

void RequestFlow::first_byte(const FlowContext& context, bool heartbeats, TimePoint now) {
  TROUPE_CHECK(attempts_ > 0, "nothing was sent that could answer or fail");
  if (attempt_.booked) context.router.first_byte(*key_, attempt_.sent, now);
  if (heartbeats) context.nodes.saw_heartbeat(attempt_.candidate.node);
  blame_refusers(context, now);
  attempt_.first_byte_at = now;
}

bool RequestFlow::silent(const FlowContext& context, const SilentFacts& facts, const AnswerProgress& progress,
                         TimePoint now) {
  TROUPE_CHECK(attempts_ > 0, "nothing was sent that could answer or fail");
  const NodeIndex node = attempt_.candidate.node;
  StallCheck check;
  check.node = context.nodes.node_status(node);
  check.heartbeats_asked = facts.heartbeats_asked;
  check.heartbeats_seen = facts.heartbeats_seen;
  check.began = facts.began || attempt_.first_byte_at != TimePoint{};
  const StallVerdict verdict = attempt_.stall.silent(context.stall, check, facts.bytes);
  if (verdict.blamed) context.nodes.on_event(node, HealthEvent::kSilent, now);
  if (verdict.probe_now) context.nodes.probe(node, now);
  if (!verdict.hangs) return false;
  attempt_.moved_on = move_on(context, {FailureKind::kSilent, 0}, progress, now);
  return attempt_.moved_on || verdict.hopeless;
}

Action RequestFlow::failed(const FlowContext& context, const Failure& failure, bool blame,
                           const AnswerProgress& progress, TimePoint now) {
  TROUPE_CHECK(attempts_ > 0, "nothing was sent that could answer or fail");
  hand_back(context, std::nullopt, now);
  learn(context, failure, blame, now);
  const bool was_full = failure.kind == FailureKind::kStatus && failure.http_status == 429;
  if (attempt_.moved_on || move_on(context, failure, progress, now)) {
    if (failure.answered_whole || (was_full && !has_whole_)) fallback_ = attempt_.candidate;
    has_whole_ |= failure.answered_whole;
    return send_next(context, progress.started, now);
  }
  if (progress.started) return Action::kEndBroken;
  return earlier_answer(context, failure).value_or(Action::kForward);
}

// Several nodes could not answer: what tells the client most. nullopt: the failure itself.
std::optional<Action> RequestFlow::earlier_answer(const FlowContext& context, const Failure& failure) {
  if (failure.answered_whole) return Action::kForwardWhole;
  if (has_whole_) {
    attempt_.candidate = *fallback_;
    return Action::kForwardWhole;
  }
  const bool too_long = refused_for_length(failure), alone = node_specific_rejection(failure);
  const bool tells_nothing = failure.kind == FailureKind::kConnect || alone;
  bool full_is_truer = fallback_ && tells_nothing;
  if (fallback_ && too_long) {  // it may have the room
    const int64_t room = context.router.view().node(fallback_->node).context_of(model_);
    full_is_truer = room == 0 || room > key_->longer_than;
  }
  if (full_is_truer) {
    attempt_.candidate = *fallback_;
    return Action::kForwardFull;
  }
  if (longest_.attempt == 0 || longest_.attempt == attempts_ || !(too_long || alone)) return std::nullopt;
  attempt_.candidate = longest_.candidate;
  return Action::kForwardLongest;
}

void RequestFlow::answered(const FlowContext& context, const std::optional<AnswerCounts>& counts, int status,
                           TimePoint now) {
  TROUPE_CHECK(attempts_ > 0, "nothing was sent that could answer or fail");
  hand_back(context, counts, now);
  context.nodes.on_event(attempt_.candidate.node,
                         status < 400 ? HealthEvent::kAnswered : HealthEvent::kRefused, now);
}

void RequestFlow::broken(const FlowContext& context, const Failure& failure, bool blame, TimePoint now) {
  TROUPE_CHECK(attempts_ > 0, "nothing was sent that could answer or fail");
  hand_back(context, std::nullopt, now);
  learn(context, failure, blame, now);
}

void RequestFlow::abandoned(const FlowContext& context, TimePoint now) {
  hand_back(context, std::nullopt, now);
}

// Another node has taken what they refused: the fault was theirs.
void RequestFlow::blame_refusers(const FlowContext& context, TimePoint now) {
  for (size_t i = 0; refused_ != 0 && i < tried_.size(); ++i)
    if ((refused_ >> i & 1) != 0) context.nodes.on_event(tried_[i], HealthEvent::kErrored, now);
  refused_ = 0;
}

void RequestFlow::learn(const FlowContext& context, const Failure& failure, bool blame, TimePoint now) {
  const NodeIndex node = attempt_.candidate.node;
  if (const auto event = health_event_of(failure, blame)) context.nodes.on_event(node, *event, now);
  // A key of its own, or a path that few know, may be the client's fault.
  const bool may_be_asked_wrong = (failure.client_key && refuses_key(failure.http_status)) ||
                                  (failure.any_path && lacks_path(failure.http_status));
  if (node_specific_rejection(failure) && !may_be_asked_wrong && tried_.size() <= 64)
    refused_ |= uint64_t{1} << (tried_.size() - 1);
  if (refused_for_length(failure)) learn_length(context, failure);
  if (failure.retry_after > Duration::zero())
    context.nodes.backoff_until(node, now + std::min(failure.retry_after, kBackoffMax));
}

void RequestFlow::learn_length(const FlowContext& context, const Failure& failure) {
  const int64_t known = context.router.view().node(attempt_.candidate.node).context_of(model_);
  const int64_t length = std::max(known, failure.context_max);
  if (known > 0) length_refusals_ += 1;
  if (longest_.attempt == 0 || length >= longest_.context) longest_ = {attempts_, length, attempt_.candidate};
  key_->longer_than = std::max(key_->longer_than, length);
}

bool RequestFlow::move_on(const FlowContext& context, const Failure& failure, const AnswerProgress& progress,
                          TimePoint now) {
  const TimePoint begun = attempt_.first_byte_at;
  const FailoverState state{.key = *key_,
                            .model = model_,
                            .decision = decision_,
                            .place = place_,
                            .tried = tried_,
                            .length_refusals = length_refusals_,
                            .started = progress.started,
                            .resumable = progress.resumable,
                            .prompt_tokens = prompt_tokens_,
                            .tokens_delivered = progress.tokens,
                            .streamed = begun == TimePoint{} ? Duration::zero() : now - begun,
                            .remaining = progress.remaining,
                            .resend = progress.resend};
  const auto can_resume = [&context](NodeIndex node) {
    return context.nodes.node_status(node).is_troupe_worker;
  };
  auto next = next_attempt(state, failure, can_resume, context.router, context.budget, now);
  if (!next) return false;
  decision_ = std::move(next->decision);
  place_ = next->place;
  if (next->afresh) {
    tried_.erase(tried_.begin(), tried_.end() - 1);
    length_refusals_ = 0;
  }
  if (progress.started) key_->prompt_tokens = next->prompt_tokens;
  return true;
}

}  // namespace troupe::route

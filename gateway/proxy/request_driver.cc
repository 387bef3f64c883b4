#include "gateway/proxy/request_driver.h"

#include <algorithm>
#include <functional>

#include "gateway/proxy/hops.h"
#include "gateway/proxy/passed_request.h"
#include "gateway/proxy/request_scopes.h"
#include "gateway/proxy/request_tracing.h"
#include "gateway/proxy/token_forms.h"
#include "gateway/upstream/forward_failures.h"
#include "gateway/upstream/headers.h"

namespace troupe {

using route::Candidate;
using route::FailureKind;

Task<void> RequestDriver::run(Exchange& exchange, RequestContext& context) {
  const CancelCharge cancel_charge(gate_, exchange, context);
  const BookingGuard booking(core_, context);
  const DoneGuard done{*this, context};
  context.phases.enter(Phase::kSend, core_.clock.now());
  route::Action action = context.flow.admitted(core_.flow_context(), context.waited, core_.clock.now());
  if (action == route::Action::kRefuse) {
    const ApiError error = replies_.no_candidate(context.routed.model, context.routed.asked_model);
    co_await replies_.refuse(exchange, context, error);
    co_return;
  }
  // A client that disconnects from here on is charged at least this.
  AccessGate::charge_prompt(exchange.request(), context);
  // The last whole answer to a request for a stream, or else the last 429; the refusal of
  // RequestFlow::longest_refusal().
  ForwardResult fallback, longest;
  while (true) {
    ForwardResult result = co_await attempt(exchange, context);
    const bool complete = result.end == ForwardResult::End::kAnswered;
    if (exchange.cancel_reason() != CancelReason::kNone && !complete) co_return;  // nobody waits for it
    gate_.charge(exchange, context, result);
    if (context.entry != nullptr) record_answer(context, result);
    if (result.end != ForwardResult::End::kFailed) {
      answered(context, result);
      co_return;
    }
    const int tried = context.flow.attempts();
    action = failed(exchange, context, result);
    if (action != route::Action::kSend) {
      if (action == route::Action::kForwardFull) result = std::move(fallback);
      if (action == route::Action::kForwardWhole && !result.failure.answered_whole)
        result = std::move(fallback);
      if (action == route::Action::kForwardLongest) result = std::move(longest);
      if (action == route::Action::kEndBroken) {
        co_await replies_.end_broken(exchange, context, result);
      } else if (action == route::Action::kForwardWhole && !exchange.promised_events()) {
        co_await pass_on_whole(exchange, context, result);
      } else {
        if (result.failure.answered_whole) fail_to_stream(result);
        co_await replies_.give_up(exchange, context, result);
      }
      co_return;
    }
    context.phases.enter(Phase::kSend, core_.clock.now());
    if (context.flow.longest_refusal() == tried) {
      longest = std::move(result);
    } else if (result.failure.answered_whole ||
               (result.held && result.status == 429 && !fallback.failure.answered_whole)) {
      fallback = std::move(result);
    }
  }
}

// No worker has streamed its answer, and one has answered well all the same.
Task<void> RequestDriver::pass_on_whole(Exchange& exchange, RequestContext& context, ForwardResult& result) {
  result.end = ForwardResult::End::kAnswered;
  context.record.began(core_.clock.now());
  HeaderList headers = headers_for_client(result.held_headers, replies_.own_headers(context));
  context.phases.pause(core_.clock.now());
  co_await exchange.respond(result.status, headers, std::move(result.held_body));
  gate_.charge(exchange, context, result);
  if (context.entry != nullptr) record_answer(context, result);
  answered(context, result);
}

// The client closed between the stream's last event and the end of the connection's answer, which it has no
// need of.
RequestDriver::DoneGuard::~DoneGuard() {
  if (!context.worker.progress.client_done || context.answered()) return;
  ForwardResult result;
  result.end = ForwardResult::End::kAnswered;
  result.status = 200;
  if (context.tap) result.counts = context.tap->counts();
  if (!result.counts) result.counts = context.worker.passed.counts();
  record_attempt_end(driver.core_, context, result);
  if (context.entry != nullptr) driver.record_answer(context, result);
  driver.answered(context, result);
}

// Sends the flow's attempt and passes the answer on.
Task<ForwardResult> RequestDriver::attempt(Exchange& exchange, RequestContext& context) {
  const Candidate& candidate = context.flow.attempt().candidate;
  context.worker = {};
  core_.instruments.decided(candidate.branch);
  record_attempt(core_, exchange, context);
  // One pointer for each function: more would be memory each time.
  auto judge = [this, &exchange, &context] { return gives_up(exchange, context); };
  auto begin = [this, &context] { first_byte(context); };
  ForwardInput input = forward_input(exchange, context);
  input.request.give_up = std::ref(judge);
  input.on_first_byte = std::ref(begin);
  ForwardResult result = co_await forward_once(exchange, core_.fleet.client(candidate.node), input);
  context.phases.enter(Phase::kSettle, core_.clock.now());
  record_attempt_end(core_, context, result);
  co_return result;
}

// The client has an answer, whole or broken off.
void RequestDriver::answered(RequestContext& context, const ForwardResult& result) {
  const TimePoint now = core_.clock.now();
  const bool broken = result.end == ForwardResult::End::kBroken;
  if (broken) {
    context.flow.broken(core_.flow_context(), result.failure, !result.client_stalled, now);
    log_failure(context, result);
    core_.instruments.broken_streams.Increment();
  } else {
    context.flow.answered(core_.flow_context(), result.counts, result.status, now);
    context.record.counts = result.counts;
    if (context.routed.persona != nullptr)
      core_.instruments.persona_answered(context.routed.persona->name, result.counts);
    if (result.status >= 400) context.record.why = failure_name(FailureKind::kStatus);
    if (result.counts && result.counts->has_cached)
      core_.instruments.cached_tokens(context.flow.attempt().sent.expect_cached,
                                      result.counts->cached_tokens);
  }
  replies_.count_answer(context, result.status, broken ? RequestOutcome::kBroken : RequestOutcome::kAnswered);
}

route::Action RequestDriver::failed(const Exchange& exchange, RequestContext& context,
                                    const ForwardResult& result) {
  log_failure(context, result);
  const TimePoint now = core_.clock.now();
  const uint64_t refused = core_.retry_budget.refused();
  const route::Action action = context.flow.failed(core_.flow_context(), result.failure,
                                                   !result.client_stalled, progress(exchange, context), now);
  if (core_.retry_budget.refused() != refused) core_.instruments.retries_refused.Increment();
  if (action != route::Action::kSend) return action;
  core_.instruments.retried(result.failure.kind);
  // A worker that failed before it went on has added to the pause.
  if (exchange.head_sent() && result.sent_at != TimePoint{}) context.paused_at = result.sent_at;
  return action;
}

// Workers of ours are asked for what another one needs to continue; one that continues gets it.
void RequestDriver::ask_ids(const Exchange& exchange, RequestContext& context, ForwardInput& input) const {
  context.worker.is_troupe_worker = core_.fleet.is_troupe_worker(context.flow.attempt().candidate.node);
  context.worker.asks_ids =
      context.routed.stream && context.routed.generates && context.worker.is_troupe_worker;
  if (!context.worker.asks_ids) return;
  if (!context.tap) context.tap.emplace(context.routed.choices == 1);
  context.tap->next_worker(exchange.head_sent());
  if (exchange.head_sent()) {
    context.worker.resume_body = context.tap->resume_body(context.body_for_worker(exchange.request()));
    input.request.body = context.worker.resume_body;
  }
  input.request.headers.emplace_back("x-troupe-ids", "1");
  input.tap = &*context.tap;
}

// Servers of other kinds have forms of their own for tokens.
void RequestDriver::use_token_forms(const HttpRequest& request, RequestContext& context,
                                    ForwardInput& input) const {
  const std::string& model = context.routed.model;
  const auto forms = std::make_shared<TokenForms>(request.path, input.request.body);
  const int64_t context_max =
      core_.router.view().node(context.flow.attempt().candidate.node).context_of(model);
  context.worker.named_body = forms->request_body();
  input.request.body = context.worker.named_body;
  input.translate = [forms, context_max](std::string_view body) { return forms->answer(body, context_max); };
  const ApiError unknown = TokenForms::unknown_form(request.path, model);
  input.missing = unknown.to_json();
  input.missing_status = unknown.http_status;
  input.any_path = true;
}

// A worker may have its own name for the model.
void RequestDriver::name_model(const HttpRequest& request, RequestContext& context,
                               ForwardInput& input) const {
  const Upstream& upstream = core_.fleet.upstream(context.flow.attempt().candidate.node);
  const std::string& own = upstream.name_of(context.routed.model);
  // The body says this name, and the client is to read it.
  const std::string& asked =
      context.routed.asked_model.empty() ? context.routed.model : context.routed.asked_model;
  if (own == asked) return;
  input.rename = asked;
  context.worker.named_body = with_model(input.request.body, request.header("content-type"), own);
  input.request.body = context.worker.named_body;
}

// The answer's first byte, or the first of a worker that continues it.
void RequestDriver::first_byte(RequestContext& context) {
  const TimePoint now = core_.clock.now();
  context.flow.first_byte(core_.flow_context(), context.worker.asks_ids && context.tap->heartbeats(), now);
  context.record.began(now);
  if (context.paused_at != TimePoint{}) {
    const Duration pause = now - std::exchange(context.paused_at, TimePoint{});
    core_.instruments.resumed.Increment();
    context.record.resumes += 1;
    core_.instruments.resume_pause.Observe(std::chrono::duration<double>(pause).count());
    core_.log.info("stream_resumed",
                   {{"request", context.request_id},
                    {"worker", core_.fleet.id(context.flow.attempt().candidate.node)},
                    {"attempt", context.flow.attempts()},
                    {"tokens", context.tap->ids_delivered()},
                    {"pause_ms", std::chrono::duration<double, std::milli>(pause).count()}});
    return;
  }
  if (context.entry != nullptr) context.entry->first_byte();
  if (context.routed.generates)
    core_.instruments.ttfb.Observe(std::chrono::duration<double>(now - context.started).count());
}

// The request may be sent again if this attempt's worker fails before the client has anything.
bool RequestDriver::may_resend(const RequestContext& context) const {
  if (context.resend == Resend::kAsConfigured)
    return context.worker.is_troupe_worker || core_.options.resend_to_foreign;
  return context.resend == Resend::kAlways;
}

route::AnswerProgress RequestDriver::progress(const Exchange& exchange, const RequestContext& context) const {
  route::AnswerProgress progress;
  progress.started = exchange.head_sent();
  if (context.tap) {
    progress.resumable = context.tap->resumable();
    progress.tokens = static_cast<int64_t>(context.tap->ids_delivered());
  }
  progress.remaining = context.deadline.remaining(core_.clock.now());
  progress.resend = may_resend(context);
  return progress;
}

// The worker has sent nothing for silence_timeout() (see forward_input()).
bool RequestDriver::gives_up(const Exchange& exchange, RequestContext& context) {
  route::RequestFlow::SilentFacts facts;
  facts.heartbeats_asked = context.worker.asks_ids;
  facts.heartbeats_seen = context.worker.asks_ids && context.tap->heartbeats();
  facts.bytes = context.worker.progress.bytes;
  facts.began = context.worker.progress.began;
  const uint64_t refused = core_.retry_budget.refused();
  const bool given_up =
      context.flow.silent(core_.flow_context(), facts, progress(exchange, context), core_.clock.now());
  if (core_.retry_budget.refused() != refused) core_.instruments.retries_refused.Increment();
  return given_up;
}

HeaderList RequestDriver::worker_headers(const HttpRequest& request, const RequestContext& context) const {
  HeaderList headers = headers_for_worker(request);
  // Workers do not get the gateway's keys.
  if (gate_.keys_required())
    std::erase_if(headers, [](const auto& header) { return header.first == "authorization"; });
  headers.emplace_back("x-request-id", context.request_id);
  if (context.record.traced) record_headers(context.record, headers);
  const route::PrefixKey& key = context.routed.key;
  const Candidate* const chosen = context.flow.chosen();
  const bool planned = chosen != nullptr && core_.router.at_home(key, context.routed.model, chosen->node);
  append_hints(key, planned, headers);
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(context.deadline.remaining(core_.clock.now())).count();
  headers.emplace_back("x-troupe-timeout-ms", std::to_string(left));
  const auto hops = hops_of(request);  // (that it is no loop is known)
  headers.emplace_back(kHopsHeader, std::to_string(hops.ok() ? hops.value() + 1 : kHopsMax));
  // (One that may be ours, or a gateway, is to know.)
  if (chosen != nullptr && core_.fleet.upstream(chosen->node).kind == UpstreamKind::kOpenai)
    std::erase_if(headers, [](const auto& header) { return header.first.starts_with("x-troupe-"); });
  return headers;
}

ForwardInput RequestDriver::forward_input(const Exchange& exchange, RequestContext& context) const {
  const HttpRequest& request = exchange.request();
  ForwardInput input;
  input.request.method = "POST";
  input.request.target = request.target;
  input.request.body = context.body_for_worker(request);
  input.request.headers = worker_headers(request, context);
  input.deadline = context.deadline;
  input.client_stall = core_.options.client_stall;
  input.answer_headers = replies_.own_headers(context);
  input.phases = &context.phases;
  input.passed = &context.worker.passed;
  ask_ids(exchange, context, input);
  input.any_path = context.routed.passes;
  if (!context.worker.is_troupe_worker && !context.routed.takes_room())
    use_token_forms(request, context, input);
  name_model(request, context, input);
  input.foreign = !context.worker.is_troupe_worker;
  input.form = context.routed.generates ? AnswerForm::kCompletion : form_of_passed(request.path);
  if (input.form == AnswerForm::kMessages || input.form == AnswerForm::kResponses)
    context.worker.passed.read_every_usage();
  input.streams = context.routed.stream;
  input.asks_whole = context.routed.whole;
  input.choices = context.routed.choices;
  input.progress = &context.worker.progress;
  input.request.silence_timeout = route::silence_timeout(core_.options, context.worker.is_troupe_worker);
  return input;
}

void RequestDriver::record_answer(const RequestContext& context, const ForwardResult& result) const {
  TrafficOutcome& outcome = context.entry->outcome;
  const route::RequestFlow::Attempt& attempt = context.flow.attempt();
  outcome.node = core_.fleet.id(attempt.candidate.node);
  outcome.branch = route::branch_name(attempt.candidate.branch);
  outcome.attempts = static_cast<size_t>(context.flow.attempts());
  outcome.expected = attempt.sent.expect_cached;
  outcome.counts = result.counts;
  outcome.status = result.end == ForwardResult::End::kBroken ? kBrokenStatus : result.status;
}

void RequestDriver::log_failure(const RequestContext& context, const ForwardResult& result) const {
  core_.log.debug("try_failed", {{"request", context.request_id},
                                 {"worker", core_.fleet.id(context.flow.attempt().candidate.node)},
                                 {"attempt", context.flow.attempts()},
                                 {"failure", failure_name(result.failure.kind)},
                                 {"status", result.status},
                                 {"error", to_std(result.error.message())}});
}

}  // namespace troupe

#include "gateway/telemetry/instruments.h"

namespace troupe {
namespace {
const std::vector<double> kOwnCoreBuckets{5e-6,   1e-5,   2e-5, 4e-5, 6e-5, 1e-4,
                                          1.5e-4, 2.5e-4, 5e-4, 1e-3, 5e-3, 2e-2};
const std::vector<double> kPhaseBuckets{5e-7, 1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2.5e-4, 1e-3, 1e-2};

Counter& resumes(Metrics& metrics, std::string result) {
  return metrics.counter(
      "troupe_gateway_resumes_total",
      "Started streams of failed workers: gone on with by another, or ended with an error.",
      {{"result", std::move(result)}});
}
}  // namespace

std::string_view failure_name(route::FailureKind kind) {
  switch (kind) {
    case route::FailureKind::kConnect:
      return "connect";
    case route::FailureKind::kTransport:
      return "transport";
    case route::FailureKind::kStatus:
      return "status";
    case route::FailureKind::kBody:
      return "body";
    case route::FailureKind::kSilent:
      return "silent";
    case route::FailureKind::kDeadline:
      return "deadline";
    case route::FailureKind::kLocal:
      return "local";
  }
  return "transport";
}

Instruments::Instruments(Metrics& metrics)
    : received(metrics.counter("troupe_gateway_requests_received_total",
                               "Requests taken in. Each is in flight, answered, or cancelled.")),
      in_flight(metrics.gauge("troupe_gateway_requests_in_flight", "Requests being answered now.")),
      ttfb(metrics.histogram("troupe_gateway_time_to_first_byte_seconds",
                             "From a request's arrival to the first byte of its answer.", kTtftBuckets)),
      client_gone(metrics.counter("troupe_gateway_client_gone_total", "Requests whose client went away.")),
      broken_streams(metrics.counter("troupe_gateway_broken_answers_total",
                                     "Answers a worker broke off after their first byte.")),
      resumed(resumes(metrics, "resumed")),
      not_resumed(resumes(metrics, "failed")),
      resume_pause(metrics.histogram(
          "troupe_gateway_resume_pause_seconds",
          "From the last event of the worker that failed to the first of the one that went on.",
          kTtftBuckets)),
      retries_refused(
          metrics.counter("troupe_gateway_retries_refused_total",
                          "Retries and resumes not made because the retry budget was used up. (Of a silent "
                          "worker each time it is thought of.)")),
      metrics_(metrics),
      own_core_(metrics.histogram(
          "troupe_gateway_own_seconds",
          "Time the gateway itself computes on a chat or completion, from its arrival to its end: all its "
          "phases. (Not what the kernel does to send and receive.)",
          kOwnCoreBuckets)),
      cached_{metrics.counter("troupe_gateway_cached_tokens_expected_total",
                              "Predicted cached tokens of answers whose usage was seen."),
              metrics.counter("troupe_gateway_cached_tokens_actual_total",
                              "Cached tokens by the workers' own count, of the same answers.")} {
  for (size_t i = 0; i < took_.size(); ++i) {
    took_[i] = &metrics.histogram(
        "troupe_gateway_request_seconds",
        "Chats and completions from their arrival to the last byte of the answer, or to their end without "
        "one, by how they end.",
        kTtftBuckets, {{"end", std::string(outcome_name(static_cast<RequestOutcome>(i)))}});
  }
  for (size_t i = 0; i < kPhaseCount; ++i) {
    by_phase_[i] = &metrics.histogram(
        "troupe_gateway_phase_seconds",
        "The same by phase, of requests that came to it: admit (place, key, limits), parse (and prefix key), "
        "choose (set, node, place at the workers), send (what the worker gets), relay (its answer, all "
        "events), settle (what it taught, charges, own answers).",
        kPhaseBuckets, {{"phase", std::string(phase_name(static_cast<Phase>(i)))}});
  }
  for (size_t i = 0; i < route::kBranchCount; ++i) {
    const auto branch = static_cast<route::Branch>(i);
    by_branch_[i] = &metrics.counter("troupe_gateway_decisions_total", "Requests sent, by why that node.",
                                     {{"branch", std::string(route::branch_name(branch))}});
  }
  for (const auto kind :
       {route::FailureKind::kConnect, route::FailureKind::kTransport, route::FailureKind::kStatus,
        route::FailureKind::kBody, route::FailureKind::kSilent}) {
    by_failure_[kind] =
        &metrics.counter("troupe_gateway_retries_total", "Requests sent again, by what failed.",
                         {{"failure", std::string(failure_name(kind))}});
  }
}

void Instruments::request_done(int http_status) {
  // A worker may answer with any number; only HTTP's status codes become labels.
  const int code = http_status >= 100 && http_status < 600 ? http_status : 0;
  Counter*& counter = by_status_[code];
  if (counter == nullptr) {
    counter = &metrics_.counter("troupe_gateway_requests_total", "Requests answered, by HTTP status.",
                                {{"code", std::to_string(code)}});
  }
  counter->Increment();
}

void Instruments::request_cancelled(CancelReason reason) {
  Counter*& counter = by_cancel_[static_cast<size_t>(reason)];
  if (counter == nullptr) {
    counter = &metrics_.counter("troupe_gateway_requests_cancelled_total",
                                "Requests that ended without an answer, by why.",
                                {{"reason", std::string(cancel_reason_name(reason))}});
  }
  counter->Increment();
}

void Instruments::request_took(Duration duration, RequestOutcome end) {
  took_[static_cast<size_t>(end)]->Observe(std::chrono::duration<double>(duration).count());
}

void Instruments::request_computed(const PhaseTimes& phases) {
  const auto seconds = [](Duration d) { return std::chrono::duration<double>(d).count(); };
  for (size_t i = 0; i < kPhaseCount; ++i) {
    const Duration took = phases.of(static_cast<Phase>(i));
    if (took > Duration::zero()) by_phase_[i]->Observe(seconds(took));
  }
  own_core_.Observe(seconds(phases.total()));
}

void Instruments::malformed(int http_status) {
  Counter*& counter = malformed_[http_status];
  if (counter == nullptr) {
    counter = &metrics_.counter("troupe_gateway_malformed_total",
                                "What came on the main port and was refused before it was a request, by HTTP "
                                "status: heads and bodies that are wrong, too large or too slow.",
                                {{"code", std::to_string(http_status)}});
  }
  counter->Increment();
}

void Instruments::decided(route::Branch branch) {
  by_branch_[static_cast<size_t>(branch)]->Increment();
}

void Instruments::retried(route::FailureKind failure) {
  if (const auto it = by_failure_.find(failure); it != by_failure_.end()) it->second->Increment();
}

void Instruments::persona_answered(const std::string& name,
                                   const std::optional<route::AnswerCounts>& counts) {
  const bool known = by_persona_.contains(name);
  const std::string label = known || by_persona_.size() < kPersonaNamesMax ? name : "other";
  PersonaCounters& own = by_persona_[label];
  if (own.requests == nullptr) {
    const auto counter = [this, &label](const char* metric, const char* help) {
      return &metrics_.counter(metric, help, {{"persona", label}});
    };
    own.requests = counter("troupe_gateway_persona_requests_total",
                           "Answered requests that named a persona, by it; beyond 100 names: other.");
    own.prompt = counter("troupe_gateway_persona_prompt_tokens_total",
                         "Prompt tokens of these, by the workers' count.");
    own.cached = counter("troupe_gateway_persona_cached_tokens_total", "Of these, tokens that were cached.");
  }
  own.requests->Increment();
  if (!counts || !counts->has_cached) return;
  own.prompt->Increment(static_cast<double>(counts->prompt_tokens));
  own.cached->Increment(static_cast<double>(counts->cached_tokens));
}

void Instruments::cached_tokens(int64_t expected, int64_t actual) {
  cached_.expected.Increment(static_cast<double>(expected));
  cached_.actual.Increment(static_cast<double>(actual));
}

}  // namespace troupe

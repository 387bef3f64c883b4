#include "gateway/telemetry/request_observers.h"

#include <chrono>

namespace troupe {

namespace {

int64_t unix_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

int64_t unix_ms() {
  return unix_ns() / 1'000'000;
}

}  // namespace

std::unique_ptr<RequestTrail> Trails::begin(const Exchange& exchange, TimePoint started) {
  if (access_log_ == nullptr && exporter_ == nullptr) return nullptr;
  auto trail = std::make_unique<RequestTrail>();
  trail->client = exchange.remote_address();
  trail->started = started;
  trace(exchange.request(), *trail);
  return trail;
}

void Trails::trace(const HttpRequest& request, RequestTrail& trail) {
  trail.trace = trace_context_of(request.headers);
  if (exporter_ == nullptr) return;
  trail.traced = true;
  trail.unix_ns = unix_ns();
  if (!trail.trace) {
    // A balancer asks every second whether this gateway lives: that is nobody's trace.
    trail.trace = ids_.new_trace(request.path == "/health" ? 0 : sample_ratio_);
    return;
  }
  trail.parent_span = trail.trace->span;
  trail.trace->span = ids_.next();
}

void Trails::end(RequestTrail& trail, const RequestFacts& facts) {
  if (access_log_ != nullptr) access_log_->add(access_line(trail, facts, unix_ms()));
  if (exporter_ == nullptr || !trail.trace->sampled()) return;
  trail.spans = {ids_.next(), ids_.next(), ids_.next()};
  exporter_->add(spans_of(trail, facts));
}

void Trails::malformed(const HttpRefusal& refusal) const {
  if (access_log_ != nullptr) access_log_->add(malformed_line(refusal, unix_ms()));
}

}  // namespace troupe

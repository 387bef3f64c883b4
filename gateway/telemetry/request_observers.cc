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

RequestRecord RequestObservers::begin(const Exchange& exchange, TimePoint started) {
  RequestRecord request_record;
  request_record.started = started;
  if (!any()) return request_record;
  request_record.client = exchange.remote_address();
  trace(exchange.request(), request_record);
  return request_record;
}

void RequestObservers::trace(const HttpRequest& request, RequestRecord& request_record) {
  request_record.trace = trace_context_of(request.headers);
  if (exporter_ == nullptr) return;
  request_record.traced = true;
  request_record.unix_ns = unix_ns();
  if (!request_record.trace) {
    // A balancer's health check every second is not worth a trace.
    request_record.trace = ids_.new_trace(request.path == "/health" ? 0 : sample_ratio_);
    return;
  }
  request_record.parent_span = request_record.trace->span;
  request_record.trace->span = ids_.next();
}

void RequestObservers::end(RequestRecord& request_record, const RequestFacts& facts) {
  if (access_log_ != nullptr) access_log_->add(access_line(request_record, facts, unix_ms()));
  if (exporter_ == nullptr || !request_record.trace->sampled()) return;
  request_record.spans = {ids_.next(), ids_.next(), ids_.next()};
  exporter_->add(spans_of(request_record, facts));
}

void RequestObservers::malformed(const HttpRefusal& refusal) const {
  if (access_log_ != nullptr) access_log_->add(malformed_line(refusal, unix_ms()));
}

}  // namespace troupe

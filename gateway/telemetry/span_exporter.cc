#include "gateway/telemetry/span_exporter.h"

#include <algorithm>
#include <boost/asio/redirect_error.hpp>
#include <chrono>

#include "absl/strings/str_cat.h"

namespace troupe {

namespace {

constexpr size_t kAnswerBytesMax = 64u << 10;
constexpr auto kFlushTick = std::chrono::milliseconds(5);

Counter& dropped(Metrics& metrics, std::string reason) {
  return metrics.counter(
      "troupe_gateway_spans_dropped_total",
      "Spans that the collector does not have: no room in the queue, none taken in several "
      "tries, or refused.",
      {{"reason", std::move(reason)}});
}

int64_t unix_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

HttpClientOptions client_options(const SpanExporterOptions& exporter) {
  HttpClientOptions options;
  options.idle_connections_max = 1;
  options.tls = exporter.tls;
  return options;
}

}  // namespace

SpanExporter::SpanExporter(const SpanExporterOptions& options, const Parts& parts)
    : options_(options),
      executor_(parts.executor),
      clock_(parts.clock),
      log_(parts.log),
      client_(parts.executor, options.collector, client_options(options)),
      queue_(options.queue_bytes, options.batch_bytes),
      begin_(batch_begin(options.service_name, absl::StrCat(span_id(ids_.next()), span_id(ids_.next())))),
      timer_(parts.executor),
      exported_(
          parts.metrics.counter("troupe_gateway_spans_exported_total", "Spans that the collector has.")),
      dropped_full_(dropped(parts.metrics, "queue_full")),
      dropped_undelivered_(dropped(parts.metrics, "undelivered")),
      dropped_refused_(dropped(parts.metrics, "refused")),
      queue_bytes_(parts.metrics.gauge("troupe_gateway_spans_queue_bytes",
                                       "Spans that wait for the collector, in bytes of JSON.")) {}

void SpanExporter::add(SpanText spans) {
  const auto count = static_cast<double>(spans.count);
  if (flushing_ || !queue_.add(std::move(spans))) {
    dropped_full_.Increment(count);
    return;
  }
  show();
  if (idle_ && queue_.has_full_batch()) timer_.cancel();
}

Task<void> SpanExporter::run() {
  while (true) {
    co_await wait_for_batch();
    co_await deliver();
  }
}

// Waits until a batch is full, or the interval is over and there is any span.
Task<void> SpanExporter::wait_for_batch() {
  while (true) {
    if (queue_.has_full_batch() || (flushing_ && !queue_.empty())) co_return;
    idle_ = true;
    co_await sleep(options_.interval);
    idle_ = false;
    if (!queue_.empty()) co_return;
  }
}

// Returns early when cancelled for new work.
Task<void> SpanExporter::sleep(Duration duration) {
  timer_.expires_after(duration);
  boost::system::error_code woken;
  co_await timer_.async_wait(asio::redirect_error(use_task, woken));
}

// Sends the oldest batch until it is taken, refused, or has been tried often enough.
Task<void> SpanExporter::deliver() {
  const SpanText* const batch = queue_.front();
  for (size_t failures = 1; batch != nullptr; ++failures) {
    const Outcome outcome = co_await send(*batch);
    log_change(outcome);
    const bool last = failures >= options_.tries_max || flushing_;
    if (outcome.verdict != ExportVerdict::kAgain || last) {
      done(*batch, outcome);
      co_return;
    }
    const TimePoint until = clock_.now() + pause(outcome, failures);
    while (clock_.now() < until && !flushing_) co_await sleep(until - clock_.now());
  }
}

Duration SpanExporter::pause(const Outcome& outcome, size_t failures) {
  if (outcome.retry_after) return std::min(*outcome.retry_after, options_.retry_after_max);
  return options_.backoff.wait(failures, ids_.next());
}

void SpanExporter::done(const SpanText& batch, const Outcome& outcome) {
  const size_t rejected = std::min(outcome.rejected, batch.count);
  if (outcome.verdict == ExportVerdict::kTaken) {
    exported_.Increment(static_cast<double>(batch.count - rejected));
    dropped_refused_.Increment(static_cast<double>(rejected));
  } else {
    Counter& counter = outcome.verdict == ExportVerdict::kRefused ? dropped_refused_ : dropped_undelivered_;
    counter.Increment(static_cast<double>(batch.count));
  }
  queue_.drop_front();
  // A flush at the end does not wait for an absent collector.
  const bool hopeless = flushing_ && outcome.verdict == ExportVerdict::kAgain;
  while (hopeless && queue_.front() != nullptr) {
    dropped_undelivered_.Increment(static_cast<double>(queue_.front()->count));
    queue_.drop_front();
  }
  show();
}

Task<SpanExporter::Outcome> SpanExporter::send(const SpanText& batch) {
  std::string body;
  body.reserve(begin_.size() + batch.json.size() + kBatchEnd.size());
  body += begin_;
  body += batch.json;
  body += kBatchEnd;
  ClientRequest request;
  request.method = "POST";
  request.target = options_.target;
  request.headers.emplace_back("content-type", "application/json");
  request.headers.emplace_back("user-agent", "troupe-gateway/0.1.0");
  request.body = body;
  const Deadline deadline{std::min(clock_.now() + options_.timeout, flush_until_)};
  Outcome outcome;
  auto sent = co_await client_.send(request, deadline);
  if (!sent.ok()) {
    outcome.why = to_std(sent.status().message());
    co_return outcome;
  }
  ClientAnswer& answer = **sent;
  outcome.verdict = judge_export(answer.status());
  if (outcome.verdict != ExportVerdict::kTaken) outcome.why = absl::StrCat("it answered ", answer.status());
  outcome.retry_after = retry_after(answer.header("retry-after"), unix_seconds());
  const auto said = co_await answer.read_all(kAnswerBytesMax);
  if (said.ok() && outcome.verdict == ExportVerdict::kTaken) outcome.rejected = rejected_spans(*said);
  if (outcome.rejected > 0) outcome.why = absl::StrCat("it rejected ", outcome.rejected, " spans of a batch");
  co_return outcome;
}

// Logs a failure once for as long as it lasts.
void SpanExporter::log_change(const Outcome& outcome) {
  const bool fails = !outcome.why.empty();
  if (fails == failing_) return;
  failing_ = fails;
  if (fails) {
    log_.warn("spans_not_taken", {{"collector", options_.collector.authority()}, {"why", outcome.why}});
  } else {
    log_.info("spans_taken_again", {{"collector", options_.collector.authority()}});
  }
}

Task<void> SpanExporter::flush(TimePoint until) {
  flushing_ = true;
  flush_until_ = until;
  timer_.cancel();
  Timer tick(executor_);
  while (!queue_.empty() && clock_.now() < until) {
    tick.expires_after(kFlushTick);
    co_await tick.async_wait(use_task);
  }
  if (queue_.empty()) co_return;
  dropped_undelivered_.Increment(static_cast<double>(queue_.spans()));
  log_.warn("spans_dropped", {{"spans", queue_.spans()}, {"why", "there was no time left to send them"}});
}

}  // namespace troupe

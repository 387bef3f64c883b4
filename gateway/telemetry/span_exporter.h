#pragma once

// Exports spans to a collector by OTLP over HTTP in JSON: in batches, by size and interval, one request at a
// time. No client's request waits for it: spans for a dead or slow collector fill a bounded queue; further
// ones are dropped and counted. On the event loop's thread.

#include <memory>
#include <string>

#include "common/core/log.h"
#include "common/core/metrics.h"
#include "common/net/http_client.h"
#include "common/net/task_group.h"
#include "common/net/timer.h"
#include "gateway/telemetry/span_queue.h"
#include "gateway/telemetry/trace_context.h"

namespace troupe {

struct SpanExporterOptions {
  Endpoint collector;
  std::shared_ptr<const TlsSource> tls;  // for an https collector
  std::string target = "/v1/traces";
  std::string service_name = "troupe-gateway";
  size_t queue_bytes = size_t{16} << 20;
  size_t batch_bytes = size_t{256} << 10;
  Duration interval = std::chrono::seconds(1);  // spans are sent after this, full batch or not
  Duration timeout = std::chrono::seconds(10);  // of one request
  size_t tries_max = 5;                         // for a batch
  ExportBackoff backoff;
  Duration retry_after_max = std::chrono::seconds(60);  // bound of a collector's Retry-After
};

class SpanExporter {
 public:
  struct Parts {
    Executor executor;
    Metrics& metrics;
    const Clock& clock;
    const Logger& log;
  };
  SpanExporter(const SpanExporterOptions& options, const Parts& parts);

  // Starts an endless task in `group`: cancel the group to stop it.
  void start(TaskGroup& group) { group.spawn(run()); }
  // Returns at once.
  void add(SpanText spans);
  // Sends pending spans: returns when they are gone, when the collector fails to take them, or at `until`.
  // The rest is dropped and counted; later spans are not accepted.
  Task<void> flush(TimePoint until);

 private:
  Task<void> run();
  Task<void> wait_for_batch();
  Task<void> deliver();
  struct Outcome {
    ExportVerdict verdict = ExportVerdict::kAgain;
    std::optional<Duration> retry_after;
    std::string why;
    size_t rejected = 0;
  };
  Task<Outcome> send(const SpanText& batch);
  Duration pause(const Outcome& outcome, size_t failures);
  void done(const SpanText& batch, const Outcome& outcome);
  void log_change(const Outcome& outcome);
  Task<void> sleep(Duration duration);
  void show() { queue_bytes_.Set(static_cast<double>(queue_.bytes())); }

  const SpanExporterOptions options_;
  const Executor executor_;
  const Clock& clock_;
  const Logger& log_;
  HttpClient client_;
  SpanQueue queue_;
  TraceIds ids_;
  const std::string begin_;  // of every batch
  Timer timer_;              // run()'s
  TimePoint flush_until_ = TimePoint::max();
  bool flushing_ = false;
  bool idle_ = false;     // run() waits for a batch
  bool failing_ = false;  // logged already
  Counter& exported_;
  Counter& dropped_full_;
  Counter& dropped_undelivered_;
  Counter& dropped_refused_;
  Gauge& queue_bytes_;
};

}  // namespace troupe

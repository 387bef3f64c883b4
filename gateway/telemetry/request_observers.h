#pragma once

// Observers of ended requests: the access log, and the exporter of spans. On the event loop's thread.

#include "common/net/http_server.h"
#include "gateway/telemetry/access_log.h"
#include "gateway/telemetry/request_record.h"
#include "gateway/telemetry/span_exporter.h"

namespace troupe {

class RequestObservers {
 public:
  // Writes requests to the log from now on. REQUIRES: it outlives this.
  void log_to(AccessLog& log) { access_log_ = &log; }
  // Traces requests from now on and exports sampled ones: as the client's header says, else `ratio` of them.
  // REQUIRES: the exporter outlives this.
  void export_to(SpanExporter& exporter) { exporter_ = &exporter; }
  void sample(double ratio) { sample_ratio_ = ratio; }
  uint64_t new_span() { return ids_.next(); }

  bool any() const { return access_log_ != nullptr || exporter_ != nullptr; }
  // Begins a request's record: without observers, only its start.
  RequestRecord begin(const Exchange& exchange, TimePoint started);
  // REQUIRES: any().
  void end(RequestRecord& request_record, const RequestFacts& facts);
  void malformed(const HttpRefusal& refusal) const;

 private:
  void trace(const HttpRequest& request, RequestRecord& request_record);

  AccessLog* access_log_ = nullptr;
  SpanExporter* exporter_ = nullptr;
  double sample_ratio_ = 1;
  TraceIds ids_;
};

}  // namespace troupe

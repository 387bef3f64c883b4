#pragma once

// Who is told of requests that have ended: the access log, and a collector of spans. On the event loop's
// thread.

#include <memory>

#include "common/net/http_server.h"
#include "gateway/telemetry/access_log.h"
#include "gateway/telemetry/request_record.h"
#include "gateway/telemetry/span_exporter.h"

namespace troupe {

class RequestObservers {
 public:
  // From now on requests are written there. It must outlive this.
  void log_to(AccessLog& log) { access_log_ = &log; }
  // From now on requests are part of a trace, and those that are sampled are exported: as the client says,
  // else `ratio` of them. The exporter must outlive this.
  void export_to(SpanExporter& exporter) { exporter_ = &exporter; }
  void sample(double ratio) { sample_ratio_ = ratio; }
  uint64_t new_span() { return ids_.next(); }

  // Null where nobody is to be told.
  std::unique_ptr<RequestRecord> begin(const Exchange& exchange, TimePoint started);
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

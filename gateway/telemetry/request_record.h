#pragma once

// Record of one request's way through the gateway: the source of the access log's line (access_log.h) and of
// its spans (span_json.h). Plain data, filled as the request goes, whether anything observes it or not.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/time.h"
#include "gateway/route/key/token_estimate.h"
#include "gateway/route/policy/candidates.h"
#include "gateway/route/request/retry.h"
#include "gateway/telemetry/trace_context.h"

namespace troupe {

// How the request ended.
enum class RequestOutcome : uint8_t {
  kCancelled,  // without an answer, or during one: the client disconnected, or the gateway stopped
  kAnswered,   // by a worker, or by the gateway itself
  kRefused,    // with the gateway's error, or that of the last worker asked
  kBroken,     // a worker broke the answer off, and no other one continued it
};
std::string_view outcome_name(RequestOutcome end);

// One try at one worker.
struct AttemptRecord {
  std::string node;  // its name
  route::Branch branch = route::Branch::kLeast;
  int64_t expect_cached = 0;
  bool resumes = false;  // continues a started stream
  uint64_t span = 0;     // span id, if the request is traced
  TimePoint sent{};
  TimePoint first_byte{};  // none: TimePoint{}
  TimePoint ended{};       // none: it was cancelled
  int status = 0;          // of the worker's answer; 0: none
  bool failed = false;
  route::FailureKind failure = route::FailureKind::kConnect;  // place of the failure
};

struct RequestRecord {
  std::string client;   // address and port
  TimePoint started{};  // this and the following times are unset for phases not reached
  TimePoint parsed{};   // and keyed
  TimePoint chosen{};   // decided on: until here the gateway itself computes
  TimePoint queued{};   // began to wait for room at the workers
  TimePoint let_in{};
  TimePoint first_byte{};  // of the answer
  std::vector<AttemptRecord> tries;
  size_t resumes = 0;
  std::optional<route::AnswerCounts> counts;
  RequestOutcome end = RequestOutcome::kCancelled;
  int status = 0;  // as answered; 0: not yet
  // A refusal's error code; the failure that broke an answer; "status": the answer is a worker's error.
  std::string why;
  std::string persona;  // "name@version"; empty: the request names none

  // The trace it belongs to, with this request's span. Without an exporter: the client's header.
  std::optional<TraceContext> trace;
  bool traced = false;       // the worker gets this gateway's span
  uint64_t parent_span = 0;  // the client's; 0: the trace begins here
  int64_t unix_ns = 0;       // of `started`, by the wall clock; if traced
  struct {
    uint64_t parse = 0, choose = 0, queue = 0;
  } spans;  // span ids of its phases

  TimePoint left_queue(TimePoint ended) const { return let_in == TimePoint{} ? ended : let_in; }
  // Sets the first byte of the last try. REQUIRES: there is one.
  void began(TimePoint now) {
    tries.back().first_byte = now;
    if (first_byte == TimePoint{}) first_byte = now;
  }
};

}  // namespace troupe

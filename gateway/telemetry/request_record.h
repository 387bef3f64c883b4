#pragma once

// What one request leaves behind on its way through the gateway, for those who look at it from outside: the
// access log's line is made of it (access_log.h), and its spans (span_json.h). Plain data; it is kept only
// where somebody looks, so where nobody does a phase costs a look at a null pointer.

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

// How it ended.
enum class RequestOutcome : uint8_t {
  kCancelled,  // without an answer, or in the middle of one: the client went away, or the gateway stopped
  kAnswered,   // the worker's answer, or one that the gateway knew itself
  kRefused,    // the gateway's error, or that of the last worker asked
  kBroken,     // an answer that a worker broke off, and none went on with
};
std::string_view outcome_name(RequestOutcome end);

// One worker's try.
struct AttemptRecord {
  std::string node;  // its name
  route::Branch branch = route::Branch::kLeast;
  int64_t expect_cached = 0;
  bool resumes = false;  // goes on with a started stream
  uint64_t span = 0;     // its id, where the request is traced
  TimePoint sent{};
  TimePoint first_byte{};  // none: TimePoint{}
  TimePoint ended{};       // likewise: it was cancelled
  int status = 0;          // of the worker's answer; 0: there was none
  bool failed = false;
  route::FailureKind failure = route::FailureKind::kConnect;  // where it failed
};

struct RequestRecord {
  std::string client;   // its address and port
  TimePoint started{};  // and the times of phases, none of those that were not come to
  TimePoint parsed{};   // and keyed
  TimePoint chosen{};   // decided on: until here the gateway itself computes
  TimePoint queued{};   // began to wait for room at the workers
  TimePoint let_in{};
  TimePoint first_byte{};  // of the answer
  std::vector<AttemptRecord> tries;
  size_t resumes = 0;
  std::optional<route::AnswerCounts> counts;
  RequestOutcome end = RequestOutcome::kCancelled;
  int status = 0;   // as answered; 0: not yet
  std::string why;  // of a refusal: the error's code; of a broken answer: what failed

  // Whose trace it belongs to; its span is this request's. Where nothing is exported: what the client said.
  std::optional<TraceContext> trace;
  bool traced = false;       // the worker is told this gateway's span
  uint64_t parent_span = 0;  // the client's; 0: a trace of its own
  int64_t unix_ns = 0;       // of `started`, by the wall clock; of one that is traced
  struct {
    uint64_t parse = 0, choose = 0, queue = 0;
  } spans;  // ids of its parts

  TimePoint left_queue(TimePoint ended) const { return let_in == TimePoint{} ? ended : let_in; }
  // The first byte of the last try. REQUIRES: there is one.
  void began(TimePoint now) {
    tries.back().first_byte = now;
    if (first_byte == TimePoint{}) first_byte = now;
  }
};

}  // namespace troupe

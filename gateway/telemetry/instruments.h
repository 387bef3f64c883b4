#pragma once

// The gateway's metrics. Handles are made once; variable labels are few and bounded (statuses, branches,
// workers).

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "common/core/metrics.h"
#include "common/net/task_group.h"
#include "gateway/route/key/token_estimate.h"
#include "gateway/route/policy/candidates.h"
#include "gateway/route/request/retry.h"
#include "gateway/telemetry/phase_times.h"
#include "gateway/telemetry/request_record.h"

namespace troupe {

class Instruments {
 public:
  explicit Instruments(Metrics& metrics);

  void request_done(int http_status);
  void request_cancelled(CancelReason reason);  // without an answer
  void request_took(Duration duration, RequestOutcome end);
  void request_computed(const PhaseTimes& phases);
  void malformed(int http_status);  // refused before it became a request
  void decided(route::Branch branch);
  void retried(route::FailureKind failure);
  void cached_tokens(int64_t expected, int64_t actual);
  // An answered request of a persona by name. Beyond kPersonaNamesMax names it counts as "other".
  static constexpr size_t kPersonaNamesMax = 100;
  void persona_answered(const std::string& name, const std::optional<route::AnswerCounts>& counts);

  Counter& received;
  Gauge& in_flight;
  Histogram& ttfb;  // from the request's arrival to the answer's first byte; request_took(): to its last
  Counter& client_gone;
  Counter& broken_streams;   // started answers that a worker broke off, with an error for the client
  Counter& resumed;          // started streams that another worker continued
  Counter& not_resumed;      // resumable streams that no worker continued
  Histogram& resume_pause;   // the pause seen by the client
  Counter& retries_refused;  // by the retry budget

 private:
  Metrics& metrics_;
  std::map<int, Counter*> by_status_;
  std::map<int, Counter*> malformed_;
  std::array<Histogram*, static_cast<size_t>(RequestOutcome::kBroken) + 1> took_{};
  Histogram& own_core_;
  std::array<Histogram*, kPhaseCount> by_phase_{};
  std::array<Counter*, static_cast<size_t>(CancelReason::kShutdown) + 1> by_cancel_{};
  std::array<Counter*, route::kBranchCount> by_branch_{};
  std::map<route::FailureKind, Counter*> by_failure_;
  struct {
    Counter &expected, &actual;
  } cached_;
  struct PersonaCounters {
    Counter *requests, *prompt, *cached;
  };
  std::map<std::string, PersonaCounters> by_persona_;
};

std::string_view failure_name(route::FailureKind kind);

}  // namespace troupe

#pragma once

// Blocks that an admission has to leave to the requests that run, so that it is not paid for by a preemption
// soon after. Built for one plan: the forecast is made when the first admission needs it and holds
// as long as requests are only added. Not thread-safe.

#include <cstdint>
#include <optional>

#include "worker/schedule/kv_forecast.h"
#include "worker/schedule/scheduler_state.h"

namespace troupe {

class AdmissionReserve {
 public:
  // `state` must outlive this.
  explicit AdmissionReserve(SchedulerState* state) : state_(*state) {}

  // Blocks that must stay available when `newcomer` is admitted.
  int32_t beside(ScheduledRequest& newcomer);
  // `request` was admitted.
  void add(ScheduledRequest& request);

 private:
  int32_t remaining_of(ScheduledRequest& request) const;
  KvForecast::Request forecast_of(ScheduledRequest& request) const;
  void forecast_running();

  SchedulerState& state_;
  std::optional<KvForecast> forecast_;  // of the running requests
};

}  // namespace troupe

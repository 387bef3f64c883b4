#pragma once

// The queue in front of the workers, as requests of this process meet it: a request that need not wait passes
// through a plain call, one that must waits in a coroutine. The rules are route/admission/admission.h's; here
// are the clock, the timers, the workers' reports and the words a client gets. All calls on the io_context's
// thread.

#include <absl/container/flat_hash_map.h>

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "common/api/api.h"
#include "common/core/metrics.h"
#include "common/core/time.h"
#include "common/net/task_group.h"
#include "common/net/timer.h"
#include "common/net/wakeable_timer.h"
#include "gateway/route/admission/admission_controller.h"
#include "gateway/route/fleet/gateway_shard.h"
#include "gateway/route/router.h"

namespace troupe {

using AdmissionQueueOptions = route::AdmissionControllerOptions;

class AdmissionQueue {
 public:
  struct Parts {
    Executor executor;
    const route::Router& router;
    Metrics& metrics;
    const Clock& clock;
  };
  AdmissionQueue(const AdmissionQueueOptions& options, const Parts& parts);

  // One request, waiting or let in, until this ends.
  class AdmissionTicket {
   public:
    ~AdmissionTicket();
    AdmissionTicket(const AdmissionTicket&) = delete;
    AdmissionTicket& operator=(const AdmissionTicket&) = delete;
    bool waits() const { return outcome_ == route::AdmissionOutcome::kWaiting; }
    // Until it is let in, or the error that the client gets. REQUIRES: waits().
    Task<ApiResult<bool>> wait();
    // Sets its cost, in tokens.
    void cost(int64_t tokens) { tokens_ = tokens; }

   private:
    friend class AdmissionQueue;
    AdmissionTicket(AdmissionQueue& room, uint64_t ticket, TimePoint deadline)
        : room_(room), ticket_(ticket), deadline_(deadline) {}
    AdmissionQueue& room_;
    const uint64_t ticket_;
    const TimePoint deadline_;
    std::optional<Timer> timer_;  // of one that waits
    route::AdmissionOutcome outcome_ = route::AdmissionOutcome::kAdmitted;
    Duration come_back_{};
    std::optional<int64_t> tokens_;
  };

  // The error is what the client gets.
  ApiResult<std::unique_ptr<AdmissionTicket>> arrive(const route::AdmissionRequest& request);
  using Preview = route::AdmissionController::Preview;
  Preview preview(const route::AdmissionRequest& request) {
    return controller_.preview(request, workers(), clock_.now());
  }

  // Wakes requests that wait, at workers' reports and at deadlines.
  void start(TaskGroup& background) { background.spawn(look_after()); }
  void change(const AdmissionQueueOptions& options) { controller_.change(options); }
  // Several gateways enforce the limits, each a part; one, until this is called.
  void share(const route::GatewayShard& place) { controller_.share(place); }
  // No request arrives any more, and those that wait do so no longer than this.
  void drain(Duration within);
  const route::Admission& admission() const { return controller_.admission(); }

 private:
  Task<void> look_after();
  route::AdmissionController::Workers workers() const {
    return {router_.view(), router_.loads(), router_.known().gateways};
  }
  void notify();  // gives requests that waited their outcome
  void show();
  ApiError refusal(route::AdmissionOutcome outcome, Duration come_back);

  const Executor executor_;
  WakeableTimer look_again_;
  const route::Router& router_;
  Metrics& metrics_;
  const Clock& clock_;
  route::AdmissionController controller_;
  absl::flat_hash_map<uint64_t, AdmissionTicket*> waiting_;  // by ticket
  Histogram& queued_;
  Gauge& tokens_;
  std::array<Gauge*, route::kPriorityMax - route::kPriorityMin + 1> length_{};
  bool length_shown_ = false;  // other than zero
  std::array<Counter*, route::kAdmissionOutcomeCount> refused_{};
};

}  // namespace troupe

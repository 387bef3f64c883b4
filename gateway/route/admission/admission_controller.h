#pragma once

// Admission fed with the room of the workers: the whole of what a driver of the queue has to know besides
// clocks and words. gateway/proxy/admission_queue.h drives it with timers, sim/fleet/sim_admission.h on a
// virtual clock.
//
//   arrive()  a request; then advance()
//   leave()   at its end, waiting or not; then advance()
//   look()    every kLookEvery while requests wait, for workers' reports and time-outs; then advance()
//
// Sans-io, as admission.h.

#include <absl/container/flat_hash_map.h>

#include <string>
#include <string_view>
#include <vector>

#include "gateway/route/admission/admission.h"
#include "gateway/route/admission/pool_capacity.h"
#include "gateway/route/fleet/gateway_shard.h"

namespace troupe::route {

struct AdmissionControllerOptions {
  AdmissionOptions admission;
  PoolRoomOptions room;
};

// HTTP status of a request that is refused so. REQUIRES: neither kAdmitted nor kWaiting.
int admission_http_status(AdmissionOutcome outcome);

class AdmissionController {
 public:
  // The interval at which workers' reports and the clock are looked at while requests wait. The ends of
  // requests count at once.
  static constexpr Duration kLookEvery = std::chrono::milliseconds(50);

  // The workers, as a router knows them.
  struct Workers {
    const ClusterView& view;
    const LoadTracker& loads;
    int64_t gateways = 1;
  };

  explicit AdmissionController(const AdmissionControllerOptions& options);

  // `pool_room` of the request is filled in here.
  Admission::Answer arrive(AdmissionRequest request, const Workers& workers, TimePoint now);
  struct Preview {
    Admission::Answer answer;
    int64_t room = 0;  // kEndlessRoom: no worker is ever full
  };
  Preview preview(AdmissionRequest request, const Workers& workers, TimePoint now);
  void leave(uint64_t ticket, std::optional<int64_t> tokens, TimePoint now) {
    admission_.leave(ticket, tokens, now);
  }
  void look(const Workers& workers, TimePoint now);
  std::vector<Admission::Event> advance(TimePoint now) { return admission_.advance(now); }

  void change(const AdmissionControllerOptions& options);
  // This gateway's part of the limits, which several enforce together; all of them until the first call.
  void share(const GatewayShard& place);
  void drain(TimePoint until) { admission_.drain(until); }
  const Admission& admission() const { return admission_; }

 private:
  int64_t room_of(std::string_view model, const Workers& workers, TimePoint now);

  AdmissionControllerOptions options_;
  GatewayShard place_;
  Admission admission_;
  struct Room {
    int64_t requests = 0;
    TimePoint until{};
  };
  absl::flat_hash_map<std::string, Room> rooms_;  // by model
  uint64_t rooms_epoch_ = 0;                      // of the view they are of
};

}  // namespace troupe::route

#pragma once

// The queues of the simulated gateways: the driver of route::AdmissionController on the virtual clock, as
// gateway/proxy/admission_queue.h is on a real one. One object for all gateways of a run.

#include <absl/container/btree_map.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "common/core/time.h"
#include "gateway/route/admission/admission_controller.h"
#include "gateway/route/admission/key_usage.h"
#include "sim/fleet/event_queue.h"

namespace troupe::sim {

struct SimAdmissionOptions {
  bool enabled = false;  // false: unless a limit is set, requests go to the nodes at once and queue there
  route::AdmissionControllerOptions controller;
  // API keys, by the ids of their names in the trace. A request of another key, or of none, has no limits.
  std::map<uint64_t, route::KeyRights> keys;

  // A limit that is set is enforced, asked for or not.
  bool active() const;
};

// A request at its gateway's queue.
struct QueuePlace {
  uint64_t ticket = 0;
  uint64_t incarnation = 0;  // of the gateway whose queue gave the ticket
  bool waited = false;
  Duration wait{};                                                       // so far
  route::AdmissionOutcome outcome = route::AdmissionOutcome::kAdmitted;  // of the queue
  std::optional<route::Quota::Limit> over;  // a limit of its key: refused at the door
  bool visits = false;                      // counted by its key, in this incarnation of the gateway

  std::string_view refusal() const {
    return over ? route::quota_limit_name(*over) : route::admission_outcome_name(outcome);
  }
  int refusal_status() const { return over ? 429 : route::admission_http_status(outcome); }
  bool refused() const {
    if (over) return true;
    return outcome != route::AdmissionOutcome::kAdmitted && outcome != route::AdmissionOutcome::kWaiting;
  }
};

class SimAdmission {
 public:
  struct Surroundings {
    std::function<route::AdmissionController::Workers(size_t gateway)> workers;
    // The place of a request by its id.
    std::function<QueuePlace&(uint64_t id)> place;
    // The request's wait is over; its place has the outcome.
    std::function<void(uint64_t id)> decided;
    // The request's gateway has restarted, and its client asks again.
    std::function<void(uint64_t id)> asks_again;
  };
  // `events` outlives it.
  SimAdmission(const SimAdmissionOptions& options, size_t gateways, EventQueue& events,
               Surroundings surroundings);

  bool active() const { return active_; }
  // The place's outcome says how it went. Without an active queue: kAdmitted.
  struct Arrival {
    uint64_t id = 0;
    uint64_t key = 0;  // of the trace
    route::AdmissionRequest request;
  };
  void arrive(size_t gateway, Arrival arrival, QueuePlace& place);
  // The request ends, whether it waits or not.
  struct Cost {
    std::optional<int64_t> computed;  // tokens, where known: what the queue counts
    int64_t all = 0;                  // of prompt and answer: what its key is charged
  };
  void leave(size_t gateway, uint64_t key, QueuePlace& place, const Cost& cost);
  // A kQueue.
  void on_time(size_t gateway, uint64_t tag);
  // The gateway begins anew, with nothing in its queue.
  void restart(size_t gateway);

  const route::Admission& of(size_t gateway) const { return queues_[gateway].controller->admission(); }

 private:
  enum Tag : uint64_t { kWake, kLook };
  struct Waiting {
    uint64_t id = 0;
    Duration waited_before{};  // at earlier incarnations of the gateway
    TimePoint since{};
  };
  struct Queue {
    std::unique_ptr<route::AdmissionController> controller;
    uint64_t incarnation = 1;
    absl::btree_map<uint64_t, Waiting> waiting;  // by ticket
    std::map<uint64_t, route::KeyUsage> keys;
    bool wakes = false, looks = false;  // kWake, kLook is posted
  };
  void begin(size_t gateway);
  bool let_in(Queue& queue, Arrival& arrival, QueuePlace& place);
  void notify(size_t gateway);
  void wake(size_t gateway);
  void look_soon(size_t gateway);

  SimAdmissionOptions options_;
  bool active_;
  EventQueue& events_;
  Surroundings around_;
  std::vector<Queue> queues_;
};

}  // namespace troupe::sim

#pragma once

// The virtual clock, and what is due on it. Events come in order of time; those that are due at once, in the
// order in which they were posted.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "common/core/time.h"

namespace troupe::sim {

// Simulation::handle() says which part takes which.
enum class EventKind : uint8_t {
  kDeliver,    // a request reaches its node: `value` is its id
  kStepEnd,    // node `index`; `value`: its incarnation. None, unless it is the one expected
  kResidency,  // the oldest batch of events of node `index` reaches the gateways; `value`: its incarnation
  kReports,    // load reports reach gateways: SimGateways' slot `index`
  kGossip,
  kPlan,
  kSecond,
  kDetect,    // connections to node `index` are seen broken; `value`: the incarnation that ended
  kSilent,    // request `value` got nothing from its node for as long as its gateway waits; `index`: since
              // which of the node's stalls
  kProbe,     // of node `index`, by a gateway: SimProber's `value`
  kSeen,      // node `index` is seen alive again; `value`: its incarnation
  kFault,     // FaultInjector's fault `index`
  kFaultEnd,  // likewise
  kHandover,  // what moves between nodes that join or leave
  kQueue,     // of gateway `index`: SimAdmission's `value`
};

struct Event {
  TimePoint at;
  uint64_t order;  // of posting
  EventKind kind;
  int32_t index;
  uint64_t value;
  bool operator>(const Event& other) const { return at != other.at ? at > other.at : order > other.order; }
};
static_assert(sizeof(Event) <= 40);

class EventQueue {
 public:
  TimePoint now() const { return now_; }
  // To something that was not posted, or to the end of a wait. REQUIRES: no event is due before.
  void advance(TimePoint now) { now_ = now; }
  // REQUIRES: not in the past.
  void post(TimePoint at, EventKind kind, int32_t index = 0, uint64_t value = 0) {
    events_.push({at, posted_++, kind, index, value});
  }
  size_t size() const { return events_.size(); }
  // REQUIRES: there is one, as always while a fleet exists: its rounds have no end.
  const Event& next() const { return events_.top(); }
  // It happens now.
  Event pop() {
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    return event;
  }

 private:
  TimePoint now_{};
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t posted_ = 0;
};

}  // namespace troupe::sim

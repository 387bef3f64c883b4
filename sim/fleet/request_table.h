#pragma once

// The requests on their way, in slots that are used again: a run has millions of them, and few at a time. An
// id is that of one try: its number over the slot. What is sent of an earlier try finds nothing.

#include <cstdint>
#include <deque>
#include <vector>

#include "sim/fleet/sim_request.h"

namespace troupe::sim {

class RequestTable {
 public:
  // A slot with an id; all else is as its last request left it. References hold until remove().
  SimRequest& add();
  // The same request, under a new id.
  void begin_try(SimRequest& request);
  void remove(SimRequest& request);
  // Null: the try is over.
  SimRequest* find(uint64_t id) {
    SimRequest& request = requests_[slot_of(id)];
    return request.id == id ? &request : nullptr;
  }

  size_t size() const { return requests_.size() - free_slots_.size(); }
  uint64_t tries() const { return tries_; }  // of all requests so far
  // By slot.
  template <class Function>
  void for_each(Function function) {
    for (SimRequest& request : requests_) {
      if (request.id != 0) function(request);
    }
  }
  // Delivered to that incarnation of the node; by age, so that no request overtakes another.
  std::vector<SimRequest*> at(route::NodeIndex node, uint64_t incarnation);

  // Fetch memory: all of the next request's slot, and what a token of this one needs. (The try may be over.)
  void prefetch_next() const;
  void prefetch(uint64_t id) const;

 private:
  static constexpr int kSlotBits = 32;
  static size_t slot_of(uint64_t id) { return static_cast<size_t>(id & 0xffffffff); }

  std::deque<SimRequest> requests_;  // by slot; a deque, because references are kept across arrivals
  std::vector<uint32_t> free_slots_;
  uint64_t tries_ = 0;
};

}  // namespace troupe::sim

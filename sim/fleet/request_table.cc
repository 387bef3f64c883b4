#include "sim/fleet/request_table.h"

#include <algorithm>

namespace troupe::sim {

SimRequest& RequestTable::add() {
  if (free_slots_.empty()) {
    free_slots_.push_back(static_cast<uint32_t>(requests_.size()));
    requests_.emplace_back();
  }
  const uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  SimRequest& request = requests_[slot];
  request.id = (++tries_ << kSlotBits) | slot;
  return request;
}

void RequestTable::begin_try(SimRequest& request) {
  request.id = (++tries_ << kSlotBits) | slot_of(request.id);
}

void RequestTable::remove(SimRequest& request) {
  free_slots_.push_back(static_cast<uint32_t>(slot_of(request.id)));
  request.id = 0;
}

std::vector<SimRequest*> RequestTable::at(route::NodeIndex node, uint64_t incarnation) {
  std::vector<SimRequest*> there;
  for_each([&](SimRequest& request) {
    if (request.node == node && request.at_node && request.node_incarnation == incarnation)
      there.push_back(&request);
  });
  std::sort(there.begin(), there.end(),
            [](const SimRequest* a, const SimRequest* b) { return a->id < b->id; });
  return there;
}

void RequestTable::prefetch_next() const {
  if (free_slots_.empty()) return;
  const auto* const request = reinterpret_cast<const char*>(&requests_[free_slots_.back()]);
  for (size_t line = 0; line < sizeof(SimRequest); line += 64) __builtin_prefetch(request + line, 1);
}

void RequestTable::prefetch(uint64_t id) const {
  const auto* const request = reinterpret_cast<const char*>(&requests_[slot_of(id)]);
  for (size_t line = 0; line < SimRequest::kTokenBytes; line += 64) __builtin_prefetch(request + line);
}

}  // namespace troupe::sim

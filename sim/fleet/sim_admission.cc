#include "sim/fleet/sim_admission.h"

#include <algorithm>
#include <utility>

namespace troupe::sim {

using route::AdmissionOutcome;

bool SimAdmissionOptions::active() const {
  const route::AdmissionOptions& limits = controller.admission;
  return enabled || !keys.empty() || limits.total.requests > 0 || limits.total.tokens > 0 ||
         limits.persona.requests > 0 || limits.persona.tokens > 0 || controller.room.worker_requests > 0;
}

SimAdmission::SimAdmission(const SimAdmissionOptions& options, size_t gateways, EventQueue& events,
                           Surroundings surroundings)
    : options_(options),
      active_(options.active()),
      events_(events),
      around_(std::move(surroundings)),
      queues_(gateways) {
  for (size_t gateway = 0; gateway < gateways; ++gateway) begin(gateway);
}

void SimAdmission::begin(size_t gateway) {
  Queue& queue = queues_[gateway];
  const route::GatewayShard place{static_cast<int64_t>(gateway), static_cast<int64_t>(queues_.size())};
  queue.controller = std::make_unique<route::AdmissionController>(options_.controller);
  queue.controller->share(place);
  queue.keys.clear();
  for (const auto& [key, rights] : options_.keys)
    queue.keys.emplace(key, route::KeyUsage(rights, events_.now())).first->second.share(place, events_.now());
}

// As gateway/proxy/access_gate does: a visit within the key's limits, and its rights in the queue.
bool SimAdmission::let_in(Queue& queue, Arrival& arrival, QueuePlace& place) {
  const auto key = queue.keys.find(arrival.key);
  if (key == queue.keys.end()) return true;
  if (const auto refusal = key->second.begin(events_.now())) {
    place.over = refusal->limit;
    return false;
  }
  place.visits = true;
  arrival.request.key = key->second.admission();
  arrival.request.priority = std::max(arrival.request.priority, key->second.priority());
  return true;
}

void SimAdmission::arrive(size_t gateway, Arrival arrival, QueuePlace& place) {
  place.outcome = AdmissionOutcome::kAdmitted;
  if (!active_) return;
  Queue& queue = queues_[gateway];
  place.incarnation = queue.incarnation;
  if (!let_in(queue, arrival, place)) return;
  const auto answer = queue.controller->arrive(arrival.request, around_.workers(gateway), events_.now());
  place.ticket = answer.ticket;
  place.outcome = answer.outcome;
  if (answer.outcome == AdmissionOutcome::kWaiting) {
    place.waited = true;
    queue.waiting.emplace(answer.ticket, Waiting{arrival.id, place.wait, events_.now()});
    look_soon(gateway);
  }
  // It may have pushed another out. (A refused one wakes no other, as live: the next arrival does.)
  if (answer.ticket != 0 && !queue.waiting.empty()) wake(gateway);
}

void SimAdmission::leave(size_t gateway, uint64_t key, QueuePlace& place, const Cost& cost) {
  const uint64_t ticket = std::exchange(place.ticket, 0);
  Queue& queue = queues_[gateway];
  if (place.incarnation != queue.incarnation) return;
  if (std::exchange(place.visits, false)) queue.keys.at(key).end(cost.all, events_.now());
  if (ticket == 0) return;
  if (const auto found = queue.waiting.find(ticket); found != queue.waiting.end()) {
    place.wait = found->second.waited_before + (events_.now() - found->second.since);
    queue.waiting.erase(found);
  }
  queue.controller->leave(ticket, cost.computed, events_.now());
  if (!queue.waiting.empty()) wake(gateway);
}

// After the event in hand: a request that is admitted may end at once, and would come back here.
void SimAdmission::wake(size_t gateway) {
  if (std::exchange(queues_[gateway].wakes, true)) return;
  events_.post(events_.now(), EventKind::kQueue, static_cast<int32_t>(gateway), kWake);
}

void SimAdmission::look_soon(size_t gateway) {
  if (std::exchange(queues_[gateway].looks, true)) return;
  events_.post(events_.now() + route::AdmissionController::kLookEvery, EventKind::kQueue,
               static_cast<int32_t>(gateway), kLook);
}

void SimAdmission::on_time(size_t gateway, uint64_t tag) {
  Queue& queue = queues_[gateway];
  if (tag == kWake) {
    queue.wakes = false;
    return notify(gateway);
  }
  queue.looks = false;
  queue.controller->look(around_.workers(gateway), events_.now());
  notify(gateway);
  if (!queue.waiting.empty()) look_soon(gateway);
}

void SimAdmission::notify(size_t gateway) {
  Queue& queue = queues_[gateway];
  for (const route::Admission::Event& event : queue.controller->advance(events_.now())) {
    const auto found = queue.waiting.find(event.ticket);
    if (found == queue.waiting.end()) continue;
    const Waiting waiting = found->second;
    queue.waiting.erase(found);
    QueuePlace& place = around_.place(waiting.id);
    place.outcome = event.outcome;
    place.wait = waiting.waited_before + event.waited;
    if (event.outcome != AdmissionOutcome::kAdmitted) place.ticket = 0;  // void
    around_.decided(waiting.id);
  }
}

void SimAdmission::restart(size_t gateway) {
  if (!active_) return;
  Queue& queue = queues_[gateway];
  queue.incarnation += 1;
  begin(gateway);
  for (const auto& [ticket, waiting] : std::exchange(queue.waiting, {})) {
    QueuePlace& place = around_.place(waiting.id);
    place.ticket = 0;
    place.visits = false;
    place.wait = waiting.waited_before + (events_.now() - waiting.since);
    around_.asks_again(waiting.id);
  }
}

}  // namespace troupe::sim

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

SimAdmission::SimAdmission(const SimAdmissionOptions& options, size_t gateways, Surroundings surroundings)
    : options_(options), active_(options.active()), around_(std::move(surroundings)), queues_(gateways) {
  for (size_t gateway = 0; gateway < gateways; ++gateway) begin(gateway, TimePoint{});
}

void SimAdmission::begin(size_t gateway, TimePoint now) {
  Queue& queue = queues_[gateway];
  const route::GatewayShard place{static_cast<int64_t>(gateway), static_cast<int64_t>(queues_.size())};
  queue.controller = std::make_unique<route::AdmissionController>(options_.controller);
  queue.controller->share(place);
  queue.keys.clear();
  for (const auto& [key, rights] : options_.keys)
    queue.keys.emplace(key, route::KeyUsage(rights, now)).first->second.share(place, now);
}

// As gateway/proxy/access_gate does: a visit within the key's limits, and its rights in the queue.
bool SimAdmission::let_in(Queue& queue, Arrival& arrival, QueuePlace& place, TimePoint now) {
  const auto key = queue.keys.find(arrival.key);
  if (key == queue.keys.end()) return true;
  if (const auto refusal = key->second.begin(now)) {
    place.over = refusal->limit;
    return false;
  }
  place.visits = true;
  arrival.request.key = key->second.admission();
  arrival.request.priority = std::max(arrival.request.priority, key->second.priority());
  return true;
}

void SimAdmission::arrive(size_t gateway, Arrival arrival, QueuePlace& place, TimePoint now) {
  place.outcome = AdmissionOutcome::kAdmitted;
  if (!active_) return;
  Queue& queue = queues_[gateway];
  place.incarnation = queue.incarnation;
  if (!let_in(queue, arrival, place, now)) return;
  const auto answer = queue.controller->arrive(arrival.request, around_.workers(gateway), now);
  place.ticket = answer.ticket;
  place.outcome = answer.outcome;
  if (answer.outcome == AdmissionOutcome::kWaiting) {
    place.waited = true;
    queue.waiting.emplace(answer.ticket, Waiting{arrival.id, place.wait, now});
    if (!std::exchange(queue.looks, true))
      around_.post(now + route::AdmissionController::kLookEvery, gateway, kLook);
  }
  // It may have pushed another out. (A refused one wakes no other, as live: the next arrival does.)
  if (answer.ticket != 0 && !queue.waiting.empty()) wake(gateway, now);
}

void SimAdmission::leave(size_t gateway, uint64_t key, QueuePlace& place, const Cost& cost, TimePoint now) {
  const uint64_t ticket = std::exchange(place.ticket, 0);
  Queue& queue = queues_[gateway];
  if (place.incarnation != queue.incarnation) return;
  if (std::exchange(place.visits, false)) queue.keys.at(key).end(cost.all, now);
  if (ticket == 0) return;
  if (const auto found = queue.waiting.find(ticket); found != queue.waiting.end()) {
    place.wait = found->second.waited_before + (now - found->second.since);
    queue.waiting.erase(found);
  }
  queue.controller->leave(ticket, cost.computed, now);
  if (!queue.waiting.empty()) wake(gateway, now);
}

// After the event in hand: a request that is admitted may end at once, and would come back here.
void SimAdmission::wake(size_t gateway, TimePoint now) {
  if (!std::exchange(queues_[gateway].wakes, true)) around_.post(now, gateway, kWake);
}

void SimAdmission::on_time(size_t gateway, uint64_t tag, TimePoint now) {
  Queue& queue = queues_[gateway];
  if (tag == kWake) {
    queue.wakes = false;
    return notify(gateway, now);
  }
  queue.looks = false;
  queue.controller->look(around_.workers(gateway), now);
  notify(gateway, now);
  if (!queue.waiting.empty() && !std::exchange(queue.looks, true))
    around_.post(now + route::AdmissionController::kLookEvery, gateway, kLook);
}

void SimAdmission::notify(size_t gateway, TimePoint now) {
  Queue& queue = queues_[gateway];
  for (const route::Admission::Event& event : queue.controller->advance(now)) {
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

void SimAdmission::restart(size_t gateway, TimePoint now) {
  if (!active_) return;
  Queue& queue = queues_[gateway];
  queue.incarnation += 1;
  begin(gateway, now);
  for (const auto& [ticket, waiting] : std::exchange(queue.waiting, {})) {
    QueuePlace& place = around_.place(waiting.id);
    place.ticket = 0;
    place.visits = false;
    place.wait = waiting.waited_before + (now - waiting.since);
    around_.asks_again(waiting.id);
  }
}

}  // namespace troupe::sim

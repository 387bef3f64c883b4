#include "sim/fleet/sim_admission.h"

#include <utility>

namespace troupe::sim {

using route::AdmissionOutcome;

bool SimAdmissionOptions::active() const {
  const route::AdmissionOptions& limits = controller.admission;
  return enabled || limits.total.requests > 0 || limits.total.tokens > 0 || limits.persona.requests > 0 ||
         limits.persona.tokens > 0 || controller.room.worker_requests > 0;
}

SimAdmission::SimAdmission(const SimAdmissionOptions& options, size_t gateways, Surroundings surroundings)
    : options_(options), active_(options.active()), around_(std::move(surroundings)), queues_(gateways) {
  for (size_t gateway = 0; gateway < gateways; ++gateway) begin(gateway);
}

void SimAdmission::begin(size_t gateway) {
  Queue& queue = queues_[gateway];
  queue.controller = std::make_unique<route::AdmissionController>(options_.controller);
  queue.controller->share({static_cast<int64_t>(gateway), static_cast<int64_t>(queues_.size())});
}

void SimAdmission::arrive(size_t gateway, uint64_t id, const route::AdmissionRequest& request,
                          QueuePlace& place, TimePoint now) {
  place.outcome = AdmissionOutcome::kAdmitted;
  if (!active_) return;
  Queue& queue = queues_[gateway];
  const auto answer = queue.controller->arrive(request, around_.workers(gateway), now);
  place.ticket = answer.ticket;
  place.life = queue.life;
  place.outcome = answer.outcome;
  if (answer.outcome == AdmissionOutcome::kWaiting) {
    place.waited = true;
    queue.waiting.emplace(answer.ticket, Waiting{id, place.wait, now});
    if (!std::exchange(queue.looks, true))
      around_.post(now + route::AdmissionController::kLookEvery, gateway, kLook);
  }
  // It may have pushed another out. (A refused one wakes no other, as live: the next arrival does.)
  if (answer.ticket != 0 && !queue.waiting.empty()) wake(gateway, now);
}

void SimAdmission::leave(size_t gateway, QueuePlace& place, std::optional<int64_t> tokens, TimePoint now) {
  const uint64_t ticket = std::exchange(place.ticket, 0);
  Queue& queue = queues_[gateway];
  if (ticket == 0 || place.life != queue.life) return;
  if (const auto found = queue.waiting.find(ticket); found != queue.waiting.end()) {
    place.wait = found->second.waited_before + (now - found->second.since);
    queue.waiting.erase(found);
  }
  queue.controller->leave(ticket, tokens, now);
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
    return tell(gateway, now);
  }
  queue.looks = false;
  queue.controller->look(around_.workers(gateway), now);
  tell(gateway, now);
  if (!queue.waiting.empty() && !std::exchange(queue.looks, true))
    around_.post(now + route::AdmissionController::kLookEvery, gateway, kLook);
}

void SimAdmission::tell(size_t gateway, TimePoint now) {
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
  queue.life += 1;
  begin(gateway);
  for (const auto& [ticket, waiting] : std::exchange(queue.waiting, {})) {
    QueuePlace& place = around_.place(waiting.id);
    place.ticket = 0;
    place.wait = waiting.waited_before + (now - waiting.since);
    around_.asks_again(waiting.id);
  }
}

}  // namespace troupe::sim

#include "gateway/route/admission/admission_controller.h"

#include "absl/strings/string_view.h"
#include "common/core/check.h"
#include "gateway/route/admission/shard_limit.h"

namespace troupe::route {

namespace {

constexpr size_t kRoomsMax = 1024;

}  // namespace

int admission_http_status(AdmissionOutcome outcome) {
  TROUPE_CHECK(outcome != AdmissionOutcome::kAdmitted && outcome != AdmissionOutcome::kWaiting,
               "a request that was not refused has no status of a refusal");
  switch (outcome) {
    case AdmissionOutcome::kAdmitted:
    case AdmissionOutcome::kWaiting:
      break;
    case AdmissionOutcome::kQueueFull:
    case AdmissionOutcome::kKeyQueueFull:
    case AdmissionOutcome::kWouldBeLate:
    case AdmissionOutcome::kPushedOut:
      return 429;
    case AdmissionOutcome::kTimedOut:
    case AdmissionOutcome::kDrained:
      return 503;
    case AdmissionOutcome::kDeadline:
      return 504;
  }
  return 429;
}

AdmissionController::AdmissionController(const AdmissionControllerOptions& options)
    : options_(options), admission_(options.admission) {}

Admission::Answer AdmissionController::arrive(AdmissionRequest request, const Workers& workers,
                                              TimePoint now) {
  request.pool_room = room_of(request.pool, workers, now);
  return admission_.arrive(request, now);
}

AdmissionController::Preview AdmissionController::preview(AdmissionRequest request, const Workers& workers,
                                                          TimePoint now) {
  request.pool_room = room_of(request.pool, workers, now);
  return {admission_.preview(request, now), request.pool_room};
}

void AdmissionController::look(const Workers& workers, TimePoint now) {
  for (const std::string& model : admission_.waiting_pools())
    admission_.pool_room(model, room_of(model, workers, now));
}

// A sum over all workers, so it is kept for as long as the next look.
int64_t AdmissionController::room_of(std::string_view model, const Workers& workers, TimePoint now) {
  if (rooms_epoch_ != workers.view.epoch() || rooms_.size() > kRoomsMax) rooms_.clear();
  rooms_epoch_ = workers.view.epoch();
  const auto known = rooms_.find(absl::string_view(model.data(), model.size()));
  if (known != rooms_.end() && now < known->second.until) return known->second.requests;
  Room& room = known != rooms_.end() ? known->second : rooms_[std::string(model)];
  room.requests = pool_room(options_.room, workers.view, workers.loads, model, workers.gateways);
  room.until = now + kLookEvery;
  return room.requests;
}

void AdmissionController::change(const AdmissionControllerOptions& options) {
  options_ = options;
  share(place_);
  rooms_.clear();
}

void AdmissionController::share(const GatewayShard& place) {
  place_ = place;
  admission_.change(share_of(options_.admission, place));
}

}  // namespace troupe::route

#include "worker/schedule/admission_reserve.h"

#include <algorithm>
#include <vector>

namespace troupe {

namespace {

// Admission reckons with the length that half of a set's answers stay within. Many are admitted side by side,
// what is asked for is the peak of all together (kv_forecast.h), and each keeps a block besides: more reserve
// (the 0.9 quantile) preempted no less and took a quarter more steps.
constexpr double kLengthQuantile = 0.5;
// An answer is expected to need so many tokens before any was seen.
constexpr int32_t kUnknownLength = 64;

}  // namespace

// Tokens that it is expected to emit from now on; at least one.
int32_t AdmissionReserve::remaining_of(ScheduledRequest& request) const {
  if (request.is_companion) return remaining_of(*request.partner);
  const int32_t emitted = request.emitted_count();
  const int32_t most = std::max(1, request.max_new_count - emitted);
  if (state_.config.output_reserve == OutputReserve::kMax) return most;
  if (emitted >= request.expected_until) {
    const int32_t predicted = state_.lengths.predict(request.spec.set, emitted, kLengthQuantile);
    request.expected_count = predicted > 0 ? predicted : emitted + kUnknownLength;
    // An answer that goes on is expected to become longer than one that begins.
    request.expected_until = std::min(request.expected_count, emitted + state_.config.block_size);
  }
  return std::clamp(request.expected_count - emitted, 1, most);
}

KvForecast::Request AdmissionReserve::forecast_of(ScheduledRequest& request) const {
  const int32_t block_size = state_.config.block_size;
  const int32_t known = request.known_count;
  // A request that decodes has the block for its last id, or takes it with the next decodes.
  const int32_t blocks = state_.tables.blocks_for(known);
  // The blocks it found are shared with others more often than not.
  return {.remaining_count = remaining_of(request),
          .room_count = blocks * block_size - known,
          .own_count = (blocks - request.cached_count / block_size) * block_size};
}

void AdmissionReserve::forecast_running() {
  std::vector<KvForecast::Request> running;
  running.reserve(state_.queues.running().size());
  for (ScheduledRequest* r : state_.queues.running()) {
    if (r->is_counted()) state_.counted.materialize(*r);
    running.push_back(forecast_of(*r));
  }
  forecast_.emplace(state_.config.block_size).reset(running);
}

int32_t AdmissionReserve::beside(ScheduledRequest& newcomer) {
  const auto running_count = static_cast<int32_t>(state_.queues.running().size());
  if (state_.config.output_reserve == OutputReserve::kNone) return running_count;
  // A request that runs alone leaves nothing to others; Scheduler::add() saw to it that it fits.
  if (running_count == 0) return 0;
  // Where even the longest answers of all fit side by side no forecast is needed.
  const ScheduledRequest* const companion = newcomer.partner;
  const int64_t rows = companion == nullptr ? 1 : 2;
  const int64_t most =
      (state_.queues.running_new_count() + rows * newcomer.max_new_count) / state_.config.block_size +
      2 * (running_count + rows);
  int64_t needed = state_.tables.blocks_for(newcomer.known_count);
  if (companion != nullptr) needed += state_.tables.blocks_for(companion->known_count);
  if (needed + most < state_.tables.available_count()) return static_cast<int32_t>(most);
  if (!forecast_) forecast_running();
  // A block each at least: a request that is expected to end may go on.
  const int32_t alone = forecast_->reserve_count(forecast_of(newcomer));
  if (companion == nullptr) return std::max(running_count, alone);
  // Its companion grows as it does.
  return std::max(running_count, alone + state_.tables.blocks_for(remaining_of(newcomer)) + 1);
}

void AdmissionReserve::add(ScheduledRequest& request) {
  if (forecast_) forecast_->add(forecast_of(request));
}

}  // namespace troupe

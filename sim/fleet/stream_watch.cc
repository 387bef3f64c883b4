#include "sim/fleet/stream_watch.h"

#include <algorithm>
#include <chrono>

#include "common/settings/option_checks.h"

namespace troupe::sim {

void StreamWatch::note_progress(SimRequest& request) const {
  if (!request.taken_at) return;
  const FleetNode& node = fleet_[request.node];
  if (node.engine == nullptr || request.node_incarnation != node.incarnation) return;
  node.engine->catch_up(events_.now());
  const SimNode::Progress progress = node.engine->progress(request.id);
  if (progress.tokens == 0) return;
  request.emitted += progress.tokens - request.here;
  request.here = progress.tokens;
  request.gaps.last_token = progress.last + millis(options_.network_ms);
  request.gaps.longest = std::max(request.gaps.longest, progress.longest_gap);
}

void StreamWatch::note_progress_at(route::NodeIndex node) const {
  for (SimRequest* request : requests_.at(node, fleet_[node].incarnation)) note_progress(*request);
}

void StreamWatch::watch(const SimRequest& request, TimePoint received) {
  const Duration timeout = route::silence_timeout(options_.stall, true);
  if (timeout == Duration::zero()) return;
  const Duration travel = request.taken_at ? millis(options_.network_ms) : Duration::zero();
  events_.post(std::max(received + timeout + travel, events_.now()), EventKind::kSilent,
               fleet_[request.node].stalls, request.id);
}

void StreamWatch::watch_all_at(route::NodeIndex node) {
  constexpr Duration kHeartbeatAfter = std::chrono::milliseconds(80);  // worker/http/response_stream.cc's
  const TimePoint now = events_.now();
  for (SimRequest* request : requests_.at(node, fleet_[node].incarnation)) {
    note_progress(*request);
    const TimePoint token =
        request->here > 0 ? request->gaps.last_token - millis(options_.network_ms) : TimePoint{};
    const TimePoint received = std::max(request->taken_at.value_or(TimePoint{}), token);
    watch(*request, now - (now - received) % kHeartbeatAfter);
  }
}

}  // namespace troupe::sim

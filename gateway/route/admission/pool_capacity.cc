#include "gateway/route/admission/pool_capacity.h"

#include <algorithm>
#include <cmath>

#include "common/settings/schema.h"

namespace troupe::route {

int64_t node_room(const PoolRoomOptions& options, const NodeLoad& load) {
  if (options.worker_requests > 0) return options.worker_requests;
  if (options.fill <= 0) return kEndlessRoom;
  const int64_t batch = load.reported ? load.report.max_num_seqs : 0;
  if (batch <= 0) return options.foreign_requests > 0 ? options.foreign_requests : kEndlessRoom;
  const auto room = static_cast<int64_t>(std::ceil(options.fill * static_cast<double>(batch)));
  const int64_t queue = room - batch;  // intended length of the worker's own queue
  return load.report.queued > queue ? std::min(room, load.report.running + std::max<int64_t>(queue, 1))
                                    : room;
}

int64_t pool_room(const PoolRoomOptions& options, const ClusterView& view, const LoadTracker& loads,
                  std::string_view model, int64_t gateways) {
  int64_t room = 0;
  double others = 0;
  for (const NodeIndex node : view.nodes_for(model)) {
    const int64_t of_node = node_room(options, loads.at(node));
    if (of_node == kEndlessRoom) return kEndlessRoom;
    room += of_node;
    others += std::max(0.0, loads.requests(node) - loads.own_requests(node));
  }
  if (room == 0) return kEndlessRoom;
  const int64_t left = room - static_cast<int64_t>(others);
  return std::max({left, room / std::max<int64_t>(gateways, 1), int64_t{1}});
}

void describe(SettingsSchema& schema, PoolRoomOptions& options) {
  schema
      .add(
          "admission.worker_fill", &options.fill,
          "requests that fill a worker, by its max_num_seqs; the others wait in the gateway. 0: none is full")
      .range(0, 100)
      .live();
  schema.add("admission.worker_requests", &options.worker_requests, "the same as a number; 0: by worker_fill")
      .range(0, 1e6)
      .live();
  schema
      .add("admission.foreign_worker_requests", &options.foreign_requests,
           "of a worker that does not tell its max_num_seqs; 0: it is never full")
      .range(0, 1e6)
      .live();
}

Status check(const PoolRoomOptions& options) {
  if (options.fill > 0 && options.fill < 1)
    return invalid_argument(
        "admission.worker_fill: must be 0 or at least 1, else workers idle while requests wait");
  return absl::OkStatus();
}

}  // namespace troupe::route

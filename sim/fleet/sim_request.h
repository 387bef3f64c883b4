#pragma once

// A request on its way through the simulated fleet, from its arrival to its end, whichever nodes it visits.

#include <cstdint>
#include <optional>

#include "common/core/time.h"
#include "gateway/route/request/request_flow.h"
#include "sim/fleet/node.h"
#include "sim/fleet/request_lines.h"
#include "sim/fleet/sim_admission.h"
#include "sim/trace/trace_request.h"

namespace troupe::sim {

// Between two of its events thousands of others have theirs, so its first lines are what a token needs
// (kTokenBytes).
struct SimRequest {
  static constexpr size_t kTokenBytes = 512;

  alignas(64) uint64_t id = 0;  // of this try (RequestTable); 0: the slot is free
  uint64_t gateway_incarnation = 0;
  uint32_t gateway = 0;
  route::NodeIndex node = route::kNoNode;
  int32_t emitted = 0;        // tokens, as far as nodes gave them: their first, their last, all at an end
  int32_t here = 0;           // those of them that its node gave
  int32_t cached_tokens = 0;  // that its node found
  int32_t found_first = 0;    // that the node of its first token found
  bool planned = false;       // its set is at home on the node
  bool at_node = false;       // delivered, not only on its way
  TimePoint arrived{}, first{};
  struct Gaps {
    TimePoint last_token{};  // of the node before, when that died or was given up
    Duration longest{};
  } gaps;
  uint64_t node_incarnation = 0;      // of the node, when it was delivered
  std::optional<TimePoint> taken_at;  // by the node: from then on its stream brings heartbeats
  route::PrefixKey key;
  TraceRequest trace;
  int64_t number = 0;       // of all arrivals, from 1
  route::RequestFlow flow;  // decides, as in a live gateway; its attempt comes first
  QueuePlace place;         // at its gateway

  route::AdmissionRequest admission_request(const route::Router& router) const;
  SimNode::NewSimRequest to_node() const;
  route::AnswerProgress progress(bool resumable) const;
  RequestLine line(TimePoint at, RequestEnd end) const;
};

}  // namespace troupe::sim

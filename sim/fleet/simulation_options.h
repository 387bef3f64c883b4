#pragma once

// A simulated fleet and its run, as options.

#include <cstdint>
#include <functional>
#include <vector>

#include "common/core/status.h"
#include "gateway/route/fleet/probe_schedule.h"
#include "gateway/route/options.h"
#include "gateway/route/request/retry.h"
#include "gateway/route/request/stall.h"
#include "sim/fleet/faults.h"
#include "sim/fleet/request_lines.h"
#include "sim/fleet/sim_admission.h"
#include "worker/schedule/node_profile.h"

namespace troupe::sim {

struct SimulationOptions {
  NodeProfile profile;
  int32_t nodes = 16;
  int32_t gateways = 1;
  route::RouterOptions router;  // its `gateways` follows `gateways` above
  route::RetryOptions retry;
  route::StallOptions stall;  // when a silent stream is a hang
  route::ProbeOptions probe;
  SimAdmissionOptions admission;
  uint64_t seed = 1;

  double warmup_s = 0;  // requests that arrive before are served but not counted
  double slo_ttft_ms = 500, slo_tpot_ms = 30;
  SchedulerConfig scheduler;    // of every node; the profile's figures replace those here
  double drain_s = 120;         // after the last arrival; what has no first token then was never admitted
  bool session_sticky = false;  // a session's requests come to one gateway; else each to a random one

  double network_ms = 0;   // one way, gateway to worker
  double report_ms = 100;  // node reports to each gateway
  double residency_delay_ms =
      1;                  // worker events to the gateways (exact mode); they are sent at the end of a step
  double gossip_ms = 20;  // placements (and ledgers, if on) to the other gateways
  double detect_ms = 50;  // until a gateway sees that its connections to a node that died are broken
  double join_ms = 1000;  // from a node's coming back to the gateways' knowing
  // Policy affinity, of a node that joins or comes back, with nothing in its cache: how long it takes to rise
  // from a tenth of its share to all of it, and how long its sets are computed there ahead of their requests
  // (modes in which nodes report what they hold). 0: not at all.
  double join_ramp_s = 10, handover_s = 20;
  // A started stream whose node dies goes on at another, which computes its prompt and what was sent of its
  // answer. Else, as with workers of another kind, its client gets an error: it is lost.
  bool resume = true;

  uint64_t crowd_set = 0;  // of a flash crowd, reported beside all others; 0: none
  Duration crowd_begin{};
  std::vector<Fault> faults;
  // Events between two checks of requests and of one node's blocks and tokens, the nodes in turn; all of them
  // at the end. 0: only there.
  int64_t conservation_every = 1 << 15;
  // Called about twice a wall-clock second with simulated seconds and requests so far.
  std::function<void(double, int64_t)> progress;
  OnRequest on_request;  // warm-up included
};

// Errors name the option.
Status check(const SimulationOptions& options);

// Nodes report what they hold; in the other modes they stand for workers that do not.
bool nodes_report(const SimulationOptions& options);

}  // namespace troupe::sim

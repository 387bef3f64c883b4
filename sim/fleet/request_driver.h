#pragma once

// A request's way through the simulated fleet: key → decision → queue → node → tokens, or the next candidate.
// The driver of route::RequestFlow on the virtual clock, as gateway/proxy/request_driver.h is over sockets.

#include <cstdint>
#include <string_view>

#include "sim/fleet/conservation.h"
#include "sim/fleet/event_queue.h"
#include "sim/fleet/loss_words.h"
#include "sim/fleet/prefix_block_cache.h"
#include "sim/fleet/recorder.h"
#include "sim/fleet/request_table.h"
#include "sim/fleet/sim_admission.h"
#include "sim/fleet/sim_fleet.h"
#include "sim/fleet/sim_gateways.h"
#include "sim/fleet/simulation_options.h"
#include "sim/fleet/stream_watch.h"
#include "sim/fleet/trace_keys.h"
#include "sim/workload/distributions.h"

namespace troupe::sim {

class RequestDriver {
 public:
  struct Parts {  // all outlive it
    const SimulationOptions& options;
    EventQueue& events;
    SimFleet& fleet;
    SimGateways& gateways;
    const route::ExactResidency& residency;
    PrefixBlockCache& prefixes;
    RequestTable& requests;
    StreamWatch& streams;
    Recorder& recorder;
    Draw& draw;
  };
  explicit RequestDriver(const Parts& parts);
  RequestDriver(const RequestDriver&) = delete;
  RequestDriver& operator=(const RequestDriver&) = delete;

  // Fetches what the next arrival will need.
  void look_ahead(const TraceRequest& next);
  // Takes what `request`, looked ahead to, holds and leaves memory for the next.
  void arrive(TraceRequest& request);
  // A kDeliver.
  void deliver(uint64_t id);
  // A kSilent. Its node stands still: only then does a stream bring nothing for so long.
  void silent(uint64_t id, int32_t stall);
  void on_token(const SimNode::Token& token);
  SimAdmission& admission() { return admission_; }

  // Gateways see that their connections to it are broken: started streams end or go on elsewhere, the others
  // are sent again.
  void connections_break(route::NodeIndex node, uint64_t incarnation);
  // The run is over for all that are still on their way.
  void end_all();

  const RequestSums& sums() const { return sums_; }  // but for those on their way
  double decision_us() const;                        // mean

 private:
  SimAdmission::Surroundings queue_surroundings();
  SimGateway& gateway_of(const SimRequest& request) { return parts_.gateways[request.gateway]; }
  route::FlowContext context_of(SimRequest& request);
  route::Action choose(SimRequest& request);
  void perform(SimRequest& request, route::Action action, std::string_view trouble = kNoNode);
  void send(SimRequest& request);
  void fail(SimRequest& request, const route::Failure& failure);
  void first_token(SimRequest& request, const SimNode::Token& token);
  void last_token(SimRequest& request, const SimNode::Token& token);
  void end(SimRequest& request, TimePoint at, RequestEnd how, std::string_view why = kNotBegun);

  Parts parts_;
  SimAdmission admission_;
  TraceKeys keys_;
  RequestSums sums_;
  struct {
    int64_t timed = 0;
    double ns = 0;
  } decisions_;
};

}  // namespace troupe::sim

#pragma once

// The run behind simulate(): events in order of time, requests on their way, and the fleet. Private to
// simulator*.cc.

#include <deque>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "gateway/route/fleet/residency_feed.h"
#include "sim/fleet/conservation.h"
#include "sim/fleet/handovers.h"
#include "sim/fleet/loss_words.h"
#include "sim/fleet/node.h"
#include "sim/fleet/recent_sessions.h"
#include "sim/fleet/recorder.h"
#include "sim/fleet/sim_admission.h"
#include "sim/fleet/sim_gateway.h"
#include "sim/fleet/sim_prober.h"
#include "sim/fleet/simulator.h"
#include "sim/workload/distributions.h"

namespace troupe::sim {

class Simulation {
 public:
  Simulation(RequestSource& source, const SimulationOptions& options);
  StatusOr<Result> run();

 private:
  enum class EventKind : uint8_t {
    kDeliver,    // a request reaches its node: `value` is its id
    kStepEnd,    // node `index`; `value`: its life. None, unless it is the one expected
    kResidency,  // the oldest batch of events of node `index` reaches the gateways; `value`: its life
    kReports,
    kGossip,
    kPlan,
    kSecond,
    kDetect,  // connections to node `index` are seen broken; `value`: the life that ended
    kSilent,  // request `value` got nothing from its node for as long as its gateway waits; `index`: since
              // which of the node's stalls
    kProbe,   // of node `index`, by a gateway: SimProber's `value`
    kSeen,    // node `index` is seen alive again (or for the first time)
    kFault,   // faults[index]
    kFaultEnd,
    kHandover,  // what moves between nodes that join or leave
    kQueue,     // of gateway `index`: SimAdmission's `value`
  };
  struct Event {
    TimePoint at;
    uint64_t order;  // of posting: what is due at once happens in that order
    EventKind kind;
    int32_t index;
    uint64_t value;
    bool operator>(const Event& other) const { return at != other.at ? at > other.at : order > other.order; }
  };
  // A request from its arrival to its end, whichever nodes it visits. Between two of its events thousands of
  // others have theirs, so its first lines are what a token needs (kTokenBytes).
  struct SimRequest {
    alignas(64) uint64_t id = 0;  // of this try: try number over slot; 0: the slot is free
    uint64_t gateway_life = 0;
    int32_t gateway = 0, node = -1;
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
    uint64_t node_life = 0;             // of the node, when it was delivered
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
  static constexpr size_t kTokenBytes = 512;
  struct ResidencyBatch {
    route::ResidencyEvent::Kind kind;
    uint64_t epoch = 0, seq = 0;
    std::vector<route::ResidencyItem> items;
  };
  struct Node {
    std::unique_ptr<SimNode> engine;  // null while dead
    uint64_t life = 1;
    uint64_t residency_seq = 0;
    bool lose_next_residency = false;
    bool drains = false;  // it is gone once it has answered all
    TimePoint stalled_until{}, reports_lost_until{};
    int32_t stalls = 0;                 // so far
    std::vector<uint64_t> undelivered;  // requests that reached it while it stands still
    std::vector<RequestId> given_up;    // it has them still, and their gateways have turned away from it
    TimePoint answers_from{};           // probes, after it has come back
    TimePoint step_end{};               // that is expected
    std::deque<ResidencyBatch> on_the_way;
    TimePoint residency_due{};  // of the last of them

    void drop_given_up();
  };

  // simulator.cc
  void post(TimePoint at, EventKind kind, int32_t index = 0, uint64_t value = 0);
  void handle(const Event& event);
  Status start();
  StatusOr<bool> read(TraceRequest& next);
  void look_ahead(const TraceRequest& next);
  void fetch_ahead(const Event& next) const;
  void arrive(TraceRequest& request);
  void make_key(SimRequest& sim_request);
  route::Action choose(SimRequest& sim_request);
  route::FlowContext context_of(SimRequest& sim_request);
  void perform(SimRequest& sim_request, route::Action action, std::string_view trouble = kNoNode);
  void send(SimRequest& sim_request);
  void deliver(uint64_t id);
  void fail(SimRequest& sim_request, const route::Failure& failure);
  void end_flight(SimRequest& sim_request, TimePoint at, RequestEnd end, std::string_view why = kNotBegun);
  SimRequest* find(uint64_t id);
  void kick(int32_t node);
  void expect_step_end(int32_t node, TimePoint at);
  void interrupt(int32_t node);
  void end_step(int32_t node);
  void watch_silence(const SimRequest& sim_request, TimePoint received);
  void silent(uint64_t id, int32_t stall);
  void on_token(int32_t node, const SimNode::Token& token);
  SimGateway& gateway_of(const SimRequest& sim_request) {
    return *gateways_[static_cast<size_t>(sim_request.gateway)];
  }

  // simulator_fleet.cc: messages between nodes and gateways, and faults
  void add_node();
  bool nodes_report() const;
  void report_empty(int32_t node);
  void report_residency(int32_t node);
  void send_residency(int32_t node, ResidencyBatch batch, Duration delay);
  void deliver_residency(int32_t node);
  void send_snapshot(int32_t node);
  static constexpr int32_t kReportSlots = 16;  // of a report interval
  void reports(int32_t slot);
  void gossip();
  void plan();
  void second_over();
  void begin_fault(const Fault& fault);
  void end_fault(const Fault& fault);
  std::vector<SimRequest*> requests_at(int32_t node, uint64_t life);
  void note_progress(SimRequest& sim_request) const;
  void kill(int32_t node);
  void pool_changed();
  void detect(int32_t node, uint64_t life);
  void stall(int32_t node, TimePoint until);
  void end_stall(int32_t node);
  void saw_probe(size_t gateway, int32_t node, bool answered);
  // simulator_handover.cc
  void keep_prefix(const SimRequest& sim_request);
  void begins_empty(SimGateway& gateway, route::NodeIndex node);
  void hand_over();
  void compute_ahead(size_t gateway, route::Handover::Move move);
  void computed_ahead(RequestId id);
  void nothing_ahead_at(int32_t node);
  SimNode::NewSimRequest begin_ahead(const Handovers::Ahead& ahead);
  bool send_ahead(route::NodeIndex node, SimNode::NewSimRequest sim_request);
  void keep_handing_over();
  // simulator_drain.cc
  void begin_leaving(size_t gateway, route::NodeIndex node, TimePoint until);
  void carry_conversations();
  bool carry(const Handovers::Leaving& leaving, const route::MovedConversation& moved);
  void carried(const Handovers::Ahead& ahead);
  void end_leaving();

  std::vector<NodeSums> sums_of(size_t first_node, size_t count) const;
  void check_conservation(size_t first_node, size_t count) const;

  RequestSource& source_;
  SimulationOptions options_;
  TimePoint now_{};
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t event_count_ = 0, events_posted_ = 0;

  std::vector<std::unique_ptr<SimGateway>> gateways_;
  std::vector<uint64_t> gateway_lives_;
  SimAdmission admission_;
  SimProber prober_;
  std::shared_ptr<route::ExactResidency> residency_;
  std::vector<Node> nodes_;
  route::SetLoadMerger set_loads_;
  Recorder recorder_;
  Draw draw_;

  std::deque<SimRequest> requests_;  // by slot; a deque, because references are kept across arrivals
  std::vector<uint32_t> free_slots_;
  uint64_t tries_ = 0;
  RequestSums sums_;  // but for those on their way
  int64_t live_ = 0;
  int32_t seconds_done_ = 0;

  std::vector<Resident> changes_;
  Hash128 next_set_, next_session_;  // of the next arrival
  RecentSessions recent_sessions_;
  bool keeps_prefixes_ = false;  // some fault is about to make a node begin empty, or leave
  Handovers handovers_;
  std::vector<Handovers::Leaving> leaving_;
  bool handing_over_ = false;  // kHandover is posted
  struct {
    int64_t timed = 0;
    double ns = 0;
  } decisions_;
};

}  // namespace troupe::sim

#pragma once

// The nodes that a gateway knows: which there are, whether each may be sent requests and with what share, and
// the view of the cluster that follows. A state machine: events go in (probes, notices, an operator's words),
// actions for the driver and a new view come out. gateway/cluster/fleet performs the actions with sockets and
// metrics, sim/fleet/sim_gateway on a virtual clock, and neither holds a rule of its own.
//
//               add() ──> joining ──probe ok──> ready <──probe ok, add()── draining
//                            │                    │ └──notice, drain()───────> │
//                            └──probe failed──> dead <────failures in a row────┘       remove(): gone
//
// - Health: health.h. Every change is a new view; a death also forgets what the node held.
// - Drain: an operator drains a node, or it gives notice itself. Its sets have until then to move, and it
//   counts as *leaving*; then handover_done(), and it is sent nothing new. add() ends an operator's drain, a
//   good probe a notice's (another program is there). A node that is retired is removed once it has left.
// - Ramp: a node that can be routed to again, or whose cache began anew, holds nothing. Where sets are known
//   its share rises from a tenth, so that it is not flooded with sets that no node holds.
// - Slots: node_slots.h.
// - First look: until every node of the start has been probed, "no node" is a guess.
//
// Sans-io: time is an argument. Not thread-safe.

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>
#include <absl/container/inlined_vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/core/status.h"
#include "common/core/time.h"
#include "gateway/route/fleet/health.h"
#include "gateway/route/fleet/node_slots.h"
#include "gateway/route/fleet/view.h"

namespace troupe::route {

// Weight of a node at a time after its join: it rises from a tenth to 1 within `ramp`. In steps, as each is a
// new view of the cluster.
double ramp_weight(Duration joined_for, Duration ramp);

struct NodeRegistryOptions {
  HealthOptions health;
  int64_t in_flight_max = 0;  // a node; 0: no bound
  // Nodes at once, those included that were removed and whose slot a request or stream still holds.
  size_t nodes_max = 4096;
  Duration ramp = std::chrono::seconds(10);  // to full weight, of a node that joins while others serve
};

struct NewNode {
  std::string id, url;
  std::vector<std::string> models{};  // as far as they are known
  double capacity = 1;                // its share beside the others, once it has all of it
};

// The models that a node was found to serve.
struct NodeService {
  std::vector<std::string> models;
  std::vector<int64_t> contexts{};  // of each, in tokens; 0, or no entry: not known
  bool is_troupe_worker = false;    // Troupe's own, not another kind of server
  bool operator==(const NodeService&) const = default;
};

// The driver performs each, in their order.
struct NodeAction {
  enum class Kind : uint8_t {
    kForget,      // what the router knows of the node: its cache is empty, or gone
    kDisconnect,  // end the node's idle connections; its reports are no longer true
    kStay,        // its sets stay: Handover::come_back()
    kAdopt,       // `view` is the cluster from here on
    kMoveSets,    // its sets have until `until` to move; then handover_done()
    kFillCache,   // it holds nothing: have computed there what it is to hold
    kProbe,       // at once
    kFollow,      // it has joined: probe it from here on
    // Done already, for the log.
    kChangedState,  // from `before`
    kDrains,
    kGaveNotice,
    kRemoved,
  };
  Kind kind;
  NodeIndex node = kNoNode;
  TimePoint until{};
  NodeState before = NodeState::kUnknown;
  std::shared_ptr<const ClusterView> view{};
};
using NodeActions = absl::InlinedVector<NodeAction, 4>;

// A node by its slot. Only the registry changes it.
struct RegisteredNode {
  enum class Membership : uint8_t {
    kMember,
    kRetired,  // leaves, to be removed then
    kRemoved,  // its slot may be another's soon
  };
  enum class Departure : uint8_t {
    kNone,
    kLeaving,  // its sets are on their way
    kLeft,     // they have moved, or it died over it: avoided until it comes back
  };
  std::string id, url;
  NodeService service;
  NodeHealth health;
  Membership membership = Membership::kMember;
  Departure departure = Departure::kNone;
  bool drained = false;   // by an operator
  bool notified = false;  // by its own notice
  std::string cache_epoch;
  double capacity = 1;
  double weight = 1;                   // of its capacity, for now
  std::optional<TimePoint> joined_at;  // while its share rises

  bool member() const { return membership != Membership::kRemoved; }
  bool leaving() const { return departure == Departure::kLeaving; }
  bool healthy() const {
    return health.state() == NodeState::kAlive || health.state() == NodeState::kSuspect;
  }
  // As the view has it while it does not leave. A removed node counts as dead.
  NodeState state() const;
  bool probed() const { return health.state() != NodeState::kUnknown; }
  // By its probes, not by an operator's word.
  bool known_dead() const { return member() && health.state() == NodeState::kDead; }
};

// Nodes that await their first probe.
class InitialProbing {
 public:
  bool over() const { return nodes_.empty() && !awaits_members(); }
  // Discovery is to name the members: nodes that are added until members_known() count as there at the
  // start.
  void await_members() { awaits_members_ = true; }
  void members_known() { awaits_members_ = false; }  // discovery has named them all, or there is none
  // The same of names that are still to be looked up.
  void await_names() { awaits_names_ = true; }
  void names_known() { awaits_names_ = false; }
  bool awaits_members() const { return awaits_members_ || awaits_names_; }
  void await(NodeIndex node) { nodes_.insert(node); }
  void seen(NodeIndex node) { nodes_.erase(node); }

 private:
  absl::flat_hash_set<NodeIndex> nodes_;
  bool awaits_members_ = false, awaits_names_ = false;
};

class NodeRegistry {
 public:
  // Facts that the rules depend on besides an event.
  struct Moment {
    TimePoint now{};
    bool moves_sets = false;  // the driver performs kMoveSets and kFillCache; else a draining node just ends
    bool knows_sets = false;  // the router has seen some
  };
  // The nodes of the start; view() has them.
  NodeRegistry(const NodeRegistryOptions& options, std::vector<NewNode> nodes);

  // Health, bound and ramp are these from now on.
  NodeActions change(const NodeRegistryOptions& options);

  struct Added {
    NodeIndex node = kNoNode;
    bool connect = false;   // the node is new here, or reached by another url than before
    bool replaces = false;  // another node had this slot, and nothing that was kept of it is true of this one
    NodeActions actions;
  };
  // A node joins, or comes back from drain() or remove(). `comes_back` false: a known one that is drained or
  // removed stays so, and is only reached in another way. kResourceExhausted: more are here than are
  // followed.
  StatusOr<Added> add(NewNode added, bool comes_back = true);
  // New requests go elsewhere, those of its sets when these have moved; running ones end as they do. Until
  // add().
  NodeActions drain(NodeIndex node, const Moment& moment);
  // The same, and then remove().
  NodeActions retire(NodeIndex node, const Moment& moment);
  // At once and for good: what it held is forgotten.
  NodeActions remove(NodeIndex node);

  // Probes and requests saw the same of these nodes; one view for all of them.
  NodeActions on_event(std::span<const NodeIndex> nodes, HealthEvent event, const Moment& moment);
  // A probe's answer: the node is not ready any more and takes requests for so long still.
  NodeActions saw_notice(NodeIndex node, Duration takes_requests_for, const Moment& moment);
  // Names the life of the node's cache, as a load report or a residency event has it: a new one means that
  // the cache began empty.
  NodeActions saw_cache_epoch(NodeIndex node, std::string_view epoch, const Moment& moment);
  NodeActions set_service(NodeIndex node, NodeService service);
  // Its sets have moved. REQUIRES: it is leaving().
  NodeActions handover_done(NodeIndex node);
  // By and by, nodes that joined weigh more. To be called now and then while ramps().
  NodeActions ramp(TimePoint now);
  bool ramps() const { return !ramping_.empty(); }

  const std::shared_ptr<const ClusterView>& view() const { return view_; }
  std::span<const RegisteredNode> nodes() const { return nodes_; }  // by slot
  std::optional<NodeIndex> find(std::string_view id) const;         // of members
  std::optional<NodeIndex> find_slot(std::string_view id) const;  // of removed nodes too, while it is theirs
  NodeSlots& slots() { return slots_; }
  InitialProbing& initial_probing() { return initial_probing_; }
  const InitialProbing& initial_probing() const { return initial_probing_; }

 private:
  bool learn(NodeIndex index, HealthEvent event, TimePoint now, NodeActions& actions);
  void begin_leaving(NodeIndex index, const Moment& moment, TimePoint until, NodeActions& actions);
  void begin_empty(NodeIndex index, const Moment& moment, NodeActions& actions);
  void take_out(NodeIndex index, NodeActions& actions);
  void publish(NodeActions& actions);

  NodeRegistryOptions options_;
  NodeSlots slots_;
  InitialProbing initial_probing_;
  std::vector<RegisteredNode> nodes_;
  absl::flat_hash_map<std::string, NodeIndex>
      by_id_;                       // removed nodes included, until their slot is another's
  std::vector<NodeIndex> ramping_;  // their share rises
  uint64_t view_epoch_ = 0;
  std::shared_ptr<const ClusterView> view_;
};

}  // namespace troupe::route

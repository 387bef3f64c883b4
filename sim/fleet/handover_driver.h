#pragma once

// Sets and conversations that move when nodes join or leave: the driver of every gateway's route::Handover
// and route::ConversationHandover on the virtual clock, as gateway/cluster/prefix_migrator.h and
// conversation_migration.h are over sockets.
//
// A node whose cache begins empty has the sets that it is to have computed there before their requests come,
// and its share rises (SimGateway::ramp). Of one that is asked to go, the conversations come first, then the
// sets, one by one, each computed where its requests go from then on. The node answers what it has, and is
// gone.

#include <cstdint>
#include <memory>
#include <vector>

#include "gateway/route/placement/conversation_handover.h"
#include "gateway/route/placement/handover.h"
#include "sim/fleet/background_prefills.h"
#include "sim/fleet/event_queue.h"
#include "sim/fleet/prefix_block_cache.h"
#include "sim/fleet/sim_fleet.h"
#include "sim/fleet/sim_gateways.h"
#include "sim/fleet/simulation_options.h"

namespace troupe::sim {

class HandoverDriver {
 public:
  struct Parts {  // all outlive it
    const SimulationOptions& options;
    EventQueue& events;
    SimFleet& fleet;
    SimGateways& gateways;
    const PrefixBlockCache& prefixes;
  };
  // The gateways call it when a node begins empty, and when one gives notice.
  explicit HandoverDriver(const Parts& parts);
  HandoverDriver(const HandoverDriver&) = delete;
  HandoverDriver& operator=(const HandoverDriver&) = delete;

  // Posts the next kHandover, if none is.
  void keep_going();
  // A kHandover. True: something still moves, or some share rises.
  bool advance();
  // True: a node that drains has nothing left to hand on, and no request needs it.
  bool has_left(route::NodeIndex node);
  // A node has computed the prompt of this id.
  void computed(RequestId id);
  // It has not computed what was under way there.
  void node_stopped(route::NodeIndex node);
  // Called before it does.
  void gateway_restarts(size_t gateway);

 private:
  using Prefill = BackgroundPrefills::Prefill;
  // The conversations of a node that leaves, at one gateway.
  struct Leaving {
    size_t gateway = 0;
    uint64_t incarnation = 0;  // of the node, which leaves once in each
    std::vector<route::MovedConversation> conversations{};
    std::unique_ptr<route::ConversationHandover> moves{};
  };

  void begins_empty(size_t gateway, route::NodeIndex node);
  void begin_leaving(size_t gateway, route::NodeIndex node, TimePoint until);
  void carry_conversations();
  bool carry(const Leaving& leaving, const route::MovedConversation& moved);
  void carried(const Prefill& prefill);
  void compute_ahead(size_t gateway, route::Handover::Move move);
  SimNode::NewSimRequest begin_prefill(const Prefill& prefill);
  bool send_prefill(route::NodeIndex node, SimNode::NewSimRequest request);
  bool forgotten(const Prefill& prefill) const;  // by its gateway

  Parts parts_;
  BackgroundPrefills prefills_;
  std::vector<Leaving> leaving_;  // gone before their gateways' routers are
  bool going_ = false;            // kHandover is posted
};

}  // namespace troupe::sim

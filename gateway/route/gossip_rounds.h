#pragma once

// One gateway's side of the gossip of all: what it sends to each peer and when, and what it takes of their
// messages. Pure: the owner carries messages, with whatever delays and losses, and keeps the timers; a live
// gateway encodes them (gateway/cluster/gossip.h), a simulator hands them over as they are.
//
// clang-format off
//   collect(now)               every GossipRules::interval: what the router has new is queued for every peer
//   at = next_check(peer)      then: send_due(peer, now)? → begin(peer, now) is on its way to the peer
//   answered(peer, a, now)     its outcome, exactly once for every begin()
//   or failed(peer, now)
//   receive(m, now)            a peer's message, at any time
// clang-format on
//
// - a message goes out when something is new, when the peer lacks the table, when the peer is not known to
//   answer, when it may be the gateway that has just begun to speak, and every GossipRules::refresh
// - a peer that fails is tried at intervals that double. Its placements wait, the newest of them, and those
//   on nodes that have died since are dropped; a ledger does not wait, for the next one replaces it
// - a peer with a new name has just begun and knows nothing: the gateway with the smallest name sends it all
//   placements there are
// - a sender that is silent for GossipRules::forget_after is forgotten with its ledger
//
// Not thread-safe.

#include <absl/container/flat_hash_set.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"
#include "common/core/time.h"
#include "gateway/route/placement/gateways.h"
#include "gateway/route/placement/gossip.h"
#include "gateway/route/router.h"

namespace troupe::route {

struct GossipRules {
  int64_t gateways = 1;  // share the fleet at least, however many are known
  bool ledger = false;   // send and use ledgers of requests in flight
  Duration interval = std::chrono::milliseconds(20);
  Duration refresh = std::chrono::seconds(1);  // all of the ledger, whether it changed or not
  Duration retry_max = std::chrono::seconds(5);
  Duration forget_after = std::chrono::seconds(3);
  size_t placements_max = kPlacementsPerPeerMax;  // waiting for a peer; the oldest are dropped
  size_t senders_max = 1024;
  size_t table_bytes_max = 14u << 20;  // a longer table is not sent
};

// Views of what the sender keeps until the message's outcome, or of what the receiver has decoded.
struct GossipMessage {
  std::span<const Placement> placements;
  std::span<const PeerLoad> ledger;
  GatewayAnnouncement announcement;
  std::string_view table;      // for a peer that lacks it, else empty
  std::string_view sample;     // of the sets' loads; empty: nothing new
  size_t table_too_large = 0;  // bytes of the table that was therefore left out
};

// Outcome of a message or an answer, for the log.
struct GossipNotes {
  std::optional<bool> answers;  // the peer's first outcome, or another than its last
  bool is_self = false;         // the peer is this gateway: it gets no more messages
  bool wakes = false;           // a gateway has begun to speak: next_check() of some peers is now
  bool other_sets = false;      // first announcement of a gateway that divides sets in another way
};

class GossipRounds {
 public:
  using Peer = uint32_t;  // a number of the owner's choice

  // REQUIRES: `router` outlives it.
  GossipRounds(const GossipRules& rules, Router& router);

  // REQUIRES: the number is not in use.
  void add(Peer peer, TimePoint now);
  // Its outcome is awaited no more. REQUIRES: as all calls that name a peer, that it was added.
  void remove(Peer peer);

  void collect(TimePoint now);
  // Time of the next send_due(), unless a message is on its way.
  TimePoint next_check(Peer peer) const;
  // True: a message is due.
  bool send_due(Peer peer, TimePoint now);
  // REQUIRES: none is on its way to the peer.
  GossipMessage begin(Peer peer, TimePoint now);
  // With the announcement of the gateway that answered; none: of another kind than a gateway's, and it gets
  // what it accepts.
  GossipNotes answered(Peer peer, const std::optional<GatewayAnnouncement>& by, TimePoint now);
  GossipNotes failed(Peer peer, TimePoint now);

  // Takes what the gateway that message.announcement names has sent. The error names what is malformed, or
  // says that there are more gateways than are followed.
  StatusOr<GossipNotes> receive(const GossipMessage& message, TimePoint now);
  // The answer to any message: this gateway's own announcement.
  GatewayAnnouncement answer() const { return router_.planning().announcement(); }

  // Another worker has the slot from now on: queued placements and loads of the last one are dropped.
  void forget_node(NodeIndex node);

  uint64_t dropped() const { return dropped_; }  // placements, so far
  // Gateways that announced themselves lately and divide sets in another way.
  size_t other_sets() const;

 private:
  struct PeerState {
    std::vector<Placement> placements;
    std::map<NodeIndex, PeerLoad> ledger;  // by node: a receiver's roundings must not hang on a hash
    // The message on its way.
    bool under_way = false;
    std::vector<Placement> placements_sent;
    std::vector<PeerLoad> ledger_sent;
    std::string sample;

    bool self = false;
    bool tried = false;      // a message had an outcome
    bool hello_due = false;  // a message is due, whether something is new or not
    Hash128 name;            // as it answered last
    TimePoint next_check{}, sent_at{};
    TableVersion table_sent;
    TimePoint table_sent_at{};
    uint64_t sample_sent = 0;
    Duration pause{};  // after a failure; zero: it answers
  };
  struct Sender {
    uint32_t number = 0;
    TimePoint received_at{};
  };
  bool has_stale_table(const PeerState& peer, TimePoint now) const;
  void drop_oldest(PeerState& peer);
  void drop_dead_nodes(PeerState& peer) const;
  void put_table(PeerState& peer, TimePoint now, GossipMessage& message);
  void queue_full_sync(PeerState& peer);
  void queue_hellos(const Hash128& sender, TimePoint now);
  void leave_out(PeerState& peer);
  GossipNotes end(PeerState& peer, bool answers, TimePoint now);
  bool observe(const GatewayAnnouncement& announcement, TimePoint now);
  bool owes_full_sync(const Hash128& newcomer) const;
  void forget_silent(TimePoint now);

  const GossipRules rules_;
  Router& router_;
  std::map<Peer, PeerState> peers_;
  TimePoint refreshed_at_{};
  std::map<Hash128, Sender> senders_;  // by name, likewise
  uint32_t sender_count_ = 0;
  absl::flat_hash_set<Hash128> differing_;  // gateways, already noted
  uint64_t dropped_ = 0;
};

}  // namespace troupe::route

#pragma once

// Gossip of the gateways of one fleet, at the metrics port (POST /admin/gossip): placements, from which a
// gateway knows what the others' requests left on nodes that do not report it; the table, which one gateway
// plans for all (route/placement/gateways.h), and each one's samples of the sets' loads where workers do not
// report them; and, if configured, their ledgers of requests in flight. All are values, sent when they change
// and again every second, so a lost message heals; it costs a hit, never correctness. What is sent to whom,
// and when, is decided by GossipRounds (route/gossip_rounds.h); here are its sockets, timers and bytes:
//
//   message: placements; ledger; announcement; the table, for a peer that lacks it, else empty; loads of
//   sets,
//            if new, else empty. Each after its length, 4 bytes.  (route/placement/gossip.h, table_codec.h)
//   answer:  name, 32 hex digits; announcement
//
// Where the fleet has a secret, both are sealed (gossip_auth.h): an unsealed message is refused, and one that
// was sent before, or to another life of this gateway, is answered with the challenge to seal.
//
// All calls on the io_context's thread.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/log.h"
#include "common/core/metrics.h"
#include "common/core/status.h"
#include "common/core/time.h"
#include "common/net/http_client.h"
#include "common/net/task_group.h"
#include "gateway/cluster/gossip_auth.h"
#include "gateway/route/gossip_rounds.h"
#include "gateway/route/router.h"

namespace troupe {

class SettingsSchema;

inline constexpr std::string_view kGossipPath = "/admin/gossip";
inline constexpr std::string_view kGossipSenderHeader = "x-troupe-gateway";

struct GossipOptions {
  // The others' metrics ports. This gateway's own may be among them, as in a list that all of them share: its
  // answer shows it, and it is left out.
  std::vector<Endpoint> peers;
  bool finds = false;                    // others, which found() names
  std::shared_ptr<const TlsSource> tls;  // for peers with https
  GossipAuth seal;                       // of the fleet's secret: what lacks it is neither taken nor heeded
  Duration timeout = std::chrono::milliseconds(500);
  route::GossipRules rules;
};
// Describes gossip.interval_ms, .ledger. `options` must outlive the schema.
void describe(SettingsSchema& schema, GossipOptions& options);
// A message is no longer: an eighth for what is placed and in flight, the rest for the table.
inline constexpr size_t kGossipBytesMax = 16u << 20;

class Gossip {
 public:
  struct Parts {
    Executor executor;
    route::Router& router;
    Metrics& metrics;
    const Clock& clock;
    const Logger& log;
  };
  Gossip(const GossipOptions& options, const Parts& parts);
  ~Gossip();
  Gossip(const Gossip&) = delete;
  Gossip& operator=(const Gossip&) = delete;

  // Endless tasks in `group`, which outlives this: cancel the group to stop them. None without peers, where
  // none are found either.
  void start(TaskGroup& group);
  // The complete list of gateways besides those of the options: one found before and missing here gets no
  // more messages. REQUIRES: GossipOptions::finds; start() was called.
  void found(const std::vector<Endpoint>& peers);

  // A peer's message, with the values of its headers.
  struct Received {
    std::string_view sender;
    std::string_view seal;
    std::string_view stamp;
    std::string_view message;
  };
  struct Answer {
    std::string body;
    std::string seal;       // empty: none is needed
    bool is_stale = false;  // the message's stamp: the body is the challenge, and nothing was taken
  };
  // The answer to it, or an error that says what is malformed; kPermissionDenied: its seal is not the
  // fleet's.
  StatusOr<Answer> receive(const Received& received);
  double refused() const { return refused_.Value(); }  // for want of a seal or a fresh stamp
  // Another worker has the slot from now on: queued placements and loads of the last one are dropped.
  void forget_node(route::NodeIndex node) { rounds_.forget_node(node); }
  // A message with this for a seal may turn out to be one of the fleet's.
  bool may_take(std::string_view seal) const { return !options_.seal.is_needed() || !seal.empty(); }

 private:
  struct Peer;
  Task<void> collect();
  void add_peer(const Endpoint& endpoint, bool was_found);
  Task<void> exchange(std::shared_ptr<Peer> with);
  // The body of the peer's answer, if it took the message.
  Task<std::optional<std::string>> send(Peer& peer, std::string body);
  struct Reply {
    int status = 0;
    std::string body;
  };
  // Its answer, if that has the fleet's seal.
  Task<std::optional<Reply>> post(Peer& peer, const std::string& body, Deadline deadline);
  std::string encode(const Peer& peer, const route::GossipMessage& message) const;
  StatusOr<std::string> take_message(const Hash128& sender, std::string_view message);
  void wake();
  void note(Peer& peer, const route::GossipNotes& notes);
  void note_other_sets(const route::GatewayAnnouncement& announcement);
  void count();

  const GossipOptions options_;
  Executor executor_;
  route::Router& router_;
  Metrics& metrics_;
  const Clock& clock_;
  const Logger& log_;
  const Hash128 name_;  // of this life, that the router has
  Counter& sent_;
  Counter& received_;
  Counter& dropped_;
  Counter& refused_;
  Gauge& other_sets_;
  route::GossipRounds rounds_;
  GossipFreshness freshness_;
  uint64_t sealed_ = 0;  // messages
  uint64_t dropped_counted_ = 0;
  std::vector<std::shared_ptr<Peer>> peers_;
  route::GossipRounds::Peer peer_count_ = 0;  // ever
  TaskGroup* group_ = nullptr;
};

}  // namespace troupe

#pragma once

// A gateway of the fault simulation: the real Router, the health of every node as this gateway sees it, and
// the ways in which a live gateway drives them. After each of its steps it checks what must always hold; the
// first breach is kept, in words.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gateway/route/fleet/health.h"
#include "gateway/route/gossip_rounds.h"
#include "gateway/route/placement/shared_loads.h"
#include "gateway/route/router.h"
#include "tests/gateway/faults/worker.h"

namespace troupe::route::faults {

class FaultGateway {
 public:
  // `peers`: numbers of the gateways that it sends gossip to.
  FaultGateway(const RouterOptions& options, const std::vector<GossipRounds::Peer>& peers, uint64_t seed,
               TimePoint now);

  // False: its router is told of no death, which must be noticed.
  bool hears_of_deaths = true;

  // The oldest nodes first; the models each serves.
  void add_node(std::vector<std::string> models, TimePoint now);
  void on_event(NodeIndex node, HealthEvent event, TimePoint now);
  void restart(uint64_t seed, TimePoint now);
  uint64_t lives() const { return lives_; }

  // A request's way: whom to ask (the first is asked), then what became of it. A ticket of an earlier life of
  // this gateway is forgotten.
  struct Ticket {
    uint64_t gateway_life = 0;
    PrefixKey key;
    std::string model;
    Decision decision;
    size_t tried = 0;
    InFlight sent;
    NodeIndex node() const { return sent.node; }
  };
  // False where nobody can be asked.
  bool begin(Ticket& ticket, TimePoint now);
  bool try_next(Ticket& ticket, TimePoint now);
  void first_byte(Ticket& ticket, TimePoint now);
  void finish(Ticket& ticket, const std::optional<AnswerCounts>& counts, TimePoint now);

  void report(NodeIndex node, const NodeReport& report, TimePoint now);
  FeedResult residency(NodeIndex node, const WireEvent& event);
  void residency_lost(NodeIndex node) { router_->residency_lost(node); }
  // By what it and the others have sent, or by loads that somebody tells.
  void plan(TimePoint now);
  void plan(TimePoint now, const SetLoads& loads);

  // A message of gossip on its way, placements and ledger as they travel.
  struct Letter {
    std::string placements, ledger;
    GatewayAnnouncement announcement;
    std::string table, sample;
  };
  GossipRounds& rounds() { return *rounds_; }
  Letter write_to(GossipRounds::Peer peer, TimePoint now);
  void receive(const Letter& letter, TimePoint now);
  // An answer to a letter.
  void answered(GossipRounds::Peer peer, const GatewayAnnouncement& by, TimePoint now);

  Router& router() { return *router_; }
  const NodeHealth& health(NodeIndex node) const { return health_[node]; }
  size_t nodes() const { return health_.size(); }
  void check_table();
  // Costly: both directions of what is known of residency agree.
  void check_indices();
  const std::string& breach() const { return breach_; }
  // In words a digest can be made of: who is home to what.
  std::string table_text() const { return text_of(*router_->table()); }

 private:
  static std::string text_of(const SetTable& table);
  void begin_life(uint64_t seed, TimePoint now);
  // Does what another gateway's announcement or table call for, and checks the table that counts afterwards.
  template <typename Take>
  void hear(const GatewayAnnouncement& announcement, const std::string& table, TimePoint now, Take take);
  void publish();
  void check_kv(const SetLoads& loads);
  bool extend(Ticket& ticket, TimePoint now);
  void check_order(const Ticket& ticket);
  void check_counts();
  void check_dead();
  void check_twin();
  void breach_if(bool broken, const std::string& what);
  bool may_be_asked(NodeIndex node) const;
  bool may_be_spared(NodeIndex node) const;

  RouterOptions options_;
  const std::vector<GossipRounds::Peer> peers_;
  std::unique_ptr<Router> router_;
  std::unique_ptr<GossipRounds> rounds_;
  // Is told of the same cluster, sizes, loads and gateways, and of nothing else: a table is to follow from
  // those alone.
  std::unique_ptr<Router> twin_;
  // The loads that its router plans by where gateways sample them themselves, and when it last did.
  SharedLoads others_;
  TimePoint planned_at_{};
  std::vector<NodeHealth> health_;
  std::vector<std::vector<std::string>> models_;
  uint64_t view_epoch_ = 0, lives_ = 1;
  std::vector<int64_t> open_;  // requests sent and not finished, by node, as this class counts them
  std::string breach_;
};

}  // namespace troupe::route::faults

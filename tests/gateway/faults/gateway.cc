#include "tests/gateway/faults/gateway.h"

#include <algorithm>
#include <set>
#include <utility>

namespace troupe::route::faults {

namespace {

constexpr Duration kGossipInterval = std::chrono::milliseconds(50);

// Pauses that are over before the end, however often they grew.
HealthOptions health_options() {
  HealthOptions options;
  options.errors_for = std::chrono::seconds(1);
  options.errors_for_max = std::chrono::seconds(8);
  return options;
}

std::string name_of(NodeIndex node) {
  return "n" + std::to_string(node);
}

}  // namespace

FaultGateway::FaultGateway(const RouterOptions& options, const std::vector<GossipRounds::Peer>& peers,
                           uint64_t seed, TimePoint now)
    : options_(options), peers_(peers), others_(Duration::zero()) {
  begin_life(seed, now);
}

void FaultGateway::begin_life(uint64_t seed, TimePoint now) {
  options_.name = chain_hash(Hash128{0, seed}, std::string_view("gateway"));
  router_ = std::make_unique<Router>(options_, seed);
  twin_ = std::make_unique<Router>(options_, seed + 1);
  others_ = SharedLoads(3 * options_.planner.tick + Gateways::kSilence);
  planned_at_ = {};
  GossipRules rules;
  rules.gateways = options_.affinity.gateways;
  rules.ledger = options_.affinity.peer_ledger;
  rules.interval = kGossipInterval;
  rounds_ = std::make_unique<GossipRounds>(rules, *router_);
  for (const GossipRounds::Peer peer : peers_) rounds_->add(peer, now);
}

void FaultGateway::add_node(std::vector<std::string> models, TimePoint now) {
  models_.push_back(std::move(models));
  health_.emplace_back(health_options()).on_event(HealthEvent::kProbeOk, now);
  open_.push_back(0);
  publish();
}

void FaultGateway::on_event(NodeIndex node, HealthEvent event, TimePoint now) {
  if (node >= health_.size() || !health_[node].on_event(event, now)) return;
  if (health_[node].state() == NodeState::kDead) {
    router_->forget_node(node);
    twin_->forget_node(node);
    open_[node] = 0;
  }
  publish();
  check_dead();
}

void FaultGateway::restart(uint64_t seed, TimePoint now) {
  lives_ += 1;
  begin_life(seed, now);
  std::fill(open_.begin(), open_.end(), 0);
  for (NodeHealth& health : health_) {
    const bool alive = health.state() == NodeState::kAlive || health.state() == NodeState::kSuspect;
    health = NodeHealth(health_options());
    health.on_event(alive ? HealthEvent::kProbeOk : HealthEvent::kProbeFail, now);
  }
  publish();
}

void FaultGateway::publish() {
  std::vector<NodeView> nodes(health_.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    nodes[i].id = name_of(static_cast<NodeIndex>(i));
    nodes[i].state = health_[i].state();
    if (!hears_of_deaths && nodes[i].state == NodeState::kDead) nodes[i].state = NodeState::kAlive;
    nodes[i].models = models_[i];
    nodes[i].failing = health_[i].failing();
  }
  const auto view = std::make_shared<ClusterView>(++view_epoch_, std::move(nodes));
  router_->update_cluster(view);
  twin_->update_cluster(view);
  check_table();
  check_counts();
}

bool FaultGateway::begin(Ticket& ticket, TimePoint now) {
  ticket.gateway_life = lives_;
  if (!ticket.key.anchors.empty()) router_->refine(ticket.key);
  ticket.decision = router_->decide(ticket.key, ticket.model, now);
  ticket.tried = 0;
  check_order(ticket);
  check_dead();
  return try_next(ticket, now);
}

// Candidates that have died since the decision are passed over, as a live gateway does (failover.cc).
bool FaultGateway::try_next(Ticket& ticket, TimePoint now) {
  if (ticket.gateway_life != lives_) return false;
  const CandidateOrder& order = ticket.decision.order;
  while (ticket.tried < order.size() && !router_->view().routable(order[ticket.tried].node))
    ticket.tried += 1;
  if (ticket.tried == order.size() && !extend(ticket, now)) return false;
  const Candidate& candidate = order[ticket.tried++];
  breach_if(!may_be_asked(candidate.node), name_of(candidate.node) + " is asked, and known not to answer");
  ticket.sent = router_->on_sent(ticket.key, ticket.model, candidate, now);
  open_[candidate.node] += 1;
  check_counts();
  return true;
}

// A strict set whose homes all failed gets another one; it has none only where nobody else may have it.
bool FaultGateway::extend(Ticket& ticket, TimePoint now) {
  Decision at_twin = ticket.decision;
  const bool goes_on = router_->extend(ticket.key, ticket.model, ticket.decision, now);
  twin_->extend(ticket.key, ticket.model, at_twin, now);
  check_table();
  const Homes* homes = router_->table()->find(ticket.key.set, ticket.model);
  if (goes_on) {
    const NodeIndex next = ticket.decision.order[ticket.tried].node;
    breach_if(homes == nullptr || !homes->contains(next), name_of(next) + " is asked and not a home");
  } else if (router_->may_extend(ticket.key, ticket.decision)) {
    for (size_t i = 0; i < router_->table()->origin().strict_sets; ++i) {
      const auto found = router_->table()->sets().find(SetTable::strict_name(ticket.model, i));
      if (found == router_->table()->sets().end()) continue;
      for (const NodeIndex n : found->second.nodes())
        breach_if(!ticket.decision.order.contains(n),
                  "a request is given up that " + name_of(n) + " may take");
    }
  }
  return goes_on;
}

void FaultGateway::first_byte(Ticket& ticket, TimePoint now) {
  if (ticket.gateway_life == lives_) router_->first_byte(ticket.key, ticket.sent, now);
}

void FaultGateway::finish(Ticket& ticket, const std::optional<AnswerCounts>& counts, TimePoint now) {
  if (ticket.gateway_life != lives_) return;
  const NodeIndex node = ticket.sent.node;
  const bool counted = ticket.sent.incarnation == router_->loads().at(node).incarnation;
  router_->on_finished(ticket.key, ticket.sent, counts, now);
  if (counted) open_[node] -= 1;
  check_counts();
}

void FaultGateway::report(NodeIndex node, const NodeReport& report, TimePoint now) {
  router_->report(node, report, now);
  twin_->report(node, report, now);
}

FeedResult FaultGateway::residency(NodeIndex node, const WireEvent& event) {
  return router_->residency(node, event.event());
}

void FaultGateway::plan(TimePoint now) {
  WorkSample& own = router_->planning().own();
  const bool due = (own.work().size() > 0 || !others_.empty()) &&
                   (planned_at_ == TimePoint{} || now >= planned_at_ + options_.planner.tick);
  router_->plan(now);
  check_table();
  if (!due) return;
  planned_at_ = now;
  // (Sizes are known there only as far as answers have told them; others count for nothing.)
  const SetLoads loads = others_.sum(own.loads(), now);
  if (router_->planning().plans()) check_kv(loads);
}

void FaultGateway::plan(TimePoint now, const SetLoads& loads) {
  router_->plan(now, loads);
  twin_->plan(now, loads);
  check_twin();
  check_table();
  if (router_->planning().plans()) check_kv(loads);
}

FaultGateway::Letter FaultGateway::write_to(GossipRounds::Peer peer, TimePoint now) {
  const GossipMessage message = rounds_->begin(peer, now);
  return {encode_placements(message.placements, router_->view()),
          encode_ledger(message.ledger, router_->view()), message.announcement, std::string(message.table),
          std::string(message.sample)};
}

void FaultGateway::receive(const Letter& letter, TimePoint now) {
  const auto placements = decode_placements(letter.placements, router_->view());
  const auto ledger = decode_ledger(letter.ledger, router_->view());
  if (!placements.ok() || !ledger.ok()) {
    breach_if(true, "placements or a ledger are not read");
    return;
  }
  GossipMessage message;
  message.placements = *placements;
  message.ledger = *ledger;
  message.announcement = letter.announcement;
  message.table = letter.table;
  message.sample = letter.sample;
  if (!letter.sample.empty()) {
    auto loads = decode_set_loads(letter.sample);
    breach_if(!loads.ok(), "a sample of loads is not read");
    if (loads.ok()) others_.observe(letter.announcement.name, *std::move(loads), now);
  }
  hear(letter.announcement, letter.table, now, [&] {
    const auto notes = rounds_->receive(message, now);
    breach_if(!notes.ok(), "a message is not read: " + std::string(notes.status().message()));
  });
}

void FaultGateway::answered(GossipRounds::Peer peer, const GatewayAnnouncement& by, TimePoint now) {
  hear(by, "", now,
       [&] { breach_if(rounds_->answered(peer, by, now).is_self, "another gateway is taken for itself"); });
}

template <typename Take>
void FaultGateway::hear(const GatewayAnnouncement& announcement, const std::string& table, TimePoint now,
                        Take take) {
  const TableVersion before = router_->planning().version();
  take();
  if (!table.empty()) {  // (in the order of GossipRounds::receive())
    const Status adopted = twin_->planning().adopt_table(table);
    breach_if(!adopted.ok(), "a table is not read: " + std::string(adopted.message()));
  }
  twin_->planning().observe(announcement, now);
  if (!table.empty()) check_table();
  breach_if(router_->planning().version() < before, "an older table takes the place of the one that counts");
}

bool FaultGateway::may_be_asked(NodeIndex node) const {
  return health_[node].state() == NodeState::kAlive || health_[node].state() == NodeState::kSuspect;
}

void FaultGateway::breach_if(bool broken, const std::string& what) {
  if (broken && breach_.empty()) breach_ = what;
}

// Is failing while somebody else may serve all that it serves.
bool FaultGateway::may_be_spared(NodeIndex node) const {
  if (!health_[node].failing()) return false;
  for (NodeIndex n = 0; n < health_.size(); ++n) {
    if (may_be_asked(n) && !health_[n].failing() && models_[n].size() >= models_[node].size()) return true;
  }
  return false;
}

// The homes of a set may be asked, and no set or node is above its bound.
void FaultGateway::check_table() {
  std::vector<size_t> sets(health_.size(), 0);
  const bool strict = options_.affinity.mode == Mode::kStrict;
  for (const auto& [set, homes] : router_->table()->sets()) {
    std::set<NodeIndex> distinct;
    for (const NodeIndex node : homes.nodes()) {
      breach_if(!distinct.insert(node).second, "a set is twice at home on " + name_of(node));
      breach_if(!may_be_asked(node), name_of(node) + " is home, and may not be asked");
      breach_if(may_be_spared(node), name_of(node) + " is home, and fails at all it is asked");
      sets[node] += 1;
    }
    breach_if(homes.size() == 0, "a set of the table has no home");
    const size_t most = options_.planner.max_nodes_per_set;
    breach_if(most > 0 && homes.size() > most, "a set has more homes than max_nodes_per_set");
  }
  for (NodeIndex n = 0; n < sets.size(); ++n) {
    breach_if(strict && sets[n] > options_.planner.max_sets_per_node,
              name_of(n) + " is home to " + std::to_string(sets[n]) + " strict sets");
  }
}

void FaultGateway::check_twin() {
  breach_if(text_of(*router_->table()) != text_of(*twin_->table()),
            "the table follows from more than cluster, sizes and loads");
}

// With the sizes that the planner has just seen.
void FaultGateway::check_kv(const SetLoads& loads) {
  if (options_.affinity.mode == Mode::kStrict) return;
  std::vector<int64_t> planned(health_.size(), 0);
  for (const SetLoad& load : loads.sets) {
    const auto found = router_->table()->sets().find(load.set);
    if (found == router_->table()->sets().end()) continue;
    for (const NodeIndex node : found->second.nodes()) planned[node] += load.tokens;
  }
  for (NodeIndex n = 0; n < planned.size(); ++n) {
    const auto kv = static_cast<double>(router_->loads().at(n).report.kv_tokens_total);
    breach_if(kv > 0 && static_cast<double>(planned[n]) > options_.planner.kv_share * kv,
              name_of(n) + " is planned beyond its KV budget");
  }
}

// Nobody is asked who is known not to answer; strict sets stay at home; whoever can be asked is.
void FaultGateway::check_order(const Ticket& ticket) {
  const auto order = ticket.decision.order.all();
  std::set<NodeIndex> distinct;
  bool suspects = false;
  for (const Candidate& candidate : order) {
    breach_if(!may_be_asked(candidate.node),
              name_of(candidate.node) + " is routed to, and known to be " +
                  std::string(node_state_name(health_[candidate.node].state())));
    breach_if(!distinct.insert(candidate.node).second, name_of(candidate.node) + " is a candidate twice");
    const auto& serves = models_[candidate.node];
    breach_if(std::find(serves.begin(), serves.end(), ticket.model) == serves.end(),
              name_of(candidate.node) + " does not serve the model");
    const bool suspect = health_[candidate.node].state() == NodeState::kSuspect;
    breach_if(suspects && !suspect, "a suspect is asked before " + name_of(candidate.node));
    suspects = suspects || suspect;
    breach_if(candidate.expect_cached < 0 ||
                  candidate.expect_cached >= std::max<int64_t>(ticket.key.prompt_tokens, 1),
              "more is expected cached than the prompt has");
  }
  const auto serving = router_->view().nodes_for(ticket.model);
  const bool strict = options_.affinity.mode == Mode::kStrict && !ticket.key.set.is_zero();
  if (!strict) {
    breach_if(order.empty() != serving.empty(), "nobody is asked though somebody could be");
    return;
  }
  const Homes* homes = router_->table()->find(ticket.key.set, ticket.model);
  breach_if(order.empty() != (homes == nullptr), "a strict set with homes is not sent to them");
  for (const Candidate& candidate : order) {
    breach_if(homes == nullptr || !homes->contains(candidate.node),
              "a strict set is routed to " + name_of(candidate.node) + ", which is not its home");
  }
}

// The dead hold nothing, whatever is heard of them late.
void FaultGateway::check_dead() {
  const ClusterState& known = router_->known();
  for (NodeIndex n = 0; n < health_.size(); ++n) {
    breach_if(health_[n].state() == NodeState::kDead &&
                  known.exact->index.items_of(n) + known.shadow.items_of(n) > 0,
              name_of(n) + " is known dead, and said to hold something");
  }
}

// Every request that was sent is somewhere, and nowhere twice.
void FaultGateway::check_counts() {
  int64_t all = 0;
  for (NodeIndex n = 0; n < open_.size() && n < router_->loads().size(); ++n) {
    const NodeLoad& load = router_->loads().at(n);
    all += open_[n];
    breach_if(load.in_flight != open_[n], name_of(n) + " has " + std::to_string(load.in_flight) +
                                              " requests by its ledger, " + std::to_string(open_[n]) +
                                              " by count");
    breach_if(load.pending_tokens < 0, name_of(n) + " has less than no pending tokens");
    breach_if(load.in_flight == 0 && load.pending_tokens != 0,
              name_of(n) + " has pending tokens and no request");
  }
  breach_if(router_->loads().in_flight_total() != all, "the ledger's sum is not that of its nodes");
}

void FaultGateway::check_indices() {
  const ClusterState& known = router_->known();
  for (const ResidencyIndex* index : {&std::as_const(known.exact->index), &known.shadow}) {
    const std::string wrong = index->check();
    breach_if(!wrong.empty(), wrong);
    for (NodeIndex n = 0; n < health_.size(); ++n)
      breach_if(index == &known.shadow && index->items_of(n) > options_.memory.placements_per_node,
                name_of(n) + " has more placements than are remembered");
  }
}

std::string FaultGateway::text_of(const SetTable& table) {
  std::map<Hash128, std::string> sorted;
  for (const auto& [set, homes] : table.sets()) {
    std::string& text = sorted[set];
    for (const NodeIndex node : homes.nodes()) text += " " + std::to_string(node);
  }
  std::string out;
  for (const auto& [set, text] : sorted) out += set.hex() + text + "\n";
  return out;
}

}  // namespace troupe::route::faults

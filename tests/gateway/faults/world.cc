#include "tests/gateway/faults/world.h"

#include <algorithm>
#include <utility>

namespace troupe::route::faults {

namespace {

constexpr Duration kFaultsFor = std::chrono::seconds(20);
constexpr Duration kAskedFor = std::chrono::seconds(26);
// The time from when messages flow again: then every gateway has tried every other one again, knows of those
// that live, and of none that died; and between two of its seconds, what one plans reaches all.
constexpr Duration kHeardAnew =
    std::max<Duration>(Gateways::kSilence, GossipRules().retry_max) + std::chrono::milliseconds(1600);
constexpr Duration kResting = std::chrono::seconds(90);
constexpr Duration kRunFor = std::chrono::seconds(100);

}  // namespace

World::World(uint64_t seed, bool verbose, bool sound) : Timeline(seed, verbose), sound_(sound) {
  set_up();
}

void World::set_up() {
  constexpr std::array kModes{Mode::kExact, Mode::kGossip, Mode::kPlan, Mode::kStrict};
  options_.affinity.mode = kModes[pick(kModes.size())];
  const size_t gateways = 1 + pick(4);
  options_.affinity.gateways = static_cast<int64_t>(gateways);
  options_.affinity.peer_ledger = chance(0.3);
  options_.affinity.scan_max = chance(0.5) ? 16 : 3;
  options_.planner.tick = std::chrono::seconds(1 + pick(3));
  options_.planner.strict_sets = 1 + pick(10);
  options_.planner.max_sets_per_node = 1 + pick(3);
  options_.planner.max_nodes_per_set = chance(0.6) ? 0 : 1 + pick(4);
  options_.memory.placements_per_node = chance(0.5) ? 40 : 32'768;
  options_.memory.sets_max = chance(0.5) ? 24 : 16'384;
  options_.memory.outbox_max = chance(0.3) ? 8 : 65'536;
  common_loads_ = chance(0.6);
  loss_ = chance(0.3) ? 0 : 0.3 * random_.unit();
  late_ms_ = chance(0.5) ? 5 : 2000;
  rate_ = 10 + 40 * random_.unit();
  sets_ = 2 + static_cast<int>(pick(40));
  sessions_ = 10 + static_cast<int>(pick(200));
  merger_ = std::make_unique<SetLoadMerger>(options_.planner.half_life, options_.memory.sets_max);
  const size_t nodes = 1 + pick(10);
  const bool set_alike = chance(0.7);
  for (size_t g = 0; g < gateways; ++g) {
    RouterOptions its = options_;
    if (!set_alike) its.planner.strict_sets = 1 + pick(10);
    const double skew = (common_loads_ ? 0.06 : 0.04) * (random_.unit() - 0.5);
    clocks_.push_back({std::chrono::seconds(pick(5000)), 1 + skew});
    std::vector<GossipRounds::Peer> peers;
    for (GossipRounds::Peer peer = 0; peer < gateways; ++peer) {
      if (peer != g) peers.push_back(peer);
    }
    gateways_.push_back(std::make_unique<FaultGateway>(its, peers, random_.next(), clock_of(g)));
    gateways_.back()->hears_of_deaths = sound_;
  }
  links_.resize(gateways);
  streams_.resize(gateways);
  loads_seen_.resize(gateways);
  for (size_t n = 0; n < nodes; ++n) add_worker();
  out_.setting = std::string(mode_name(options_.affinity.mode)) + ", " + std::to_string(nodes) + " nodes, " +
                 std::to_string(gateways) + " gateways, " + (common_loads_ ? "common" : "own") + " loads";
}

TimePoint World::clock_of(size_t gateway) const {
  return skewed(clocks_[gateway].offset, clocks_[gateway].rate);
}

void World::note(uint64_t value) {
  out_.digest = chain_hash(out_.digest, {reinterpret_cast<const char*>(&value), sizeof value});
}

void World::watch() {
  for (size_t g = 0; g < gateways_.size(); ++g) {
    const std::string& wrong = gateways_[g]->breach();
    if (!wrong.empty()) breach("gateway " + std::to_string(g) + ": " + wrong);
  }
}

Outcome World::run() {
  every(ms(1000), [this] { probe(); });
  every(ms(100), [this] { tell_reports(); });
  every(ms(50), [this] { gossip(); });
  every(ms(500), [this] { connect_streams(); });
  every(options_.planner.tick, [this] { tell_loads(); });
  const int faults = static_cast<int>(pick(25));
  scatter(faults, 500, kFaultsFor, [this] { any_fault(); });
  after(kFaultsFor, [this] { heal(); });
  after(kAskedFor, [this] { stop_asking(); });
  after(kFaultsFor + kHeardAnew, [this] { every(ms(1000), [this] { check_one_table(); }); });
  after(kResting, [this] {
    for (const auto& gateway : gateways_) resting_.push_back(gateway->router().table());
  });
  connect_streams();
  ask();
  run_for(kRunFor, [this] { watch(); });
  if (out_.breach.empty()) check_converged();
  for (const auto& gateway : gateways_) out_.digest = chain_hash(out_.digest, gateway->table_text());
  return out_;
}

PrefixKey World::make_key() {
  PrefixKey key;
  const auto set = static_cast<int>(static_cast<double>(sets_) * random_.unit() * random_.unit());
  const int session = static_cast<int>(pick(static_cast<size_t>(sessions_)));
  key.prefix_tokens = 100 + 40 * set;
  key.prompt_tokens = key.prefix_tokens + 20 + static_cast<int64_t>(pick(500));
  if (!chance(0.1)) key.set = hash_bytes("set " + std::to_string(set));
  if (key.set.is_zero()) key.prefix_tokens = 0;
  if (!chance(0.2)) {
    key.session = hash_bytes("session " + std::to_string(session));
    key.history_tokens = key.prompt_tokens - 20;
  } else if (chance(0.5)) {  // known by its chain, its set learned
    Hash128 chain = hash_bytes("set " + std::to_string(set));
    for (int64_t tokens = 64; tokens < key.prompt_tokens; tokens += 64) {
      key.anchors.push_back({chain, 0, tokens});
      chain = chain_hash(chain, tokens < key.prefix_tokens ? "" : "session " + std::to_string(session));
    }
  }
  return key;
}

void World::ask() {
  if (!asking_) return;
  after(between(0, 2000 / rate_), [this] { ask(); });
  out_.requests += 1;
  auto ticket = std::make_shared<FaultGateway::Ticket>();
  const size_t gateway = pick(gateways_.size());
  ticket->key = make_key();
  ticket->model = chance(0.1) ? "b" : "a";
  const bool goes = gateways_[gateway]->begin(*ticket, clock_of(gateway));
  for (const Candidate& candidate : ticket->decision.order.all()) note(candidate.node);
  if (!goes) {
    out_.failed += 1;
    return;
  }
  after(between(0.1, 2), [this, ticket, gateway] { deliver(ticket, gateway); });
}

// Every worker says something more, for an event that was lost is missed only when the next one comes.
void World::stop_asking() {
  asking_ = false;
  for (NodeIndex n = 0; n < workers_.size(); ++n) {
    int64_t cached = 0;
    PrefixKey key = make_key();
    key.session = hash_bytes("the last session");
    if (workers_[n].alive) tell_residency(n, workers_[n].compute(key, 10, cached));
  }
}

void World::deliver(const std::shared_ptr<FaultGateway::Ticket>& ticket, size_t gateway) {
  const NodeIndex node = ticket->node();
  if (!up(gateway, node)) {
    failed(ticket, gateway, HealthEvent::kConnectError);
    return;
  }
  FaultWorker& worker = workers_[node];
  worker.running += 1;
  const uint64_t life = worker.life;
  after(between(5, 1500), [this, ticket, gateway, life] { answer(ticket, gateway, life); });
}

void World::answer(const std::shared_ptr<FaultGateway::Ticket>& ticket, size_t gateway, uint64_t life) {
  const NodeIndex node = ticket->node();
  FaultWorker& worker = workers_[node];
  const bool lives = worker.alive && worker.life == life;
  if (lives) worker.running -= 1;
  if (lives && worker.ill && !links_[gateway][node].cut) {
    failed(ticket, gateway, HealthEvent::kErrored);
    return;
  }
  if (!lives || links_[gateway][node].cut) {
    failed(ticket, gateway, HealthEvent::kTransportError);
    return;
  }
  AnswerCounts counts;
  counts.prompt_tokens = ticket->key.prompt_tokens;
  counts.completion_tokens = 1 + static_cast<int64_t>(pick(200));
  counts.has_cached = true;
  tell_residency(node, worker.compute(ticket->key, counts.completion_tokens, counts.cached_tokens));
  gateways_[gateway]->first_byte(*ticket, clock_of(gateway));
  after(between(1, 800), [this, ticket, gateway, counts] {
    const NodeIndex at = ticket->node();
    if (chance(0.05)) {  // the client went away
      gateways_[gateway]->finish(*ticket, std::nullopt, clock_of(gateway));
      return;
    }
    gateways_[gateway]->finish(*ticket, counts, clock_of(gateway));
    if (up(gateway, at)) health_seen(gateway, at, HealthEvent::kAnswered);
  });
}

void World::failed(const std::shared_ptr<FaultGateway::Ticket>& ticket, size_t gateway, HealthEvent event) {
  gateways_[gateway]->finish(*ticket, std::nullopt, clock_of(gateway));
  if (ticket->gateway_life == gateways_[gateway]->lives()) health_seen(gateway, ticket->node(), event);
  if (gateways_[gateway]->try_next(*ticket, clock_of(gateway))) {
    note(ticket->node());
    after(between(0.1, 2), [this, ticket, gateway] { deliver(ticket, gateway); });
  } else {
    out_.failed += 1;
  }
}

// A node that is known dead is listened to no more.
void World::health_seen(size_t gateway, NodeIndex node, HealthEvent event) {
  FaultGateway& at = *gateways_[gateway];
  if (node >= at.nodes()) return;
  const NodeState before = at.health(node).state();
  at.on_event(node, event, clock_of(gateway));
  const NodeState after_it = at.health(node).state();
  if (before == after_it) return;
  say("gateway " + std::to_string(gateway) + ": n" + std::to_string(node) + " is " +
      std::string(node_state_name(after_it)));
  if (after_it != NodeState::kDead) return;
  streams_[gateway][node].connected = false;
  streams_[gateway][node].generation += 1;
}

void World::probe() {
  for (size_t g = 0; g < gateways_.size(); ++g) {
    for (NodeIndex n = 0; n < workers_.size(); ++n) {
      HealthEvent event = HealthEvent::kProbeFail;
      if (up(g, n) && !chance(loss_ / 3))
        event = workers_[n].draining ? HealthEvent::kProbeNotReady : HealthEvent::kProbeOk;
      after(between(0.1, faulty_ ? late_ms_ / 3 : 5), [this, g, n, event, life = gateways_[g]->lives()] {
        if (gateways_[g]->lives() == life) health_seen(g, n, event);
      });
    }
  }
}

void World::tell_reports() {
  for (NodeIndex n = 0; n < workers_.size(); ++n) {
    if (!workers_[n].alive) continue;
    const NodeReport report = workers_[n].report();
    for (size_t g = 0; g < gateways_.size(); ++g) {
      if (links_[g][n].cut || chance(loss_)) continue;
      after(between(0.1, faulty_ ? late_ms_ : 5), [this, g, n, report] {
        if (n < gateways_[g]->nodes()) gateways_[g]->report(n, report, clock_of(g));
      });
    }
  }
}

void World::gossip() {
  for (size_t g = 0; g < gateways_.size(); ++g) gateways_[g]->rounds().collect(clock_of(g));
  for (size_t from = 0; from < gateways_.size(); ++from) {
    for (size_t to = 0; to < gateways_.size(); ++to) {
      if (to != from) send_letter(from, to);
    }
  }
}

// A letter comes late, twice or never, and so does its answer: the writer then takes it for lost.
void World::send_letter(size_t from, size_t to) {
  FaultGateway& writer = *gateways_[from];
  const auto peer = static_cast<GossipRounds::Peer>(to);
  if (writing_.contains({from, to}) || writer.rounds().next_check(peer) > clock_of(from)) return;
  if (!writer.rounds().send_due(peer, clock_of(from))) return;
  writing_.insert({from, to});
  const auto letter = std::make_shared<const FaultGateway::Letter>(writer.write_to(peer, clock_of(from)));
  const uint64_t life = writer.lives();
  const double late = faulty_ ? late_ms_ / 4 : 5;
  const auto lost = [this, from, to, life] { letter_ended(from, to, life, std::nullopt); };
  const auto cut = [this, from, to] { return apart_.contains(std::minmax(from, to)) || chance(loss_); };
  if (cut()) {
    after(between(0.1, late), lost);
    return;
  }
  const auto arrives = [this, to, letter] { gateways_[to]->receive(*letter, clock_of(to)); };
  after(between(0.1, late), [this, from, to, life, late, arrives, lost, cut] {
    arrives();
    const GatewayAnnouncement by = gateways_[to]->rounds().answer();
    if (cut()) {
      after(between(0.1, late), lost);
    } else {
      after(between(0.1, late), [this, from, to, life, by] { letter_ended(from, to, life, by); });
    }
  });
  if (faulty_ && chance(0.05)) after(between(0.1, late), arrives);
}

void World::letter_ended(size_t from, size_t to, uint64_t life,
                         const std::optional<GatewayAnnouncement>& by) {
  FaultGateway& writer = *gateways_[from];
  if (writer.lives() != life) return;
  writing_.erase({from, to});
  const auto peer = static_cast<GossipRounds::Peer>(to);
  if (by) {
    writer.answered(peer, *by, clock_of(from));
  } else {
    writer.rounds().failed(peer, clock_of(from));
  }
}

// The fleet's loads, from one source; a gateway may miss some, and none goes back to older ones.
void World::tell_loads() {
  if (!common_loads_) {
    for (size_t g = 0; g < gateways_.size(); ++g) gateways_[g]->plan(clock_of(g));
    return;
  }
  if (asking_) {
    for (NodeIndex n = 0; n < workers_.size(); ++n) {
      if (!workers_[n].alive || chance(loss_)) continue;
      const auto counters = workers_[n].counters();
      merger_->report(n, workers_[n].life, "a", counters);
    }
    loads_ = merger_->take(now_);
  }
  for (size_t g = 0; g < gateways_.size(); ++g) {
    if (chance(loss_)) continue;
    after(between(0.1, faulty_ ? late_ms_ : 5), [this, g, loads = loads_] {
      if (loads.epoch < loads_seen_[g]) return;
      loads_seen_[g] = loads.epoch;
      gateways_[g]->plan(clock_of(g), loads);
    });
  }
}

void World::tell_residency(NodeIndex node, const std::vector<WireEvent>& events) {
  if (!nodes_report()) return;
  for (size_t g = 0; g < gateways_.size(); ++g) {
    for (const WireEvent& event : events) {
      if (chance(loss_ / 4)) continue;  // a gap
      send_event(g, node, event);
    }
    if (chance(loss_ / 20)) break_stream(g, node);
  }
}

void World::send_event(size_t gateway, NodeIndex node, WireEvent event) {
  Stream& stream = streams_[gateway][node];
  if (!stream.connected || links_[gateway][node].cut) return;
  stream.last_delivery = std::max(stream.last_delivery, now_ + between(0.1, faulty_ ? late_ms_ / 4 : 5));
  const uint64_t life = gateways_[gateway]->lives(), generation = stream.generation;
  after(stream.last_delivery - now_, [this, gateway, node, life, generation, event = std::move(event)] {
    if (gateways_[gateway]->lives() != life || streams_[gateway][node].generation != generation) return;
    if (gateways_[gateway]->residency(node, event) != FeedResult::kGap) return;
    // Asked for in the same stream.
    after(between(0.1, 3), [this, gateway, node, generation] {
      if (up(gateway, node) && streams_[gateway][node].generation == generation)
        send_event(gateway, node, workers_[node].snapshot());
    });
  });
}

// Readers connect to whoever is known alive; a connection begins with a snapshot.
void World::connect_streams() {
  if (!nodes_report()) return;
  for (size_t g = 0; g < gateways_.size(); ++g) {
    for (NodeIndex n = 0; n < workers_.size(); ++n) {
      Stream& stream = streams_[g][n];
      if (stream.connected || !up(g, n) || n >= gateways_[g]->nodes()) continue;
      if (gateways_[g]->health(n).state() == NodeState::kDead) continue;
      stream.connected = true;
      stream.generation += 1;
      stream.worker_life = workers_[n].life;
      stream.last_delivery = now_;
      // A life that begins may be followed from its first event on.
      if (workers_[n].has_told() || chance(0.5)) send_event(g, n, workers_[n].snapshot());
    }
  }
}

// Events on their way arrive or not; then the reader sees the break.
void World::break_stream(size_t gateway, NodeIndex node) {
  Stream& stream = streams_[gateway][node];
  if (!stream.connected) return;
  const uint64_t life = gateways_[gateway]->lives(), generation = stream.generation;
  after(between(0.1, late_ms_), [this, gateway, node, life, generation] {
    Stream& its = streams_[gateway][node];
    if (its.generation != generation || gateways_[gateway]->lives() != life) return;
    its.connected = false;
    its.generation += 1;
    gateways_[gateway]->residency_lost(node);
  });
}

}  // namespace troupe::route::faults

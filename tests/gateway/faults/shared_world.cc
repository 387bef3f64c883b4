#include "tests/gateway/faults/shared_world.h"

#include <algorithm>
#include <utility>

#include "gateway/route/placement/table_codec.h"

namespace troupe::route::faults {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kFaultsFor = seconds(20);
constexpr Duration kAskedFor = seconds(24);
// The time from when questions are answered again: leases of gateways that are gone have run out, broken
// watches are seen, news of the dead are not heeded any more, a gateway that is left leads and has planned.
constexpr Duration kSettled = seconds(20);
constexpr Duration kRunFor = kFaultsFor + seconds(40);
// From the store to everybody.
constexpr Duration kTold = milliseconds(200);

}  // namespace

SharedWorld::SharedWorld(uint64_t seed, bool verbose, bool heeds_compares) : Timeline(seed, verbose) {
  store_.heeds_compares = heeds_compares;
  set_up();
}

void SharedWorld::set_up() {
  constexpr std::array kModes{Mode::kExact, Mode::kPlan, Mode::kStrict};
  options_.affinity.mode = kModes[pick(kModes.size())];
  options_.shared_table = true;
  options_.planner.tick = milliseconds(1000 + 500 * pick(5));
  options_.planner.strict_sets = 1 + pick(10);
  options_.planner.max_sets_per_node = 1 + pick(3);
  options_.planner.max_nodes_per_set = chance(0.6) ? 0 : 1 + pick(4);
  round_options_.plan_tick = options_.planner.tick;
  lease_ttl_ = seconds(2 + pick(4));
  try_timeout_ = lease_ttl_ / 9;
  loss_ = chance(0.3) ? 0 : 0.25 * random_.unit();
  late_ = chance(0.3) ? 0 : 0.1 * random_.unit();
  sets_ = 2 + static_cast<int>(pick(12));
  store_rate_ = 0.95 + 0.1 * random_.unit();
  const size_t nodes = 1 + pick(8);
  alive_.assign(nodes, true);
  hosts_.resize(1 + pick(5));
  for (size_t g = 0; g < hosts_.size(); ++g) {
    Host& host = hosts_[g];
    host.offset = seconds(pick(2000));
    host.rate = 0.95 + 0.1 * random_.unit();
    // (They tell each other nothing: all they share goes through the store.)
    const std::vector<GossipRounds::Peer> no_peers;
    host.gateway = std::make_unique<FaultGateway>(options_, no_peers, random_.next(), clock_of(host));
    for (size_t n = 0; n < nodes; ++n) host.gateway->add_node({"a"}, clock_of(host));
  }
  store_.on_write = [this](const std::string& asker, const std::string& table) { check_write(asker, table); };
  store_.on_change = [this](const Store::Change& change) {
    for (size_t g = 0; g < hosts_.size(); ++g) deliver(g, change);
  };
  out_.setting = std::string(mode_name(options_.affinity.mode)) + ", " + std::to_string(nodes) + " nodes, " +
                 std::to_string(hosts_.size()) + " gateways";
}

void SharedWorld::begin_life(size_t g) {
  Host& host = hosts_[g];
  host.round = std::make_unique<LeaderSync>(round_options_, host.gateway->router());
  host.lease = 0;
  host.in_round = false;
  host.asked += 1;
  host.version = {};
  look(g);
  plan_round(g, between(0, 200));
}

// --- time ---

TimePoint SharedWorld::clock_of(const Host& host) const {
  return skewed(host.offset, host.rate);
}

TimePoint SharedWorld::store_clock() const {
  return skewed(Duration::zero(), store_rate_);
}

void SharedWorld::at_host(size_t g, Duration delay, std::function<void()> act) {
  after(delay, [this, g, life = hosts_[g].life, act = std::move(act)] {
    const Host& host = hosts_[g];
    if (host.life != life) return;
    if (now_ < host.paused_until) {
      at_host(g, host.paused_until - now_, act);
    } else {
      act();
    }
  });
}

Outcome SharedWorld::run() {
  for (size_t g = 0; g < hosts_.size(); ++g) begin_life(g);
  every(ms(50), [this] { send_requests(); });
  every(ms(1000), [this] {
    for (size_t g = 0; g < hosts_.size(); ++g)
      at_host(g, between(0, 900), [this, g] { hosts_[g].gateway->plan(clock_of(hosts_[g])); });
  });
  every(ms(200), [this] { store_.expire(store_clock()); });
  const int faults = static_cast<int>(pick(30));
  scatter(faults, 500, kFaultsFor, [this] { any_fault(); });
  after(kFaultsFor, [this] { heal(); });
  after(kFaultsFor + kSettled, [this] { every(ms(500), [this] { check_one_table(); }); });
  run_for(kRunFor, [this] {
    for (const Host& host : hosts_) {
      if (!host.gateway->breach().empty()) breach(host.gateway->breach());
    }
  });
  if (out_.breach.empty()) check_end();
  for (const Host& host : hosts_) out_.digest = chain_hash(out_.digest, host.gateway->table_text());
  return out_;
}

// --- what goes on ---

void SharedWorld::send_requests() {
  if (elapsed() > kAskedFor) return;
  const size_t g = pick(hosts_.size());
  at_host(g, Duration::zero(), [this, g] {
    FaultGateway& gateway = *hosts_[g].gateway;
    const TimePoint now = clock_of(hosts_[g]);
    FaultGateway::Ticket ticket;
    // The last set is asked for only once the faults are over: it shows that tables are planned still.
    const int set = faulty_ || chance(0.5) ? static_cast<int>(pick(static_cast<size_t>(sets_))) : sets_;
    ticket.key.set = hash_bytes("set " + std::to_string(set));
    ticket.key.prefix_tokens = 200;
    ticket.key.prompt_tokens = 400;
    ticket.model = "a";
    out_.requests += 1;
    if (!gateway.begin(ticket, now)) {
      out_.failed += 1;
      return;
    }
    if (chance(0.1)) {  // and strict sets move on from there
      gateway.finish(ticket, std::nullopt, now);
      if (!gateway.try_next(ticket, now)) return;
    }
    gateway.first_byte(ticket, now);
    gateway.finish(ticket, AnswerCounts{400, 50, 0, true}, now);
  });
}

// A worker dies or comes back, and every gateway sees it in its own time.
void SharedWorld::change_node() {
  const size_t node = pick(alive_.size());
  alive_[node] = !alive_[node];
  say("n" + std::to_string(node) + (alive_[node] ? " comes back" : " dies"));
  for (size_t g = 0; g < hosts_.size(); ++g) at_host(g, between(1, 4000), [this, g] { see_nodes(g); });
}

void SharedWorld::see_nodes(size_t g) {
  FaultGateway& gateway = *hosts_[g].gateway;
  for (NodeIndex n = 0; n < alive_.size(); ++n) {
    const bool known = gateway.health(n).state() != NodeState::kDead;
    if (known == alive_[n]) continue;
    for (int i = 0; i < 3; ++i)
      gateway.on_event(n, alive_[n] ? HealthEvent::kProbeOk : HealthEvent::kProbeFail, clock_of(hosts_[g]));
  }
}

void SharedWorld::restart(size_t g) {
  Host& host = hosts_[g];
  say("gateway " + std::to_string(g) + " restarts");
  if (chance(0.3)) store_.revoke(host.lease);  // it had the time to say so
  host.life += 1;
  host.paused_until = now_ + (chance(0.5) ? Duration::zero() : between(0, 3000));
  host.gateway->restart(random_.next(), clock_of(host));
  begin_life(g);
}

void SharedWorld::any_fault() {
  out_.faults += 1;
  size_t g = pick(hosts_.size());
  // A fault of the one that plans is of most interest.
  for (size_t i = 0; i < hosts_.size() && chance(0.6); ++i) {
    if (hosts_[i].round->shared().holds_key()) g = i;
  }
  Host& host = hosts_[g];
  const std::string who = "gateway " + std::to_string(g);
  switch (pick(8)) {
    case 0:
    case 1:
      host.paused_until = now_ + between(100, 9000);
      say(who + " stands still");
      return;
    case 2:
      host.cut = true;
      say(who + " is cut off the store");
      break_watch(g, between(0, 3000));
      after(between(200, 9000), [this, g] { hosts_[g].cut = false; });
      return;
    case 3:
      restart(g);
      return;
    case 4:
      change_node();
      return;
    case 5:
      store_.compact();
      break_watch(g, between(0, 3000));
      return;
    case 6:  // it sees none of the workers, for a while
      for (NodeIndex n = 0; n < alive_.size(); ++n) {
        for (int i = 0; i < 3; ++i) host.gateway->on_event(n, HealthEvent::kProbeFail, clock_of(host));
      }
      after(between(500, 6000), [this, g] { see_nodes(g); });
      return;
    default:
      if (!chance(0.2)) {
        break_watch(g, between(0, 5000));
        return;
      }
      say("the store begins anew");
      begun_anew_ = true;
      store_.begin_anew(1 + pick(chance(0.5) ? 10 : 2000));
      for (size_t i = 0; i < hosts_.size(); ++i) break_watch(i, between(0, 100));
      return;
  }
}

void SharedWorld::heal() {
  say("the faults are over");
  faulty_ = false;
  loss_ = 0;
  alive_[0] = true;
  for (size_t g = 0; g < hosts_.size(); ++g) {
    hosts_[g].cut = false;
    hosts_[g].paused_until = std::min(hosts_[g].paused_until, now_);
    at_host(g, between(0, 1000), [this, g] { see_nodes(g); });
  }
}

// --- what must hold ---

void SharedWorld::check_write(const std::string& asker, const std::string& table) {
  const ClusterView& view = hosts_[0].gateway->router().view();
  const auto plan = decode_plan(table, view);
  if (!plan.ok()) return breach("what is written is no table");
  if (!store_.leader() || store_.leader()->value != asker)
    return breach("a table is written by a gateway that does not lead");
  const TableVersion version = plan->table->version();
  say("the store gets table " + std::to_string(version.epoch));
  if (store_.table()) {
    const auto before = decode_plan(store_.table()->value, view);
    if (before.ok() && version <= before->table->version()) breach("a table is written over a later one");
  }
  // A store that lost it is given the old one again; else every epoch is there once.
  if (!begun_anew_ && version.epoch != last_.epoch + 1)
    breach("a table is written that does not follow the last one");
  last_ = version;
  written_.insert(version);
  table_changed_at_ = now_;
  out_.digest = chain_hash(out_.digest, table);
}

void SharedWorld::check_version(size_t g) {
  Host& host = hosts_[g];
  const TableVersion version = host.gateway->router().planning().version();
  if (version < host.version) breach("gateway " + std::to_string(g) + " goes back to an older table");
  if (version.epoch > 0 && !written_.contains(version))
    breach("gateway " + std::to_string(g) + " goes by a table that was never written");
  host.version = version;
  host.gateway->check_table();
}

void SharedWorld::check_one_table() {
  int leading = 0;
  for (Host& host : hosts_) leading += host.round->shared().leads(clock_of(host)) ? 1 : 0;
  if (leading != 1) return breach(std::to_string(leading) + " gateways lead when all is well");
  if (!store_.table()) return breach("there is no table when all is well");
  if (now_ < table_changed_at_ + kTold) return;
  for (size_t g = 0; g < hosts_.size(); ++g) {
    if (hosts_[g].gateway->router().planning().version() != last_)
      breach("gateway " + std::to_string(g) + " goes by another table than the one in the store");
  }
}

void SharedWorld::check_end() {
  check_one_table();
  if (store_.gateways() != hosts_.size())
    breach("the store has loads of " + std::to_string(store_.gateways()) + " gateways");
  const Hash128 late = hash_bytes("set " + std::to_string(sets_));
  const bool strict = options_.affinity.mode == Mode::kStrict;
  const bool somebody = std::find(alive_.begin(), alive_.end(), true) != alive_.end();
  for (size_t g = 0; g < hosts_.size(); ++g) {
    const FaultGateway& gateway = *hosts_[g].gateway;
    if (gateway.table_text() != hosts_[0].gateway->table_text())
      breach("gateway " + std::to_string(g) + " has a table of its own");
    const auto& table = hosts_[g].gateway->router().table();
    if (!strict && somebody && table->find(late, "a") == nullptr)
      breach("what is asked for since is not in the table");
  }
}

}  // namespace troupe::route::faults

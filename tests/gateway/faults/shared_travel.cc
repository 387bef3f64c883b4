// A gateway's two tasks at the store (gateway/cluster/shared_state*.cc), and all that can become of what
// they ask.

#include <algorithm>
#include <utility>

#include "tests/gateway/faults/shared_world.h"

namespace troupe::route::faults {

using Kind = StoreCommand::Kind;
using std::chrono::milliseconds;

namespace {
constexpr int kMembers = 3;  // each is tried once
constexpr Duration kRetry = milliseconds(250);
constexpr Duration kLeast = milliseconds(50);
}  // namespace

// Mostly milliseconds; now and then so long that nobody waits for it any more.
Duration SharedWorld::travel() {
  if (!faulty_) return between(0.1, 3);
  return chance(late_) ? between(5, 9000) : between(0.1, 15);
}

Duration SharedWorld::round_period() const {
  return std::min<Duration>(lease_ttl_ / 3, round_options_.plan_tick);
}

// --- keep ---

void SharedWorld::plan_round(size_t g, Duration delay) {
  const uint64_t number = ++hosts_[g].rounds;
  at_host(g, delay, [this, g, number] {
    if (hosts_[g].rounds == number && !hosts_[g].in_round) begin_round(g);
  });
}

void SharedWorld::begin_round(size_t g) {
  hosts_[g].in_round = true;
  hosts_[g].round->begin();
  ask_next(g);
}

void SharedWorld::ask_next(size_t g) {
  Host& host = hosts_[g];
  const StoreCommand ask = host.round->next(clock_of(host));
  if (ask.kind == Kind::kNothing) {
    host.in_round = false;
    plan_round(g, host.round->wants_round(clock_of(host)) ? kLeast : round_period());
    return;
  }
  if (ask.kind == Kind::kKeepLease) host.lease_asked_at = clock_of(host);
  send(g, ask, kMembers);
}

void SharedWorld::round_fails(size_t g) {
  hosts_[g].round->failed();
  hosts_[g].in_round = false;
  plan_round(g, round_period());
}

// One try at one member, and the next where it brings nothing in time. What nobody waits for may be done all
// the same.
void SharedWorld::send(size_t g, const StoreCommand& ask, int tries) {
  Host& host = hosts_[g];
  const uint64_t asked = ++host.asked;
  const std::string name = host.gateway->router().options().name.hex();
  const auto arrives = [this, g, ask, asked, name, store_life = store_.lives()] {
    if (store_.lives() != store_life) return;
    store_.expire(store_clock());
    if (ask.kind == Kind::kKeepLease) {
      lease_at_store(g, asked);
    } else {
      done_at_store(g, ask, asked, name);
    }
  };
  if (!host.cut && !chance(loss_)) after(travel(), arrives);
  if (!host.cut && faulty_ && chance(0.03)) after(travel(), arrives);
  at_host(g, try_timeout_, [this, g, ask, asked, tries] {
    if (hosts_[g].asked != asked || !hosts_[g].in_round) return;
    if (tries > 1) {
      send(g, ask, tries - 1);
    } else {
      hosts_[g].asked += 1;
      round_fails(g);
    }
  });
}

// Kept, or granted where there is none any more.
void SharedWorld::lease_at_store(size_t g, uint64_t asked) {
  const uint64_t life = hosts_[g].life;
  const int64_t old = hosts_[g].lease;
  const Duration kept = old == 0 ? Duration::zero() : store_.keep_alive(old, store_clock());
  const int64_t lease = kept > Duration::zero() ? old : store_.grant(lease_ttl_, store_clock());
  if (hosts_[g].cut || chance(loss_)) return;
  at_host(g, travel(), [this, g, asked, life, lease] {
    Host& host = hosts_[g];
    if (host.asked != asked || host.life != life || !host.in_round) return;
    host.asked += 1;
    host.lease = lease;
    host.round->lease_kept(lease, host.lease_asked_at + lease_ttl_);
    ask_next(g);
  });
}

void SharedWorld::done_at_store(size_t g, const StoreCommand& ask, uint64_t asked, const std::string& name) {
  const auto answer = store_.ask(ask, name);
  if (hosts_[g].cut || chance(loss_)) return;
  at_host(g, travel(), [this, g, asked, answer] {
    Host& host = hosts_[g];
    if (host.asked != asked || !host.in_round) return;
    host.asked += 1;
    if (!answer) {
      round_fails(g);
      return;
    }
    apply(g, host.round->answered(*answer, clock_of(host)));
    ask_next(g);
  });
}

void SharedWorld::apply(size_t g, const StoreUpdate& update) {
  if (!update.table.ok()) breach("a table is not read: " + std::string(update.table.message()));
  for (const auto& [gateway, why] : update.loads) breach("loads are not read: " + std::string(why.message()));
  if (update.written) say("gateway " + std::to_string(g) + " has written a table");
  if (update.refused) say("gateway " + std::to_string(g) + " is refused a table");
  if (update.resigned) say("gateway " + std::to_string(g) + " resigns");
  check_version(g);
}

// --- follow ---

void SharedWorld::look(size_t g) {
  Host& host = hosts_[g];
  host.watch = 0;
  const uint64_t looked = ++host.looked;
  const int64_t asked = host.round->shared().revision();
  const bool lost = host.cut || chance(loss_);
  if (!lost) {
    after(travel(), [this, g, looked, asked, store_life = store_.lives()] {
      if (store_.lives() != store_life) return;
      store_.expire(store_clock());
      const StoreAnswer all = store_.look();
      if (hosts_[g].cut || chance(loss_)) return;
      at_host(g, travel(), [this, g, looked, asked, all] {
        Host& at = hosts_[g];
        if (at.looked != looked) return;
        at.looked += 1;
        const auto seen = [](const std::optional<StoreKey>& key) { return key ? &*key : nullptr; };
        apply(g, at.round->saw_all(all.revision, asked, seen(all.leader), seen(all.table)));
        if (at.round->wants_round(clock_of(at))) plan_round(g, kLeast);
        open_watch(g, all.revision + 1);
      });
    });
  }
  at_host(g, kMembers * try_timeout_, [this, g, looked] {
    if (hosts_[g].looked == looked) look(g);
  });
}

// From that revision on, what has happened since included; or it is compacted, and to be looked at again.
void SharedWorld::open_watch(size_t g, int64_t from) {
  const uint64_t life = hosts_[g].life, looked = hosts_[g].looked;
  if (hosts_[g].cut || chance(loss_)) {
    at_host(g, try_timeout_ + kRetry, [this, g] { look(g); });
    return;
  }
  after(travel(), [this, g, from, life, looked, store_life = store_.lives()] {
    Host& host = hosts_[g];
    if (host.life != life || host.looked != looked) return;
    if (store_.lives() != store_life) {
      at_host(g, kRetry, [this, g] { look(g); });
      return;
    }
    const auto missed = store_.changes_from(from);
    if (!missed) {
      say("gateway " + std::to_string(g) + " would watch what is compacted");
      at_host(g, kRetry, [this, g, looked] {
        if (hosts_[g].looked == looked) look(g);
      });
      return;
    }
    host.watch = ++host.watches;
    host.last_delivery = now_;
    for (const Store::Change& change : *missed) deliver(g, change);
  });
}

// In order, as long as the watch lasts.
void SharedWorld::deliver(size_t g, const Store::Change& change) {
  Host& host = hosts_[g];
  if (host.watch == 0 || host.cut) return;
  host.last_delivery = std::max(host.last_delivery, now_ + travel());
  const uint64_t watch = host.watch;
  at_host(g, host.last_delivery - now_, [this, g, watch, change] {
    Host& at = hosts_[g];
    if (at.watch != watch) return;
    const StoreKey* key = change.key ? &*change.key : nullptr;
    if (change.of_leader) {
      at.round->saw_leader(key, change.revision);
      if (at.round->wants_round(clock_of(at))) plan_round(g, kLeast);
    } else {
      apply(g, at.round->saw_table(key, change.revision));
    }
  });
}

// Events on their way do not arrive; the gateway sees the break sooner or later.
void SharedWorld::break_watch(size_t g, Duration seen_after) {
  Host& host = hosts_[g];
  if (host.watch == 0) return;
  const uint64_t looked = host.looked;
  host.watch = 0;
  at_host(g, seen_after + kRetry, [this, g, looked] {
    if (hosts_[g].looked == looked) look(g);
  });
}

}  // namespace troupe::route::faults

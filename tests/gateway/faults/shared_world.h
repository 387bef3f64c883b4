#pragma once

// Gateways that share one table through a store (etcd), where everything between them and it goes wrong:
// questions and answers are lost, late by seconds or done twice; watches break, stall, and find that what
// they would go on from is compacted; gateways are cut off, restart, and stop for seconds at any point, as by
// a collector of garbage or a debugger, the one that plans too, also between what it read and what it writes;
// clocks begin anywhere and run at different speeds, the store's too, so that two believe at once that they
// lead; the store loses all it had.
//
// It runs gateway/route itself: LeaderSync, SharedTable, Router, planner, messages. What must hold at every
// moment: a table is written only by who leads by the store's word, from the one it takes the place of, so
// tables come one after the other; nobody goes by one that was never written, nor back to an older one, nor
// above a node's bounds. When the faults have stopped: one leads, all go by the table in the store, and what
// has changed meanwhile is in it.

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gateway/route/leader_sync.h"
#include "tests/gateway/faults/gateway.h"
#include "tests/gateway/faults/store.h"
#include "tests/gateway/faults/timeline.h"

namespace troupe::route::faults {

class SharedWorld : private Timeline {
 public:
  // `heeds_compares`: see Store.
  SharedWorld(uint64_t seed, bool verbose, bool heeds_compares = true);
  Outcome run();

 private:
  struct Host {
    std::unique_ptr<FaultGateway> gateway;
    std::unique_ptr<LeaderSync> round;
    uint64_t life = 1;
    // Its clock.
    Duration offset{};
    double rate = 1;
    TimePoint paused_until{};
    bool cut = false;  // off the store
    // keep
    int64_t lease = 0;
    TimePoint lease_asked_at{};  // by its clock
    uint64_t asked = 0;          // questions, the last one in hand
    bool in_round = false;
    uint64_t rounds = 0;  // planned, the next one included
    // follow
    uint64_t looked = 0;
    uint64_t watch = 0;  // its number, at this gateway; 0: none
    uint64_t watches = 0;
    TimePoint last_delivery{};
    TableVersion version;  // as it went by last
  };

  // shared_world.cc: time, faults, what must hold
  void set_up();
  void begin_life(size_t g);
  // On that gateway, in this life of it, when it is not paused.
  void at_host(size_t g, Duration delay, std::function<void()> act);
  TimePoint clock_of(const Host& host) const;
  TimePoint store_clock() const;
  void any_fault();
  void restart(size_t g);
  void heal();
  void send_requests();
  void change_node();
  void see_nodes(size_t g);
  void check_write(const std::string& asker, const std::string& table);
  void check_version(size_t g);
  void check_one_table();
  void check_end();

  // shared_travel.cc: what gateways ask of the store, and what comes of it
  void begin_round(size_t g);
  void plan_round(size_t g, Duration delay);
  void ask_next(size_t g);
  void send(size_t g, const StoreCommand& ask, int tries);
  void done_at_store(size_t g, const StoreCommand& ask, uint64_t asked, const std::string& name);
  void lease_at_store(size_t g, uint64_t asked);
  void round_fails(size_t g);
  void apply(size_t g, const StoreUpdate& update);
  void look(size_t g);
  void open_watch(size_t g, int64_t from);
  void deliver(size_t g, const Store::Change& change);
  void break_watch(size_t g, Duration seen_after);
  Duration travel();
  Duration round_period() const;

  RouterOptions options_;
  LeaderSync::Options round_options_;
  Duration lease_ttl_{}, try_timeout_{};
  bool faulty_ = true;
  double loss_ = 0, late_ = 0;
  double store_rate_ = 1;

  Store store_;
  std::vector<Host> hosts_;
  std::vector<bool> alive_;  // workers
  std::set<TableVersion> written_;
  TimePoint table_changed_at_{};
  TableVersion last_;  // written
  int sets_ = 0;
  bool begun_anew_ = false;
};

}  // namespace troupe::route::faults

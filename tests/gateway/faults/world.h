#pragma once

// A fleet in virtual time whose network and machines do the worst: workers die, come back at once or later,
// drain and join; links between a gateway and a worker, and between gateways, are cut; probes, reports,
// gossip and ledgers come late or never, residency events are lost, streams break; gateways forget
// everything, and their clocks differ. All of it follows from one seed.
//
// It runs gateway/route itself (Router, planner, gossip, residency feeds, health). What must hold at every
// moment is checked in gateway.h; at the end the faults stop, and what must come true again is checked here:
// everybody knows who lives, what is said to be resident is what the workers hold, nothing is booked any
// more, and all gateways have one and the same table, which stands still.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/gateway/faults/gateway.h"
#include "tests/gateway/faults/timeline.h"
#include "tests/gateway/faults/worker.h"

namespace troupe::route::faults {

class World : private Timeline {
 public:
  // `verbose`: says what happens on stderr.
  World(uint64_t seed, bool verbose, bool sound = true);  // not: see FaultGateway::hears_of_deaths
  Outcome run();

 private:
  // A gateway's stream of a worker's residency events: in order, until it breaks.
  struct Stream {
    bool connected = false;
    uint64_t generation = 0;   // of the connection: what was on its way in another one never arrives
    uint64_t worker_life = 0;  // that it was opened to
    TimePoint last_delivery{};
  };
  // Begins anywhere, and runs at a speed of its own.
  struct SkewedClock {
    Duration offset{};
    double rate = 1;
  };
  struct Link {
    bool cut = false;
  };

  void set_up();
  TimePoint clock_of(size_t gateway) const;
  void note(uint64_t value);
  void watch();

  // requests.
  void ask();
  void stop_asking();
  PrefixKey make_key();
  void deliver(const std::shared_ptr<FaultGateway::Ticket>& ticket, size_t gateway);
  void answer(const std::shared_ptr<FaultGateway::Ticket>& ticket, size_t gateway, uint64_t life);
  void failed(const std::shared_ptr<FaultGateway::Ticket>& ticket, size_t gateway, HealthEvent event);

  // what travels
  void probe();
  void tell_reports();
  void gossip();
  void send_letter(size_t from, size_t to);
  // The outcome of a letter that the gateway wrote in that life; no news: it was lost, or its answer.
  void letter_ended(size_t from, size_t to, uint64_t life, const std::optional<GatewayAnnouncement>& by);
  void restart(size_t gateway);
  void tell_loads();
  void health_seen(size_t gateway, NodeIndex node, HealthEvent event);
  void tell_residency(NodeIndex node, const std::vector<WireEvent>& events);
  void send_event(size_t gateway, NodeIndex node, WireEvent event);
  void connect_streams();
  void break_stream(size_t gateway, NodeIndex node);

  // faults.cc
  void any_fault();
  void kill(NodeIndex node);
  void add_worker();
  void heal();
  void check_one_table();
  void check_converged();
  void check_residency(size_t gateway);
  std::string differs(const FaultGateway& gateway, NodeIndex node) const;

  bool up(size_t gateway, NodeIndex node) const { return workers_[node].alive && !links_[gateway][node].cut; }
  bool nodes_report() const {
    return options_.affinity.mode == Mode::kExact || options_.affinity.mode == Mode::kStrict;
  }

  RouterOptions options_;
  bool common_loads_ = false;
  const bool sound_;
  bool faulty_ = true;
  double loss_ = 0, late_ms_ = 0, rate_ = 0;
  int sets_ = 0, sessions_ = 0;

  std::vector<FaultWorker> workers_;
  std::vector<std::vector<std::string>> models_;
  std::vector<std::unique_ptr<FaultGateway>> gateways_;
  std::vector<SkewedClock> clocks_;              // by gateway
  std::vector<std::vector<Link>> links_;         // by gateway, by node
  std::vector<std::vector<Stream>> streams_;     // likewise
  std::set<std::pair<size_t, size_t>> apart_;    // gateways that do not hear each other
  std::set<std::pair<size_t, size_t>> writing_;  // from, to: a letter without an outcome yet
  std::unique_ptr<SetLoadMerger> merger_;
  SetLoads loads_;
  std::vector<uint64_t> loads_seen_;                      // epoch, by gateway
  std::vector<std::shared_ptr<const SetTable>> resting_;  // by gateway, late in the run
  bool asking_ = true;
};

}  // namespace troupe::route::faults

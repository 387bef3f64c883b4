// What gateways tell each other while a simulation runs, and the plans they make of it.

#include "common/settings/option_checks.h"
#include "gateway/route/placement/gossip.h"
#include "sim/fleet/simulation.h"

namespace troupe::sim {

namespace {

// As live gateways do it: until then who has just begun knows no other's ledger, and they go by its old one.
constexpr Duration kLedgerRefresh = std::chrono::seconds(1);

// One of the gateways plans for all.
void tell_table(route::Router& from, route::Router& to, TimePoint now) {
  to.heard(from.news(), now);
  if (!from.lacks_table(to.news().name)) return;
  if (const Status adopted = to.adopt_table(from.table_message()); !adopted.ok())
    conservation_broken(to_std(adopted.message()));
}

void tell_sample(const route::Router& from, std::string_view sample, route::Router& to, TimePoint now) {
  if (const Status adopted = to.adopt_sample(from.news().name, sample, now); !adopted.ok())
    conservation_broken(to_std(adopted.message()));
}

// One of the others sends a gateway that has just begun what it has missed.
void tell_newcomers(const std::vector<size_t>& newcomers,
                    const std::vector<std::unique_ptr<SimGateway>>& gateways) {
  for (const size_t newcomer : newcomers) {
    if (gateways.size() < 2) return;
    const size_t other = newcomer == 0 ? 1 : 0;
    gateways[newcomer]->router().adopt_placements(
        gateways[other]->router().all_placements(route::kPlacementsTold));
  }
}

}  // namespace

void Simulation::gossip() {
  const bool placements = options_.router.affinity.mode != route::Mode::kPlan &&
                          options_.router.affinity.mode != route::Mode::kExact;
  if (placements) tell_newcomers(newcomers_, gateways_);
  newcomers_.clear();
  const bool all = now_ >= ledgers_told_at_ + kLedgerRefresh;
  if (all) ledgers_told_at_ = now_;
  for (size_t g = 0; g < gateways_.size(); ++g) {
    const auto told = gateways_[g]->router().take_placements();
    std::vector<route::PeerLoad> ledger;
    if (options_.router.affinity.peer_ledger) ledger = gateways_[g]->router().take_ledger(all);
    const std::string sample = nodes_tell() ? std::string() : gateways_[g]->take_sample();
    for (size_t other = 0; other < gateways_.size(); ++other) {
      if (other == g) continue;
      tell_table(gateways_[g]->router(), gateways_[other]->router(), now_);
      if (!sample.empty()) tell_sample(gateways_[g]->router(), sample, gateways_[other]->router(), now_);
      if (placements && !told.empty()) gateways_[other]->router().adopt_placements(told);
      if (!ledger.empty()) gateways_[other]->router().adopt_ledger(static_cast<uint32_t>(g), ledger);
    }
  }
}

// Of the fleet's loads: what nodes count, or else what gateways have sent.
void Simulation::plan() {
  if (!nodes_tell()) {
    for (auto& gateway : gateways_) gateway->router().plan(now_);
    return;
  }
  std::vector<route::SetLoadMerger::Counter> counters;
  for (size_t n = 0; n < nodes_.size(); ++n) {
    if (nodes_[n].engine == nullptr) continue;
    counters.clear();
    nodes_[n].engine->set_counters(counters);
    set_loads_.report(static_cast<uint32_t>(n), nodes_[n].life, kModel, counters);
  }
  const route::SetLoads loads = set_loads_.take(now_);
  for (auto& gateway : gateways_) gateway->router().plan(now_, loads);
}

}  // namespace troupe::sim

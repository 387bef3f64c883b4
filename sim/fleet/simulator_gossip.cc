// What gateways tell each other while a simulation runs, and the plans they make of it.

#include "common/settings/option_checks.h"
#include "gateway/route/placement/gossip.h"
#include "sim/fleet/simulation.h"

namespace troupe::sim {

namespace {

// As live gateways do it: until then who has just begun knows no other's ledger, and they go by its old one.
constexpr Duration kLedgerRefresh = std::chrono::seconds(1);

}  // namespace

void Simulation::gossip() {
  const bool placements = options_.router.affinity.mode != route::Mode::kPlan &&
                          options_.router.affinity.mode != route::Mode::kExact;
  if (placements) tell_newcomers();
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
      tell_table(gateways_[g]->router(), gateways_[other]->router());
      if (!sample.empty()) tell_sample(gateways_[g]->router(), sample, gateways_[other]->router());
      if (placements && !told.empty()) gateways_[other]->router().adopt_placements(told);
      if (!ledger.empty()) gateways_[other]->router().adopt_ledger(static_cast<uint32_t>(g), ledger);
    }
  }
}

// Who has just begun is told by one of the others what it has missed.
void Simulation::tell_newcomers() {
  for (const size_t newcomer : newcomers_) {
    for (size_t other = 0; other < gateways_.size(); ++other) {
      if (other == newcomer) continue;
      const auto all = gateways_[other]->router().all_placements(route::kPlacementsTold);
      gateways_[newcomer]->router().adopt_placements(all);
      break;
    }
  }
}

// One of the gateways plans for all.
void Simulation::tell_table(route::Router& from, route::Router& to) {
  to.heard(from.news(), now_);
  if (!from.lacks_table(to.news().name)) return;
  if (const Status adopted = to.adopt_table(from.table_message()); !adopted.ok())
    conservation_broken(to_std(adopted.message()));
}

void Simulation::tell_sample(const route::Router& from, std::string_view sample, route::Router& to) {
  if (const Status adopted = to.adopt_sample(from.news().name, sample, now_); !adopted.ok())
    conservation_broken(to_std(adopted.message()));
}

// Of the fleet's loads: what nodes count, or else what gateways have sent.
void Simulation::plan() {
  if (!nodes_tell()) {
    for (auto& gateway : gateways_) gateway->router().plan(now_);
    return;
  }
  for (size_t n = 0; n < nodes_.size(); ++n) {
    if (nodes_[n].engine == nullptr) continue;
    counters_.clear();
    nodes_[n].engine->set_counters(counters_);
    set_loads_.report(static_cast<uint32_t>(n), nodes_[n].life, kModel, counters_);
  }
  const route::SetLoads loads = set_loads_.take(now_);
  for (auto& gateway : gateways_) gateway->router().plan(now_, loads);
}

}  // namespace troupe::sim

#include "sim/fleet/simulation_options.h"

#include <chrono>

#include "common/settings/option_checks.h"
#include "gateway/route/policy/policy.h"

namespace troupe::sim {

Status check(const SimulationOptions& o) {
  TROUPE_RETURN_IF_ERROR(check_range("nodes", o.nodes, 1, 100'000));
  TROUPE_RETURN_IF_ERROR(check_range("gateways", o.gateways, 1, 1'000));
  TROUPE_RETURN_IF_ERROR(check_range("warmup-s", o.warmup_s, 0, 1e8));
  TROUPE_RETURN_IF_ERROR(check_range("slo-ttft-ms", o.slo_ttft_ms, 0, 1e9));
  TROUPE_RETURN_IF_ERROR(check_range("slo-tpot-ms", o.slo_tpot_ms, 0, 1e9));
  const std::chrono::duration<double, std::milli> tpot_budget = o.scheduler.tpot_budget;
  TROUPE_RETURN_IF_ERROR(check_range("tpot-budget-ms", tpot_budget.count(), 0, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("drain-s", o.drain_s, 0, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("network-ms", o.network_ms, 0, 1e5));
  TROUPE_RETURN_IF_ERROR(check_range("report-ms", o.report_ms, 1, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("residency-delay-ms", o.residency_delay_ms, 0, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("gossip-ms", o.gossip_ms, 1, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("detect-ms", o.detect_ms, 0, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("join-ms", o.join_ms, 0, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("join-ramp-s", o.join_ramp_s, 0, 3600));
  TROUPE_RETURN_IF_ERROR(check_range("handover-s", o.handover_s, 0, 3600));
  TROUPE_RETURN_IF_ERROR(route::check_policy(o.router.policy));
  TROUPE_RETURN_IF_ERROR(route::check(o.admission.controller.room));
  return check_faults(o.faults, o.nodes, o.gateways);
}

bool nodes_report(const SimulationOptions& options) {
  const route::Mode mode = options.router.affinity.mode;
  return mode != route::Mode::kGossip && mode != route::Mode::kPlan;
}

}  // namespace troupe::sim

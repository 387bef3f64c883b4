#pragma once

// A Result as JSON, and several as a table for the terminal. The same Result gives the same bytes: wall-clock
// figures are in timing_json() alone.

#include <span>
#include <string>
#include <vector>

#include "sim/fleet/result.h"

namespace troupe::sim {

// One object; shares 0..1, times in ms. `losses` [{why, count}], where requests were lost. Series are
// columns: per_second {arrived, …}, per_node [{id, …, work_per_s, up}].
std::string report_json(const Result& result);
// Result of the capacity command.
struct CapacityAnswer {
  double rate = 0;  // requests/s
  double load = 0;
  std::vector<LoadStep> steps;  // every load tried, in order
};
// report_json() of the run at that rate, after {sustainable_rate, load, steps: [{load, rate, goodput,
// ttft_p99_ms, tpot_p99_ms, verdict: "holds" or "fails"}]}.
std::string capacity_json(const CapacityAnswer& answer, const Result& result);
// Result of the plan command for a trace: the least number of nodes that is enough, the same as a sentence,
// and every fleet tried.
struct NodesAnswer {
  int64_t nodes = 0;
  std::string words;
  std::vector<LoadStep> steps;
};
// report_json() of the run with so many nodes, after {nodes_needed, answer, steps}; a step has nodes instead
// of load.
std::string nodes_json(const NodesAnswer& answer, const Result& result);
// {"runs": […]} in the given order.
std::string comparison_json(std::span<const Result> results);
// {"runs": [{policy, seed, wall_s, simulated_requests_per_s, decision_us, events}]}
std::string timing_json(std::span<const Result> results);

// One row a run, with a heading.
std::string table_text(std::span<const Result> results);

}  // namespace troupe::sim

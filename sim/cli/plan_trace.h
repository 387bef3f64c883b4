#pragma once

// plan --trace: the number of nodes that a trace needs, found by simulating fleets of growing size.

#include <optional>
#include <string>
#include <string_view>

#include "common/settings/schema.h"
#include "sim/cli/run_once.h"
#include "sim/cli/trace_load.h"
#include "sim/fleet/result.h"

namespace troupe::sim {

struct PlanTraceFlags {
  RunFlags run;
  double goodput = 0.99;
  int64_t jobs = 0;
  bool json = false;
  bool profile_asked = false;  // --profile names the node; else the best for the model is
};

// The flags that only a trace gives a meaning.
void describe_plan_trace(SettingsSchema& schema, PlanTraceFlags& flags);

// The least number of nodes that holds, between numbers that are known: bisection after doubling.
struct NodeSearch {
  double at = 1;             // whole, as what a search runs is a number
  double low = 0, high = 0;  // low does not hold, high does; 0: unknown
  double most = 0;

  bool is_over() const { return high > 0 ? high - low <= 1 : low >= most; }
  NodeSearch after(bool holds) const;
};

StatusOr<TraceLoad> load_of_trace(const PlanTraceFlags& flags);
// "1125 requests in 90 s, 12.5 a second: prompts of 812 tokens …"
std::string load_words(const TraceLoad& load);

// Searches from nodes_at_least() on, prints each step, and writes the outputs. `options`: the node and all
// else but the number. Returns the exit code.
struct PlanTraceRun {
  std::string_view program;
  SimulationOptions options;
  TraceLoad load;
  std::string command;  // for the page
};
int plan_trace(const PlanTraceFlags& flags, const PlanTraceRun& run);

}  // namespace troupe::sim

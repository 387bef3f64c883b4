#pragma once

// What replay, compare and capacity have in common: where results go, and one run with what is said of it.

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/settings/schema.h"
#include "sim/cli/command_line.h"
#include "sim/cli/options.h"
#include "sim/fleet/result.h"
#include "sim/report/html.h"

namespace troupe::sim {

struct OutputFlags {
  std::string report, timing, html, requests;
};
struct RunFlags {
  SourceFlags source;
  FleetFlags fleet;
  OutputFlags output;
  SimulationOptions options;  // what `fleet` comes to
};
// Adds these to the command's own, reads all and checks what no run is needed to see; the exit code where
// there is nothing more to do, as read_flags().
std::optional<int> read_run_flags(SettingsSchema& schema, RunFlags& flags, std::string_view program, int argc,
                                  const char* const* argv);
// Of a command that is several runs: lines of requests would be of all of them.
Status check_no_requests(const OutputFlags& flags);
void describe_jobs(SettingsSchema& schema, int64_t& jobs, std::string_view of_what);

// `load`: times the rate of the source. What there is to say is said on stderr under the label, and how far
// it is by `progress`. Thread-safe.
StatusOr<Result> run_once(const SourceFlags& source, const SimulationOptions& options, double load,
                          const std::string& label, ProgressLine& progress);

PageFacts page_facts(std::string_view command, const SimulationOptions& options);
Status write_outputs(const OutputFlags& flags, std::string_view report, std::span<const Result> results,
                     const PageFacts& facts);

}  // namespace troupe::sim

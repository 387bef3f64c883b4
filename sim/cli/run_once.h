#pragma once

// The common parts of replay, compare and capacity: output flags, and one run with its messages.

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
  SimulationOptions options;  // built from `fleet`
};
// Adds these flags to the command's own, reads all and checks what needs no run; returns the exit code where
// the command ends here, as read_flags().
std::optional<int> read_run_flags(SettingsSchema& schema, RunFlags& flags, std::string_view program, int argc,
                                  const char* const* argv);
// Refuses --requests for a command with several runs, whose lines would be mixed.
Status check_no_requests(const OutputFlags& flags);
void describe_output(SettingsSchema& schema, OutputFlags& flags);
void describe_jobs(SettingsSchema& schema, int64_t& jobs, std::string_view of_what);

// `load`: factor on the source's rate. Messages go to stderr with the label, progress to `progress`.
// Thread-safe.
StatusOr<Result> run_once(const SourceFlags& source, const SimulationOptions& options, double load,
                          const std::string& label, ProgressLine& progress);

// Figures of a run for a search's list; it holds if at least `goodput` of its requests were answered well.
LoadStep load_step(const Result& result, double goodput);

PageFacts page_facts(std::string_view command, const SourceFlags& source, const SimulationOptions& options);
Status write_outputs(const OutputFlags& flags, std::string_view report, std::span<const Result> results,
                     const PageFacts& facts);

}  // namespace troupe::sim

#pragma once

// What replay, compare and capacity have in common: where results go, and one run with what is said of it.

#include <span>
#include <string>
#include <string_view>

#include "common/core/settings.h"
#include "sim/command_line.h"
#include "sim/html.h"
#include "sim/options.h"
#include "sim/result.h"

namespace troupe::sim {

struct OutputFlags {
  std::string report, timing, html;
};
void describe_output(SettingsSchema& schema, OutputFlags& flags);
void describe_jobs(SettingsSchema& schema, int64_t& jobs, std::string_view of_what);

// What no run is needed to see.
Status check_flags(const SourceFlags& source, const OutputFlags& output, int argc, const char* const* argv);

// `load`: times the rate of the source. What there is to say is said on stderr under the label, and how far
// it is by `progress`. Thread-safe.
StatusOr<Result> run_once(const SourceFlags& source, const SimulationOptions& options, double load,
                          const std::string& label, ProgressLine& progress);

PageFacts page_facts(std::string_view command, const SimulationOptions& options);
Status write_outputs(const OutputFlags& flags, std::string_view report, std::span<const Result> results,
                     const PageFacts& facts);

}  // namespace troupe::sim

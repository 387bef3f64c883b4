#pragma once

// Flags that several commands of troupe-sim share, and what they come to: a fleet, and where requests come
// from.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"
#include "common/settings/schema.h"
#include "sim/fleet/simulator.h"
#include "sim/trace/trace.h"
#include "sim/workload/workload.h"

namespace troupe::sim {

// Requests: a trace's files, or persona traffic made up on the way.
struct SourceFlags {
  std::vector<std::string> trace;
  TraceOptions trace_options{.spread = std::chrono::seconds(3)};
  std::string like = "study";  // what the workload starts from
  PersonaWorkload workload;
  std::string flash;  // SHARE:BEGIN_S:DURATION_S[:CARD_TOKENS]
  std::string burst;  // TIMES:BEGIN_S:DURATION_S
};
void describe_source(SettingsSchema& schema, SourceFlags& flags);
void describe_workload(SettingsSchema& schema, SourceFlags& flags);
// read_flags() for a schema that describes these; what --like names is where the other flags start from.
std::optional<int> read_source_flags(SettingsSchema& schema, SourceFlags& flags, std::string_view program,
                                     int argc, const char* const* argv);
// The workload that the flags say, checked. Errors name the flag.
StatusOr<PersonaWorkload> workload_of(const SourceFlags& flags);
// `load`: so many times the trace's or the workload's rate. `model_tokens_max`: see TraceOptions.
StatusOr<std::unique_ptr<RequestSource>> open_source(const SourceFlags& flags, uint64_t seed, double load,
                                                     int64_t model_tokens_max);

// Refuses what `these` describes, given by flag or in the file of --config; `why` follows its name.
Status refuse_given(const SettingsSchema& these, std::string_view why, int argc, const char* const* argv);
// Refuses flags of the workload beside a trace, which they cannot change.
Status check_source(const SourceFlags& flags, int argc, const char* const* argv);
// How many lines of a trace --skip-bad left out, said on stderr if any; none where it was not asked for.
std::optional<int64_t> print_skipped(std::string_view label, const RequestSource& source,
                                     const SourceFlags& flags);

// "trace a.jsonl and b.jsonl", "made-up persona traffic like study"
std::string source_description(const SourceFlags& flags);

// Says on stderr what is to be known of the trace's files, if anything (see TraceReader::notes()).
void print_notes(std::string_view label, const RequestSource& source);
// Says on stderr how many requests of a trace are too long for the nodes, if any, and where the first is.
void print_too_long(std::string_view label, const RequestSource& source, const NodeProfile& profile);

struct FleetFlags {
  SimulationOptions options;                        // the flags that name no file
  std::string profile = "study", faults, api_keys;  // simulation_of() reads them
  bool peer_ledger = true;                          // if several gateways can use it
};
void describe_nodes(SettingsSchema& schema, FleetFlags& flags);  // how many
void describe_fleet(SettingsSchema& schema, FleetFlags& flags);  // all else
// Errors name the flag or the file.
StatusOr<SimulationOptions> simulation_of(const FleetFlags& flags);

}  // namespace troupe::sim

#pragma once

// What every command does before and after its work: flags, --help and --version, files written whole or not
// at all, progress on stderr.

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "common/core/settings.h"
#include "sim/simulator.h"

namespace troupe::sim {

// Reads the flags; the exit code where there is nothing more to do (help, version, bad usage: said on
// stderr).
std::optional<int> read_flags(SettingsSchema& schema, std::string_view program, int argc,
                              const char* const* argv);

// "troupe-sim replay: …" on stderr; kExitUsage for what the user asked wrongly, else kExitFailed.
int fail(std::string_view program, const Status& status);

// Can these be written? Said before a long run, not after it. Empty paths and "-" can.
Status check_outputs(std::initializer_list<std::string> paths);
// Errors name the path. "-": stdout.
Status write_file(const std::string& path, std::string_view text);

// A SimulationOptions::progress that rewrites one line on stderr if that is a terminal, else says a line
// every ten seconds.
std::function<void(double, int64_t)> progress_line(std::string label);
void end_progress();

}  // namespace troupe::sim

#pragma once

// The frame of every command: flags, --help and --version, progress on stderr.

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "common/core/mutex.h"
#include "common/settings/schema.h"
#include "sim/fleet/simulator.h"

namespace troupe::sim {

// Reads the flags; returns the exit code where the command ends here (help, version, bad usage: reported on
// stderr).
std::optional<int> read_flags(SettingsSchema& schema, std::string_view program, int argc,
                              const char* const* argv);

// Prints "troupe-sim replay: …" on stderr; returns kExitUsage for the user's errors, else kExitFailed.
int fail(std::string_view program, const Status& status);

// The command as it was typed, each argument quoted for a shell where it must be: "troupe-sim replay --nodes
// 4". `argv[0]` is the command's name.
std::string command_line(int argc, const char* const* argv);
// "troupe-sim 0.1.0, 2026-03-01 12:34 UTC": what makes a page, and when.
std::string made_words();

// Progress of the current runs: one line on stderr, rewritten if that is a terminal, else printed anew every
// ten seconds. Thread-safe; REQUIRES: it outlives what run() returns.
class ProgressLine {
 public:
  // A SimulationOptions::progress of the run of this name, until ended().
  std::function<void(double, int64_t)> run(std::string name);
  void ended(const std::string& name);

 private:
  struct Run {
    double seconds = 0;
    int64_t requests = 0;
  };
  std::string line() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  std::map<std::string, Run> running_ ABSL_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point shown_at_ ABSL_GUARDED_BY(mutex_) = std::chrono::steady_clock::now();
};

}  // namespace troupe::sim

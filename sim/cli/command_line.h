#pragma once

// What every command does around its work: flags, --help and --version, progress on stderr.

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "common/settings/schema.h"
#include "sim/fleet/simulator.h"

namespace troupe::sim {

// Reads the flags; the exit code where there is nothing more to do (help, version, bad usage: said on
// stderr).
std::optional<int> read_flags(SettingsSchema& schema, std::string_view program, int argc,
                              const char* const* argv);

// "troupe-sim replay: …" on stderr; kExitUsage for what the user asked wrongly, else kExitFailed.
int fail(std::string_view program, const Status& status);

// How far the runs have come that go on at the moment: one line on stderr, rewritten if that is a terminal,
// else said anew every ten seconds. Thread-safe; outlives what run() returns.
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
  std::string line() const;

  std::mutex mutex_;
  std::map<std::string, Run> running_;
  std::chrono::steady_clock::time_point told_at_ = std::chrono::steady_clock::now();
};

}  // namespace troupe::sim

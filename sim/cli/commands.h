#pragma once

// The commands of troupe-sim. Each gets its own name and flags as main() does, reads them strictly, and
// returns the exit code: 0 ok, 1 failed, 2 bad usage.

namespace troupe::sim {

inline constexpr int kExitOk = 0, kExitFailed = 1, kExitUsage = 2;
inline constexpr char kVersion[] = "0.1.0";

int replay_command(int argc, const char* const* argv);
int compare_command(int argc, const char* const* argv);
int capacity_command(int argc, const char* const* argv);
int synth_command(int argc, const char* const* argv);
int drive_command(int argc, const char* const* argv);
int plan_command(int argc, const char* const* argv);

}  // namespace troupe::sim

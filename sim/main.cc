// troupe-sim: what would a fleet do? The routing and scheduling code of the gateway and the worker, on a
// virtual clock.

#include <array>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include "sim/cli/commands.h"
#include "sim/fleet/large_pages.h"

namespace troupe::sim {
namespace {

struct Command {
  std::string_view name, summary;
  int (*run)(int argc, const char* const* argv);
};
constexpr std::array kCommands{
    Command{"replay", "one policy, a trace or made-up traffic: a report", replay_command},
    Command{"compare", "several policies on the same requests: a table", compare_command},
    Command{"capacity", "the rate at which 99 % of requests are still answered well", capacity_command},
    Command{"drive", "the same requests against a live gateway: the same report", drive_command},
    Command{"plan", "which GPU, and how many, for a model and a load: a table", plan_command},
    Command{"synth", "persona traffic, written as a trace", synth_command},
};

std::string usage() {
  std::string out = "usage: troupe-sim COMMAND [--flag value …]      troupe-sim COMMAND --help\n\n";
  for (const Command& command : kCommands) {
    out += "  ";
    out += command.name;
    out.append(12 - command.name.size(), ' ');
    out += command.summary;
    out += '\n';
  }
  return out;
}

int main_of(int argc, const char* const* argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  for (const Command& command : kCommands) {
    if (command.name == name) return command.run(argc - 1, argv + 1);
  }
  if (name == "--help" || name == "-h") {
    std::fputs(usage().c_str(), stdout);
    return kExitOk;
  }
  if (name == "--version") {
    std::printf("troupe-sim %s\n", kVersion);
    return kExitOk;
  }
  const std::string what =
      name.empty() ? "a command is missing" : "'" + std::string(name) + "' is no command";
  std::fprintf(stderr, "troupe-sim: %s\n\n%s", what.c_str(), usage().c_str());
  return kExitUsage;
}

}  // namespace
}  // namespace troupe::sim

int main(int argc, char** argv) {
  troupe::sim::prefer_large_pages();
  try {
    return troupe::sim::main_of(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "troupe-sim: %s\n", e.what());
    return troupe::sim::kExitFailed;
  }
}

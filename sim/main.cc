// troupe-sim: what would a fleet do? The routing and scheduling code of the gateway and the worker, on a
// virtual clock.

#include <array>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include "sim/cli/commands.h"
#include "sim/cli/help_page.h"
#include "sim/fleet/large_pages.h"

namespace troupe::sim {
namespace {

struct Command {
  std::string_view name, page, summary;
  int (*run)(int argc, const char* const* argv);
};
constexpr std::array kCommands{
    Command{"replay", "troupe-sim replay", "one policy, a trace or made-up traffic: a report",
            replay_command},
    Command{"compare", "troupe-sim compare", "several policies on the same requests: a table",
            compare_command},
    Command{"capacity", "troupe-sim capacity", "the rate at which 99 % of requests are still answered well",
            capacity_command},
    Command{"drive", "troupe-sim drive", "the same requests against a live gateway: the same report",
            drive_command},
    Command{"plan", "troupe-sim plan", "which GPU, and how many nodes, for a model and a load or a trace",
            plan_command},
    Command{"synth", "troupe-sim synth persona", "persona traffic, written as a trace", synth_command},
};

std::string commands() {
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

std::string usage() {
  std::string out = commands() + "\nExamples:\n";
  for (const Command& command : kCommands) {
    out += "    ";
    out += example_of(command.page);
    out += '\n';
  }
  out += '\n';
  out += trace_words();
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
  std::fprintf(stderr, "troupe-sim: %s\n\n%s", what.c_str(), commands().c_str());
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

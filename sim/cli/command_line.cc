#include "sim/cli/command_line.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/cli/commands.h"

namespace troupe::sim {

std::optional<int> read_flags(SettingsSchema& schema, std::string_view program, int argc,
                              const char* const* argv) {
  const auto parsed = schema.parse(argc, argv);
  if (!parsed.ok()) return fail(program, parsed.status());
  if (parsed->help) {
    std::fputs(schema.help().c_str(), stdout);
    return kExitOk;
  }
  if (parsed->version) {
    std::printf("troupe-sim %s\n", kVersion);
    return kExitOk;
  }
  if (!parsed->positional.empty()) {
    return fail(program, invalid_argument(absl::StrCat("'", parsed->positional.front(),
                                                       "': there are only flags; see --help")));
  }
  if (parsed->check_config) return kExitOk;
  return std::nullopt;
}

int fail(std::string_view program, const Status& status) {
  std::fprintf(stderr, "%.*s: %s\n", static_cast<int>(program.size()), program.data(),
               std::string(status.message()).c_str());
  return status.code() == absl::StatusCode::kInvalidArgument || status.code() == absl::StatusCode::kNotFound
             ? kExitUsage
             : kExitFailed;
}

std::function<void(double, int64_t)> ProgressLine::run(std::string name) {
  return [this, name = std::move(name)](double seconds, int64_t requests) {
    const MutexLock lock(mutex_);
    running_[name] = {seconds, requests};
    const bool terminal = isatty(STDERR_FILENO) != 0;
    const auto now = std::chrono::steady_clock::now();
    if (!terminal && now - told_at_ < std::chrono::seconds(10)) return;
    told_at_ = now;
    std::fputs((terminal ? "\r\033[K" + line() : line() + "\n").c_str(), stderr);
  };
}

void ProgressLine::ended(const std::string& name) {
  const MutexLock lock(mutex_);
  running_.erase(name);
  if (isatty(STDERR_FILENO) != 0) std::fputs("\r\033[K", stderr);
}

// Shows as many of several runs as fit a terminal.
std::string ProgressLine::line() const {
  if (running_.size() == 1) {
    const auto& [name, run] = *running_.begin();
    return absl::StrFormat("%s: %.0f s simulated, %d requests", name, run.seconds, run.requests);
  }
  const auto [first, last] =
      std::minmax_element(running_.begin(), running_.end(),
                          [](const auto& a, const auto& b) { return a.second.seconds < b.second.seconds; });
  return absl::StrFormat("%d at once, %s at %.0f s, %s at %.0f s", running_.size(), first->first,
                         first->second.seconds, last->first, last->second.seconds);
}

}  // namespace troupe::sim

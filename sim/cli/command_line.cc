#include "sim/cli/command_line.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "sim/cli/commands.h"
#include "sim/cli/help_page.h"

namespace troupe::sim {
std::optional<int> read_flags(SettingsSchema& schema, std::string_view program, int argc,
                              const char* const* argv) {
  const auto parsed = schema.parse(argc, argv);
  if (!parsed.ok()) return fail(program, parsed.status());
  if (parsed->help) {
    std::fputs(help_page(program, schema).c_str(), stdout);
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

std::string command_line(int argc, const char* const* argv) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+.,:/@%";
  std::string out = "troupe-sim";
  for (int i = 0; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool plain_word = !argument.empty() && argument.find_first_not_of(kPlain) == std::string::npos;
    absl::StrAppend(
        &out, " ",
        plain_word ? argument : absl::StrCat("'", absl::StrReplaceAll(argument, {{"'", "'\\''"}}), "'"));
  }
  return out;
}

std::string made_words() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  return absl::StrCat("troupe-sim ", kVersion, ", ",
                      std::string(text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &utc)));
}

std::function<void(double, int64_t)> ProgressLine::run(std::string name) {
  return [this, name = std::move(name)](double seconds, int64_t requests) {
    const MutexLock lock(mutex_);
    running_[name] = {seconds, requests};
    const bool terminal = isatty(STDERR_FILENO) != 0;
    const auto now = std::chrono::steady_clock::now();
    if (!terminal && now - shown_at_ < std::chrono::seconds(10)) return;
    shown_at_ = now;
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

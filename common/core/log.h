#pragma once

// Writes one `key=value` line an event to stderr:
//   ts=2026-01-02T03:04:05.678Z level=info event=listening host=127.0.0.1 port=31000
// Values with spaces, quotes, '=', control characters or invalid UTF-8 are quoted and escaped, so a hostile
// value stays on its line. Thread-safe: a line is written with one write(2).

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

namespace troupe {

enum class LogLevel : int { kDebug, kInfo, kWarn, kError };

struct LogField {
  std::string_view key;
  std::string value;
  LogField(std::string_view k, std::string_view v) : key(k), value(v) {}
  LogField(std::string_view k, const char* v) : key(k), value(v) {}
  LogField(std::string_view k, const std::string& v) : key(k), value(v) {}
  LogField(std::string_view k, bool v) : key(k), value(v ? "true" : "false") {}
  template <typename T>
  requires std::is_arithmetic_v<T> LogField(std::string_view k, T v) : key(k), value(std::to_string(v)) {}
};

// The destination and level of log lines. Owned by main and passed down; no global.
class Logger {
 public:
  explicit Logger(LogLevel level = LogLevel::kInfo, int fd = 2) : level_(level), fd_(fd) {}
  bool enabled(LogLevel level) const { return level >= level_; }
  void write(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {}) const;
  void debug(std::string_view event, std::initializer_list<LogField> f = {}) const {
    write(LogLevel::kDebug, event, f);
  }
  void info(std::string_view event, std::initializer_list<LogField> f = {}) const {
    write(LogLevel::kInfo, event, f);
  }
  void warn(std::string_view event, std::initializer_list<LogField> f = {}) const {
    write(LogLevel::kWarn, event, f);
  }
  void error(std::string_view event, std::initializer_list<LogField> f = {}) const {
    write(LogLevel::kError, event, f);
  }

 private:
  LogLevel level_;
  int fd_;
};

// Formats a line without its newline; `unix_ms` in UTC. Exposed for tests.
std::string format_log_line(int64_t unix_ms, LogLevel level, std::string_view event,
                            std::initializer_list<LogField> fields);

}  // namespace troupe

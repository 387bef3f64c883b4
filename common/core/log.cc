#include "common/core/log.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <ctime>

namespace troupe {

namespace {

// A field longer than this is cut: one hostile header must not fill the disk line by line.
constexpr size_t kValueBytesMax = 4096;

std::string_view level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarn:
      return "warn";
    case LogLevel::kError:
      return "error";
  }
  return "unknown";
}

bool needs_quotes(std::string_view value) {
  if (value.empty()) return true;
  for (const unsigned char c : value) {
    if (c <= ' ' || c == '"' || c == '\\' || c == '=' || c == 0x7f) return true;
  }
  return false;
}

void append_quoted(std::string& out, std::string_view value) {
  out += '"';
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      static constexpr char kDigits[] = "0123456789abcdef";
      out += "\\x";
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

void append_value(std::string& out, std::string_view value) {
  const bool is_cut = value.size() > kValueBytesMax;
  if (is_cut) {
    size_t end = kValueBytesMax;
    while (end > 0 && (static_cast<unsigned char>(value[end]) & 0xC0) == 0x80) --end;  // whole characters
    value = value.substr(0, end);
  }
  if (needs_quotes(value)) {
    append_quoted(out, value);
  } else {
    out += value;
  }
  if (is_cut) out += "…";
}

void append_timestamp(std::string& out, int64_t unix_ms) {
  int64_t seconds = unix_ms / 1000;
  int64_t ms = unix_ms % 1000;
  if (ms < 0) {
    ms += 1000;
    --seconds;
  }
  const auto t = static_cast<std::time_t>(seconds);
  std::tm utc{};
  gmtime_r(&t, &utc);
  char text[80];
  const int size =
      std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", utc.tm_year + 1900,
                    utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, static_cast<int>(ms));
  out.append(text, static_cast<size_t>(size));
}

}  // namespace

std::string format_log_line(int64_t unix_ms, LogLevel level, std::string_view event,
                            std::initializer_list<LogField> fields) {
  std::string line = "ts=";
  line.reserve(160);
  append_timestamp(line, unix_ms);
  line += " level=";
  line += level_name(level);
  line += " event=";
  append_value(line, event);
  for (const LogField& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    append_value(line, field.value);
  }
  return line;
}

void Logger::write(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) const {
  if (!enabled(level)) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::string line = format_log_line(std::chrono::duration_cast<std::chrono::milliseconds>(now).count(),
                                     level, event, fields);
  line += '\n';
  // A log that cannot be written has nowhere to say so.
  [[maybe_unused]] const ssize_t written = ::write(fd_, line.data(), line.size());
}

}  // namespace troupe

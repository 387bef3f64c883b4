#include "common/core/log.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <utility>

#include "common/core/log_line.h"

namespace troupe {

namespace {

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

bool is_tail(std::string_view text, size_t i) {
  return i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80;
}

// Characters that show as none, or change how those around them show: a line would read otherwise than it
// is, or begin anew (U+2028). Sorted ranges.
constexpr std::array<std::pair<uint32_t, uint32_t>, 10> kDeceptive{{{0xAD, 0xAD},      // soft hyphen
                                                                    {0x61C, 0x61C},    // bidi mark
                                                                    {0x115F, 0x1160},  // fillers
                                                                    {0x180E, 0x180E},  // vowel separator
                                                                    {0x200B, 0x200F},  // zero width, marks
                                                                    {0x2028, 0x202E},  // line ends, bidi
                                                                    {0x2060, 0x206F},  // isolates
                                                                    {0xFEFF, 0xFEFF},  // byte order mark
                                                                    {0xFFF9, 0xFFFB},  // annotations
                                                                    {0xE0000, 0xE007F}}};  // tags

bool is_deceptive(std::string_view character) {
  const auto at = [&character](size_t i) { return static_cast<unsigned char>(character[i]); };
  uint32_t point = at(0) & (0xFFu >> (character.size() + 1));
  for (size_t i = 1; i < character.size(); ++i) point = point << 6 | (at(i) & 0x3F);
  const auto range = std::lower_bound(kDeceptive.begin(), kDeceptive.end(), point,
                                      [](const auto& one, uint32_t value) { return one.second < value; });
  return range != kDeceptive.end() && range->first <= point;
}

// Bytes of the character at the start of `text`; 0 if it is none, but a control (also those past ASCII) or
// invalid UTF-8.
size_t whole_character(std::string_view text) {
  const auto at = [&text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  if (first < 0x80) return first >= ' ' && first != 0x7f ? 1 : 0;
  if (first < 0xC2 || first > 0xF4 || !is_tail(text, 1)) return 0;
  const unsigned char second = at(1);
  if (first < 0xE0) return first == 0xC2 && second < 0xA0 ? 0 : 2;
  if (!is_tail(text, 2)) return 0;
  if (first < 0xF0) {
    const bool overlong = first == 0xE0 && second < 0xA0;
    const bool surrogate = first == 0xED && second > 0x9F;
    return overlong || surrogate ? 0 : 3;
  }
  const bool in_range = (first != 0xF0 || second >= 0x90) && (first != 0xF4 || second < 0x90);
  return in_range && is_tail(text, 3) ? 4 : 0;
}

// As whole_character(); 0 also for one that must be escaped.
size_t plain_character(std::string_view text) {
  const size_t length = whole_character(text);
  return length > 1 && is_deceptive(text.substr(0, length)) ? 0 : length;
}

bool needs_quotes(std::string_view value) {
  if (value.empty()) return true;
  while (!value.empty()) {
    const char c = value.front();
    const size_t length = plain_character(value);
    if (length == 0 || c == ' ' || c == '"' || c == '\\' || c == '=') return true;
    value.remove_prefix(length);
  }
  return false;
}

void append_byte(std::string& out, char c) {
  static constexpr char kDigits[] = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  out += "\\x";
  out += kDigits[byte >> 4];
  out += kDigits[byte & 15];
}

void append_quoted(std::string& out, std::string_view value) {
  out += '"';
  while (!value.empty()) {
    const char c = value.front();
    const size_t length = plain_character(value);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (length > 0) {
      out += value.substr(0, length);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else {
      append_byte(out, c);
    }
    value.remove_prefix(std::max<size_t>(length, 1));
  }
  out += '"';
}

}  // namespace

void append_log_time(std::string& out, int64_t unix_ms) {
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

void append_log_value(std::string& out, std::string_view value, size_t bytes_max) {
  const bool is_cut = value.size() > bytes_max;
  if (is_cut) {
    size_t end = bytes_max;
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

std::string format_log_line(int64_t unix_ms, LogLevel level, std::string_view event,
                            std::initializer_list<LogField> fields) {
  std::string line = "ts=";
  line.reserve(160);
  append_log_time(line, unix_ms);
  line += " level=";
  line += level_name(level);
  line += " event=";
  append_log_value(line, event);
  for (const LogField& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    append_log_value(line, field.value);
  }
  return line;
}

void Logger::write(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) const {
  if (!enabled(level)) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::string line = format_log_line(std::chrono::duration_cast<std::chrono::milliseconds>(now).count(),
                                     level, event, fields);
  line += '\n';
  // If the log cannot be written there is no other place to report it.
  [[maybe_unused]] const ssize_t written = ::write(fd_, line.data(), line.size());
}

}  // namespace troupe

#pragma once

// The parts of a log line (log.h), for lines that are not events of a Logger.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

// A longer field is cut: one hostile header must not fill the disk line by line.
inline constexpr size_t kLogValueBytesMax = 4096;

// Appends "2026-01-02T03:04:05.678Z"; `unix_ms` in UTC.
void append_log_time(std::string& out, int64_t unix_ms);
// Appends the value, quoted and escaped where necessary, and cut (with '…' after it) at `bytes_max`. The
// result is at most four times that long, plus two quotes.
void append_log_value(std::string& out, std::string_view value, size_t bytes_max = kLogValueBytesMax);

}  // namespace troupe

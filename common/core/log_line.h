#pragma once

// The pieces of a log line (log.h), for who makes lines that are no events of a Logger.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

// A field longer than this is cut: one hostile header must not fill the disk line by line.
inline constexpr size_t kLogValueBytesMax = 4096;

// "2026-01-02T03:04:05.678Z"; `unix_ms` in UTC.
void append_log_time(std::string& out, int64_t unix_ms);
// The value, quoted and escaped where it must be, cut (and '…' after it) where it is longer than `bytes_max`.
// Escaped it is at most four times as long, and two quotes.
void append_log_value(std::string& out, std::string_view value, size_t bytes_max = kLogValueBytesMax);

}  // namespace troupe

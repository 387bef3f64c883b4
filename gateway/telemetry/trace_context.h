#pragma once

// The traceparent header of W3C Trace Context (https://www.w3.org/TR/trace-context-2/), which identifies a
// request to all services on its way: "00-<trace id>-<span id>-<flags>", in lower-case hex.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/net/http_message.h"

namespace troupe {

struct TraceContext {
  uint64_t trace_hi = 0;
  uint64_t trace_lo = 0;  // at least one of the two is not 0
  uint64_t span = 0;      // the caller's, in a received header; not 0
  uint8_t flags = 0;

  static constexpr uint8_t kSampled = 1;
  static constexpr uint8_t kRandom = 2;  // the trace id's last 7 bytes are random
  bool sampled() const { return (flags & kSampled) != 0; }
  std::string trace_id() const;  // 32 hex digits
  std::string header() const;
  bool operator==(const TraceContext&) const = default;
};

// 16 lower-case hex digits.
std::string span_id(uint64_t span);

// nullopt: malformed. A later version than 00 is read as version 00; unknown flags are dropped.
std::optional<TraceContext> parse_traceparent(std::string_view header);
// The request's context; nullopt for no header, or more than one.
std::optional<TraceContext> trace_context_of(const HeaderList& headers);

// Unguessable ids from the kernel's generator. From one thread.
class TraceIds {
 public:
  uint64_t next();  // never 0
  // Begins a trace, with its first span. `ratio` of all are sampled, by their ids (another service with the
  // same rule decides the same).
  TraceContext new_trace(double ratio);

 private:
  std::array<uint64_t, 32> stock_{};  // 256 bytes: the kernel's largest atomic piece
  size_t left_ = 0;
};

}  // namespace troupe

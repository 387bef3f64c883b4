#pragma once

// The traceparent header of W3C Trace Context (https://www.w3.org/TR/trace-context-2/), by which a request is
// the same one for all who see it: "00-<trace id>-<span id>-<flags>", in lower-case hex.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/net/http_message.h"

namespace troupe {

struct TraceContext {
  uint64_t trace_hi = 0;
  uint64_t trace_lo = 0;  // of both, one at least is not 0
  uint64_t span = 0;      // whose: of a header that came, the caller's; not 0
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

// nullopt where it is malformed. Of a later version than 00 what version 00 knows is read; flags that nobody
// knows yet are left out.
std::optional<TraceContext> parse_traceparent(std::string_view header);
// The request's; nullopt where there is none, or more than one.
std::optional<TraceContext> trace_context_of(const HeaderList& headers);

// Ids that nobody can guess, out of the kernel's generator. From one thread.
class TraceIds {
 public:
  uint64_t next();  // never 0
  // A trace of its own, with a first span. Sampled are `ratio` of all, by their ids (so whoever samples by
  // the same rule comes to the same).
  TraceContext new_trace(double ratio);

 private:
  std::array<uint64_t, 32> stock_{};  // 256 bytes: what the kernel gives in one piece
  size_t left_ = 0;
};

}  // namespace troupe

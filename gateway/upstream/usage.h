#pragma once

// Reads the worker's own token counts off an answer as it passes: only its last bytes are kept, and none is
// altered. Works for whole answers and for streams with include_usage, of any OpenAI-like server; our workers
// report theirs in every stream (resume_filter.h).

#include <optional>
#include <string>
#include <string_view>

#include "gateway/route/key/token_estimate.h"

namespace troupe {

// Keeps the last kTailBytes of its input.
class UsageTap {
 public:
  static constexpr size_t kTailBytes = 2048;
  void feed(std::string_view bytes);
  // The last usage object seen; none: there is none, or it is malformed.
  std::optional<route::AnswerCounts> counts() const;
  // Bytes fed so far.
  size_t bytes() const { return bytes_; }
  // For a stream: number of events with data. REQUIRES: it was fed in whole events.
  size_t events() const { return events_; }

 private:
  std::string tail_;
  size_t bytes_ = 0, events_ = 0;
};

}  // namespace troupe

#pragma once

// The worker's own token counts, read off an answer as it passes, and how much of it has: only its last bytes
// are kept, and nothing of it is altered. Works for whole answers and for streams with include_usage, of any
// OpenAI-like server; workers of ours tell theirs in every stream, see resume_filter.h.

#include <optional>
#include <string>
#include <string_view>

#include "gateway/route/key/token_estimate.h"

namespace troupe {

// Keeps the last kTailBytes of what it is fed.
class UsageTap {
 public:
  static constexpr size_t kTailBytes = 2048;
  void feed(std::string_view bytes);
  // The last usage object seen, if there is one that makes sense.
  std::optional<route::AnswerCounts> counts() const;
  // Fed so far.
  size_t bytes() const { return bytes_; }
  // Of a stream: its events that have data. REQUIRES: it was fed in whole events.
  size_t events() const { return events_; }

 private:
  std::string tail_;
  size_t bytes_ = 0, events_ = 0;
};

}  // namespace troupe

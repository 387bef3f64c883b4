#pragma once

// Reads the worker's own token counts off an answer as it passes: only its last bytes are kept, and none is
// altered. Works for whole answers and for streams with include_usage, of any OpenAI-like server; our workers
// report theirs in every stream (resume_filter.h). The Responses and the Messages API have counts in every
// stream, not all at its end.

#include <optional>
#include <string>
#include <string_view>

#include "gateway/route/key/token_estimate.h"

namespace troupe {

// Keeps the last kTailBytes of its input.
class UsageTap {
 public:
  static constexpr size_t kTailBytes = 2048;
  // From here on every usage is read as it comes: that of the Messages API has the prompt's tokens in the
  // first event, the answer's in one of the last, and that of the Responses API may stand far before the end.
  // Then there are no counts before those of the answer. REQUIRES: nothing was fed, and it is fed in whole
  // events.
  void read_every_usage() { reads_every_ = true; }
  void feed(std::string_view bytes);
  // The last usage object seen; none: there is none, or it is malformed.
  std::optional<route::AnswerCounts> counts() const;
  // The last finish reason in the answer's last bytes ("stop"; of the Messages API "end_turn"), or empty.
  // Valid until the next feed().
  std::string_view finish_reason() const;
  // Bytes fed so far.
  size_t bytes() const { return bytes_; }
  // For a stream: number of events with data. REQUIRES: it was fed in whole events.
  size_t events() const { return events_; }

 private:
  void read_usages(std::string_view events);

  std::string tail_;
  size_t bytes_ = 0, events_ = 0;
  bool reads_every_ = false;
  std::optional<route::AnswerCounts> begun_, answer_;  // an opening event's, and the answer's
};

}  // namespace troupe

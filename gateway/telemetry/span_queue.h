#pragma once

// Spans on their way to a collector, and what its answers mean. Plain rules without sockets or clocks; who
// sends is span_exporter.h.

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "common/core/time.h"
#include "gateway/telemetry/span_json.h"

namespace troupe {

// Batches by size, in order, bounded in bytes: what does not fit is refused, so what is there when a
// collector comes back is the oldest, in one piece.
class SpanQueue {
 public:
  SpanQueue(size_t bytes_max, size_t batch_bytes) : bytes_max_(bytes_max), batch_bytes_(batch_bytes) {}
  // False: there is no room.
  bool add(SpanText spans);
  // The oldest batch, which counts as held until it is dropped; the others grow behind it. nullptr: none.
  const SpanText* front();
  void drop_front();
  bool has_full_batch() const { return batches_.size() > 1; }
  bool empty() const { return batches_.empty(); }
  size_t bytes() const { return bytes_; }
  size_t spans() const;

 private:
  const size_t bytes_max_;
  const size_t batch_bytes_;
  std::deque<SpanText> batches_;
  bool front_taken_ = false;  // and grows no more
  size_t bytes_ = 0;
};

// By the OTLP specification: 429, 502, 503 and 504 (and no answer at all) may be asked again, all others not.
enum class ExportVerdict { kTaken, kAgain, kRefused };
ExportVerdict judge_export(int http_status);
// Of an answer that took the batch: spans that it did not, `partialSuccess`. 0 where the answer is anything
// else.
size_t rejected_spans(std::string_view body);
// Retry-After, as seconds or as a date; nullopt where it is neither. `unix_s`: now.
std::optional<Duration> retry_after(std::string_view header, int64_t unix_s);

// How long until a batch is sent again: doubled each time, and by chance up to half as long, lest all
// gateways come at once.
struct ExportBackoff {
  Duration first = std::chrono::seconds(1);
  Duration max = std::chrono::seconds(30);
  // `failures` ≥ 1 in a row; `random` any number.
  Duration wait(size_t failures, uint64_t random) const;
};

}  // namespace troupe

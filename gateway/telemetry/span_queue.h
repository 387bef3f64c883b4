#pragma once

// Spans on their way to a collector, and the meaning of its answers. Pure rules without sockets or clocks;
// span_exporter.h sends.

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "common/core/time.h"
#include "gateway/telemetry/span_json.h"

namespace troupe {

// Batches by size, in order, bounded in bytes: spans that do not fit are refused, so when a collector comes
// back the queue holds the oldest, in one piece.
class SpanQueue {
 public:
  SpanQueue(size_t bytes_max, size_t batch_bytes) : bytes_max_(bytes_max), batch_bytes_(batch_bytes) {}
  // False: there is no room.
  bool add(SpanText spans);
  // The oldest batch, which counts until it is dropped; the others grow behind it. nullptr: none.
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

// By the OTLP specification: 429, 502, 503 and 504 (and no answer at all) may be retried, all others not.
enum class ExportVerdict { kTaken, kAgain, kRefused };
ExportVerdict judge_export(int http_status);
// Number of spans rejected by an answer that took the batch (`partialSuccess`). 0 for any other answer.
size_t rejected_spans(std::string_view body);
// Retry-After, as seconds or as a date; nullopt where it is neither. `unix_s`: now.
std::optional<Duration> retry_after(std::string_view header, int64_t unix_s);

// Wait until a batch is sent again: doubled each time, and randomly down to half, lest all gateways come at
// once.
struct ExportBackoff {
  Duration first = std::chrono::seconds(1);
  Duration max = std::chrono::seconds(30);
  // `failures` ≥ 1 in a row; `random` any number.
  Duration wait(size_t failures, uint64_t random) const;
};

}  // namespace troupe

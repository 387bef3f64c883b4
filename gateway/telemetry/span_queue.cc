#include "gateway/telemetry/span_queue.h"

#include <time.h>

#include <algorithm>
#include <charconv>

#include "common/json/json.h"

namespace troupe {

bool SpanQueue::add(SpanText spans) {
  const size_t bytes = spans.json.size() + 1;
  if (bytes_ + bytes > bytes_max_) return false;
  bytes_ += bytes;
  const bool closed = batches_.empty() || (front_taken_ && batches_.size() == 1) ||
                      batches_.back().json.size() + bytes > batch_bytes_;
  if (closed) {
    batches_.push_back(std::move(spans));
    return true;
  }
  SpanText& batch = batches_.back();
  batch.json += ',';
  batch.json += spans.json;
  batch.count += spans.count;
  return true;
}

const SpanText* SpanQueue::front() {
  front_taken_ = !batches_.empty();
  return front_taken_ ? &batches_.front() : nullptr;
}

void SpanQueue::drop_front() {
  batches_.pop_front();
  front_taken_ = false;
  bytes_ = 0;
  for (const SpanText& rest : batches_) bytes_ += rest.json.size() + 1;
}

size_t SpanQueue::spans() const {
  size_t sum = 0;
  for (const SpanText& batch : batches_) sum += batch.count;
  return sum;
}

ExportVerdict judge_export(int http_status) {
  if (http_status / 100 == 2) return ExportVerdict::kTaken;
  const bool again = http_status == 429 || http_status == 502 || http_status == 503 || http_status == 504;
  return again ? ExportVerdict::kAgain : ExportVerdict::kRefused;
}

// {"partialSuccess": {"rejectedSpans": "3", "errorMessage": "…"}}, the number as a string or as one.
size_t rejected_spans(std::string_view body) {
  const auto value = parse_json(body);
  const bj::object* answer = value.ok() ? value->if_object() : nullptr;
  const bj::value* partial = answer == nullptr ? nullptr : answer->if_contains("partialSuccess");
  const bj::object* fields = partial == nullptr ? nullptr : partial->if_object();
  const bj::value* rejected = fields == nullptr ? nullptr : fields->if_contains("rejectedSpans");
  if (rejected == nullptr) return 0;
  if (rejected->is_int64()) return static_cast<size_t>(std::max<int64_t>(rejected->get_int64(), 0));
  size_t count = 0;
  if (const bj::string* text = rejected->if_string())
    std::from_chars(text->data(), text->data() + text->size(), count);
  return count;
}

std::optional<Duration> retry_after(std::string_view header, int64_t unix_s) {
  int64_t seconds = 0;
  const auto [end, error] = std::from_chars(header.data(), header.data() + header.size(), seconds);
  if (error != std::errc() || end != header.data() + header.size()) {
    const std::string text(header);
    tm date{};
    const char* rest = strptime(text.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &date);
    if (rest == nullptr || *rest != '\0') return std::nullopt;
    seconds = timegm(&date) - unix_s;
  }
  constexpr int64_t kMost = 1'000'000;
  return std::chrono::seconds(std::clamp<int64_t>(seconds, 0, kMost));
}

Duration ExportBackoff::wait(size_t failures, uint64_t random) const {
  Duration wait = first;
  for (size_t i = 1; i < failures && wait < max; ++i) wait *= 2;
  wait = std::min(wait, max);
  const double part = static_cast<double>(random >> 11) / static_cast<double>(uint64_t{1} << 53);
  return wait + Duration(static_cast<int64_t>(static_cast<double>(wait.count()) * part / 2));
}

}  // namespace troupe

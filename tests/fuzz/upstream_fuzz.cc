// Reports of workers, which may be wrong: an event of GET /v1/residency (its name is the input's first line),
// the usage at the end of an answer, and a refusal for length. Also the pins that gateways write into etcd.
// What is understood says the same when it is written again.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/api/residency.h"
#include "common/api/sse.h"
#include "common/json/json.h"
#include "gateway/cluster/pin_record.h"
#include "gateway/upstream/length_refusal.h"
#include "gateway/upstream/usage.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check_residency(std::string_view name, std::string_view data) {
  const auto event = troupe::parse_residency_event(name, data);
  if (!event.ok()) {
    require(troupe::parse_json(event.error().to_json()).ok());
    return;
  }
  const troupe::ResidencyEvent& e = event.value();
  require(e.kind == troupe::ResidencyEvent::Kind::kSnapshot || e.items.size() == 1);
  for (const troupe::ResidencyItem& item : e.items) require(item.tokens >= 0);
  if (e.epoch.find_first_of("\r\n") != std::string::npos) return;
  std::string written;
  troupe::append_residency_event(written, e.kind, e.epoch, e.seq, e.items);
  bool again = false;
  troupe::SseParser parser(size_t{1} << 24);
  const auto read = parser.feed(
      written,
      [&](const troupe::SseEvent& sse) {
        const auto same = troupe::parse_residency_event(sse.event, sse.data);
        require(same.ok() && same.value().kind == e.kind && same.value().epoch == e.epoch);
        require(same.value().seq == e.seq && same.value().items.size() == e.items.size());
        again = true;
      },
      [](std::string_view) {});
  require(read.ok() && again);
}

void check_refusal(std::string_view body) {
  troupe::route::Failure failure{troupe::route::FailureKind::kStatus, 400};
  troupe::note_length_refusal(body, failure);
  require(failure.context_max >= 0 && (failure.too_long || failure.context_max == 0));
}

void check_pin(std::string_view json) {
  const auto record = troupe::parse_pin_record(json);
  if (!record.ok()) return;
  const std::string written = troupe::pin_record_json(*record);
  if (written.size() > troupe::kPinRecordBytesMax) return;  // it escapes more
  const auto again = troupe::parse_pin_record(written);
  require(again.ok() && troupe::pin_record_json(*again) == written);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t line = text.find('\n');
  if (line != std::string_view::npos) check_residency(text.substr(0, line), text.substr(line + 1));
  check_refusal(text);
  check_pin(text);
  troupe::UsageTap whole, pieces;
  whole.feed(text);
  for (size_t at = 0; at < size; at += 7) pieces.feed(text.substr(at, 7));
  const auto counts = whole.counts(), same = pieces.counts();
  require(counts.has_value() == same.has_value());
  if (counts) {
    require(counts->prompt_tokens >= 0 && counts->completion_tokens >= 0 && counts->cached_tokens >= 0);
    require(counts->prompt_tokens == same->prompt_tokens && counts->cached_tokens == same->cached_tokens);
  }
  return 0;
}

// A worker's stream as a gateway takes it in, pieces of any length: whole events that pass are a part of what
// came, in its order; nothing depends on where the network cut; what another worker would be asked is JSON.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/json/json.h"
#include "gateway/upstream/forward.h"
#include "gateway/upstream/resume_filter.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

std::string pass(troupe::ResumeTap& tap, std::string_view text, size_t step) {
  std::string out, held;
  for (size_t at = 0; at < text.size(); at += step) {
    held += text.substr(at, step);
    std::string events = held.substr(0, troupe::whole_events(held));
    held.erase(0, events.size());
    const size_t before = events.size();
    tap.cut(events);
    require(events.size() <= before);
    out += events;
  }
  return out + held;  // an answer's end is passed on, whole event or not
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.find('\r') != std::string_view::npos) return 0;  // events that end otherwise may be cut otherwise
  troupe::ResumeTap whole(true), pieces(true);
  const std::string passed = pass(whole, text, size + 1);
  require(passed == pass(pieces, text, 5));
  require(whole.ids_delivered() == pieces.ids_delivered() &&
          whole.tokens_delivered() == pieces.tokens_delivered() && whole.resumable() == pieces.resumable());
  require(whole.heartbeats() == pieces.heartbeats() && whole.done() == pieces.done());
  require(whole.counts().has_value() == pieces.counts().has_value());
  require(!whole.counts() || (whole.counts()->cached_tokens >= 0 &&
                              whole.counts()->cached_tokens <= whole.counts()->prompt_tokens));
  size_t at = 0;
  for (const char c : passed) {
    at = text.find(c, at);
    require(at++ != std::string_view::npos);
  }
  if (whole.resumable()) require(troupe::parse_json(whole.resume_body("{\"n\":1}")).ok());
  whole.next_worker(true);
  pass(whole, text, 9);
  troupe::status_of_error_event(text);
  for (const auto form : {troupe::AnswerForm::kOther, troupe::AnswerForm::kCompletion,
                          troupe::AnswerForm::kResponses, troupe::AnswerForm::kMessages}) {
    troupe::StreamOpening opening(form);
    std::string events(text);
    const bool has_content = opening.take(events) == troupe::EventKind::kContent;
    require(has_content ? events == text && opening.held().empty()
                        : events.empty() && opening.held() == text);
    troupe::kind_of_whole(text, form);
    troupe::kind_of_passed(text, "application/json");
  }
  return 0;
}

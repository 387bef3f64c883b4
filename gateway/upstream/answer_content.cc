#include "gateway/upstream/answer_content.h"

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "common/json/json.h"
#include "gateway/upstream/sse_lines.h"
#include "gateway/upstream/stream_events.h"

namespace troupe {
namespace {

// Longer bodies are not parsed: no server's way of saying nothing is as long.
constexpr size_t kJudgedMax = size_t{64} << 10;

// Events of the Responses and the Messages API that come before content.
constexpr std::array<std::string_view, 8> kTypesWithout{"message_start",
                                                        "content_block_stop",
                                                        "response.created",
                                                        "response.queued",
                                                        "response.in_progress",
                                                        "response.output_item.added",
                                                        "response.content_part.added",
                                                        "response.reasoning_summary_part.added"};
// Members of a chunk that has no choices.
constexpr std::array<std::string_view, 7> kNamesWithout{
    "id", "object", "created", "model", "usage", "system_fingerprint", "service_tier"};

template <size_t N>
bool among(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const bj::value* field(const bj::object& object, std::string_view name) {
  return object.if_contains({name.data(), name.size()});
}

bool says_something(const bj::value& value) {
  return (value.is_string() && !value.get_string().empty()) ||
         (value.is_array() && !value.get_array().empty()) ||
         (value.is_object() && !value.get_object().empty());
}

// Any member that says something, but for the one that only names the object's kind.
bool says_something_but(const bj::object& object, std::string_view kind) {
  return std::any_of(object.begin(), object.end(), [kind](const auto& member) {
    return std::string_view(member.key()) != kind && says_something(member.value());
  });
}

bool has_content(const bj::value& choice) {
  const bj::object* fields = choice.if_object();
  if (fields == nullptr) return false;
  if (!string_member(*fields, "finish_reason").empty() || !string_member(*fields, "text").empty())
    return true;
  for (const char* name : {"delta", "message"}) {
    const bj::value* said = field(*fields, name);
    if (said != nullptr && said->is_object() && says_something_but(said->get_object(), "role")) return true;
  }
  return false;
}

bool any_content(const bj::array& choices) {
  return std::any_of(choices.begin(), choices.end(), has_content);
}

bool is_ping(std::string_view type) {
  return type == "ping" || type == "keepalive";
}

EventKind kind_of_typed(std::string_view type, const bj::object& event) {
  if (type == "message_stop") return EventKind::kEnd;
  if (is_ping(type)) return EventKind::kIdle;
  if (among(kTypesWithout, type)) return EventKind::kFrame;
  bool says = true;
  if (type == "content_block_start") {
    const bj::value* block = field(event, "content_block");
    says = block == nullptr || !block->is_object() || says_something_but(block->get_object(), "type");
  } else if (type.ends_with("delta")) {
    const bj::value* delta = field(event, "delta");
    says = delta != nullptr &&
           (delta->is_object() ? says_something_but(delta->get_object(), "type") : says_something(*delta));
  }
  return says ? EventKind::kContent : EventKind::kFrame;
}

bool begins_object(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  return begin != std::string_view::npos && text[begin] == '{';
}

// A JSON object without its end, as of a server that died while it wrote. (A failed parse would say less:
// some servers write NaN for a log probability.)
bool is_cut_object(std::string_view text) {
  return begins_object(text) && text[text.find_last_not_of(" \t\r\n")] != '}';
}

// FastAPI's way of saying what failed, where it comes after a head of 200.
bool is_detail_alone(const bj::object& object) {
  const bj::value* detail = field(object, "detail");
  return detail != nullptr && object.size() == 1 && says_something(*detail);
}

EventKind kind_of_data(std::string_view data) {
  if (is_cut_object(data)) return EventKind::kFrame;
  const auto value = parse_json(data);
  const bj::object* object = value.ok() ? value->if_object() : nullptr;
  if (object == nullptr) return EventKind::kContent;
  if (is_detail_alone(*object)) return EventKind::kError;
  if (const bj::value* choices = field(*object, "choices"); choices != nullptr && choices->is_array())
    return any_content(choices->get_array()) ? EventKind::kContent : EventKind::kFrame;
  if (const std::string_view type = string_member(*object, "type"); !type.empty())
    return kind_of_typed(type, *object);
  const bool without =
      !object->empty() && std::all_of(object->begin(), object->end(), [](const auto& member) {
        return among(kNamesWithout, std::string_view(member.key()));
      });
  return without ? EventKind::kFrame : EventKind::kContent;
}

// As std::string_view's find, which stops at every letter that is the first of `text`.
size_t find_in(std::string_view bytes, std::string_view text, size_t from = 0) {
  const void* found = memmem(bytes.data() + from, bytes.size() - from, text.data(), text.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - bytes.data());
}

// Whether a member of this name is a string that says something. (In a model's text its quotes would be
// escaped.)
bool has_string(std::string_view events, std::string_view quoted_name) {
  for (size_t at = find_in(events, quoted_name); at != std::string_view::npos;
       at = find_in(events, quoted_name, at)) {
    at = events.find_first_not_of(" :", at + quoted_name.size());
    if (at != std::string_view::npos && at + 1 < events.size() && events[at] == '"' && events[at + 1] != '"')
      return true;
  }
  return false;
}

// The quoted types of a form's last event.
std::array<std::string_view, 2> last_types(AnswerForm form) {
  if (form == AnswerForm::kMessages) return {"\"message_stop\"", ""};
  if (form == AnswerForm::kResponses) return {"\"response.completed\"", "\"response.incomplete\""};
  return {};
}

// Where the form's last event names itself; npos: nowhere.
size_t last_type_in(std::string_view events, AnswerForm form) {
  const std::array<std::string_view, 2> types = last_types(form);
  for (const std::string_view type : types) {
    const size_t at = type.empty() ? std::string_view::npos : events.rfind(type);
    if (at != std::string_view::npos) return at;
  }
  return std::string_view::npos;
}

// The quoted name of the member that says why an answer of this form ended.
std::string_view end_name(AnswerForm form) {
  if (form == AnswerForm::kMessages) return "\"stop_reason\"";
  return form == AnswerForm::kResponses ? "\"status\"" : "\"finish_reason\"";
}

// An answer as nearly all are, told from an error without a parse.
bool is_plain_answer(std::string_view body, AnswerForm form) {
  return find_in(body, "error") == std::string_view::npos && has_string(body, end_name(form)) &&
         (form != AnswerForm::kCompletion || find_in(body, "\"choices\"") != std::string_view::npos);
}

// An object of the form's answers that is no error.
WholeKind kind_of_object(const bj::object& object, AnswerForm form) {
  const auto list = [&object](std::string_view name) {
    const bj::value* value = field(object, name);
    return value == nullptr ? nullptr : value->if_array();
  };
  bool is_answer = true;
  if (form == AnswerForm::kCompletion) {
    const bj::array* choices = list("choices");
    is_answer = choices != nullptr && any_content(*choices);
  } else if (form == AnswerForm::kResponses) {
    is_answer = list("output") != nullptr || !string_member(object, "status").empty();
  } else if (form == AnswerForm::kMessages) {
    const bj::array* content = list("content");
    is_answer = (content != nullptr && !content->empty()) || !string_member(object, "stop_reason").empty();
  }
  return is_answer ? WholeKind::kAnswer : WholeKind::kNone;
}

WholeKind kind_of_json(std::string_view body, AnswerForm form) {
  const auto value = parse_json(body);
  // (Some servers write what is not quite JSON: NaN for a log probability.)
  if (!value.ok()) return WholeKind::kAnswer;
  const bj::object* object = value->if_object();
  if (object == nullptr) return WholeKind::kAnswer;
  return is_error(*object) ? WholeKind::kError : kind_of_object(*object, form);
}

std::string_view without_spaces(std::string_view text) {
  return to_std(absl::StripAsciiWhitespace(to_absl(text)));
}

bool begins_page(std::string_view body) {
  const absl::string_view text = absl::StripLeadingAsciiWhitespace(to_absl(body));
  return absl::StartsWithIgnoreCase(text, "<!doctype") || absl::StartsWithIgnoreCase(text, "<html");
}

// JSON that has no answer in it: white space, null, {}.
bool is_bare_json(std::string_view body) {
  const std::string_view text = without_spaces(body);
  if (text.empty() || text == "null") return true;
  return text.starts_with('{') && text.ends_with('}') && text.size() > 1 &&
         without_spaces(text.substr(1, text.size() - 2)).empty();
}

}  // namespace

AnswerForm form_of_passed(std::string_view path) {
  if (path == "/v1/responses") return AnswerForm::kResponses;
  return path == "/v1/messages" ? AnswerForm::kMessages : AnswerForm::kOther;
}

EventKind kind_of_event(std::string_view event, AnswerForm form) {
  if (!error_event(event).empty()) return EventKind::kError;
  std::string data;
  bool pings = false;
  for_each_line(event, [&](std::string_view name, std::string_view value) {
    pings |= name == "event" && is_ping(value);
    if (name == "data") data += value;
  });
  if (pings || data.find_first_not_of(' ') == std::string::npos) return EventKind::kIdle;
  if (form == AnswerForm::kOther) return EventKind::kContent;
  return data == "[DONE]" ? EventKind::kEnd : kind_of_data(data);
}

EventKind StreamOpening::take(std::string& piece) {
  EventKind kind = EventKind::kIdle;
  for_each_event(piece, [&](std::string_view event) {
    kind = kind_of_event(event, form_);
    began_ |= kind != EventKind::kIdle;
    if (kind == EventKind::kError) error_ = event;
    return kind != EventKind::kIdle && kind != EventKind::kFrame;
  });
  held_ += piece;
  piece.clear();
  const bool is_over = kind == EventKind::kError || kind == EventKind::kEnd;
  if (!is_over && held_.size() > kBytesMax) kind = EventKind::kContent;
  if (kind == EventKind::kContent) {
    piece.swap(held_);
    passed_ = true;
  }
  return kind;
}

bool ends_stream(std::string_view events, AnswerForm form, bool one_choice) {
  if (last_type_in(events, form) != std::string_view::npos) return true;
  if (form == AnswerForm::kMessages && has_string(events, "\"stop_reason\"")) return true;
  return ends_answer(events, one_choice);
}

bool StreamEnd::take(std::string_view events) {
  if (!came_) came_ = ends_stream(events, form_, choices_ == 1);
  if (!came_ && choices_ > 1 && has_string(events, "\"finish_reason\"")) count_finished(events);
  return came_;
}

void StreamEnd::count_finished(std::string_view events) {
  for_each_event(events, [this](std::string_view event) {
    std::string data;
    for_each_line(event, [&data](std::string_view name, std::string_view value) {
      if (name == "data") data += value;
    });
    const auto chunk = parse_json(data);
    const bj::object* object = chunk.ok() ? chunk->if_object() : nullptr;
    const bj::value* choices = object == nullptr ? nullptr : field(*object, "choices");
    if (choices == nullptr || !choices->is_array()) return false;
    for (const bj::value& choice : choices->get_array()) {
      if (!choice.is_object() || string_member(choice.get_object(), "finish_reason").empty()) continue;
      const bj::value* index = field(choice.get_object(), "index");
      const int64_t number = index != nullptr && index->is_int64() ? index->get_int64() : 0;
      if (number >= 0 && number < choices_) finished_.insert(number);
    }
    return false;
  });
  came_ = std::cmp_equal(finished_.size(), choices_);
}

bool contains_last_event(std::string_view events, AnswerForm form) {
  if (contains_done(events)) return true;
  const size_t at = last_type_in(events, form);
  return at != std::string_view::npos && at + first_event_bytes(events.substr(at)) == events.size();
}

bool is_media(std::string_view content_type) {
  const std::string type = absl::AsciiStrToLower(to_absl(content_type));
  return !type.empty() && !type.starts_with("text/") && type.find("json") == std::string::npos;
}

WholeKind kind_of_whole(std::string_view body, AnswerForm form, bool is_begin) {
  if (!begins_object(body) || (!is_begin && is_cut_object(body))) return WholeKind::kNone;
  if (body.size() > kJudgedMax || is_plain_answer(body, form)) return WholeKind::kAnswer;
  return kind_of_json(body, form);
}

WholeKind kind_of_passed(std::string_view body, std::string_view content_type, bool is_begin) {
  const std::string type = absl::AsciiStrToLower(to_absl(content_type));
  const bool may_be_json = type.empty() || type.find("json") != std::string::npos;
  if (body.empty() || type.starts_with("text/html")) return WholeKind::kNone;
  if (is_media(type)) return WholeKind::kAnswer;
  if (begins_page(body) || (may_be_json && is_bare_json(body))) return WholeKind::kNone;
  if (!may_be_json || !begins_object(body)) return WholeKind::kAnswer;
  if (!is_begin && is_cut_object(body)) return WholeKind::kNone;
  if (body.size() > kJudgedMax || find_in(body, "\"error\"") == std::string_view::npos)
    return WholeKind::kAnswer;
  return kind_of_json(body, AnswerForm::kOther);
}

}  // namespace troupe

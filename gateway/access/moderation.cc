#include "gateway/access/moderation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"

namespace troupe {

namespace {

// Ends of sentences that need no space after them.
constexpr std::string_view kFullStops[] = {"\n", "\u3002", "\uff01", "\uff1f"};
constexpr std::string_view kMarks = ".!?";
constexpr std::string_view kSpaces = " \t\r\n";
// A character in UTF-8 has no more.
constexpr size_t kCharBytesMax = 4;

bool continues_char(char c) {
  return (static_cast<unsigned char>(c) & 0xc0U) == 0x80;
}

std::string string_at(const bj::object& fields, std::string_view name) {
  const bj::value* value = fields.if_contains(name);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

// The JSON of an event's data; empty: it has none, or it is no object.
std::string_view data_of(std::string_view event) {
  constexpr std::string_view kData = "data:";
  const size_t at = event.starts_with(kData) ? 0 : event.find("\ndata:");
  if (at == std::string_view::npos) return {};
  std::string_view data = event.substr(at + (at == 0 ? kData.size() : kData.size() + 1));
  data = data.substr(0, data.find_first_of("\r\n"));
  const size_t begin = data.find_first_not_of(' ');
  return begin != std::string_view::npos && data[begin] == '{' ? data.substr(begin) : std::string_view();
}

bj::object* first_choice(bj::value& chunk) {
  bj::object* fields = chunk.if_object();
  bj::value* choices = fields == nullptr ? nullptr : fields->if_contains("choices");
  if (choices == nullptr || !choices->is_array() || choices->get_array().empty()) return nullptr;
  return choices->get_array()[0].if_object();
}

// The object that has the text: a completion's choice itself, else a chat's delta or message.
bj::object* text_holder(bj::object& choice) {
  for (const char* name : {"delta", "message"}) {
    if (bj::value* inner = choice.if_contains(name)) return inner->if_object();
  }
  return &choice;
}

constexpr const char* kTextFields[] = {"reasoning", "reasoning_content", "refusal", "content", "text"};

// Some servers say thoughts under both names: they are one text.
bool thinks_twice(const bj::object& holder) {
  const std::string thoughts = string_at(holder, "reasoning");
  return !thoughts.empty() && thoughts == string_at(holder, "reasoning_content");
}

std::string text_in(const bj::object& holder) {
  std::string text;
  const bool twice = thinks_twice(holder);
  for (const std::string_view name : kTextFields)
    if (!twice || name != "reasoning_content") text += string_at(holder, name);
  return text;
}

void add_call(const bj::value* call, std::string& text) {
  if (call == nullptr || !call->is_object()) return;
  const std::string name = string_at(call->get_object(), "name");
  if (!name.empty()) absl::StrAppend(&text, name, "\n");
  const bj::value* arguments = call->get_object().if_contains("arguments");
  if (arguments == nullptr || arguments->is_null()) return;
  text += arguments->is_string() ? std::string(arguments->get_string()) : to_json(*arguments);
}

// Names and arguments of calls.
std::string calls_in(const bj::object& holder) {
  std::string text;
  add_call(holder.if_contains("function_call"), text);
  const bj::value* calls = holder.if_contains("tool_calls");
  if (calls == nullptr || !calls->is_array()) return text;
  for (const bj::value& call : calls->get_array())
    if (call.is_object())
      for (const char* kind : {"function", "custom"}) add_call(call.get_object().if_contains(kind), text);
  return text;
}

// The last field that has a text gets the new one; the others have none.
void set_text(bj::object& holder, std::string_view text) {
  const bool twice = thinks_twice(holder);
  bj::value* last = nullptr;
  for (const char* name : kTextFields) {
    bj::value* value = holder.if_contains(name);
    if (value == nullptr || !value->is_string()) continue;
    if (!value->get_string().empty() || last == nullptr) last = value;
    value->get_string().clear();
  }
  if (last == nullptr) return;
  *last = bj::string(text);
  if (twice && last == holder.if_contains("reasoning_content")) holder["reasoning"] = bj::string(text);
}

// Tokens say the text once more.
void drop_tokens(bj::object& choice) {
  if (choice.contains("logprobs")) choice["logprobs"] = nullptr;
  for (const char* name : {"token_ids", "tokens"}) choice.erase(name);
}

// An event without its tokens: which of them a window's text is made of, a chunk does not say.
std::string without_tokens(std::string_view event) {
  if (event.find("logprobs") == std::string_view::npos && event.find("token") == std::string_view::npos)
    return std::string(event);
  auto chunk = parse_json(data_of(event));
  bj::object* fields = chunk.ok() ? chunk->if_object() : nullptr;
  bj::value* choices = fields == nullptr ? nullptr : fields->if_contains("choices");
  if (choices == nullptr || !choices->is_array()) return std::string(event);
  const std::string before = to_json(*chunk);
  for (bj::value& choice : choices->get_array())
    if (choice.is_object()) drop_tokens(choice.get_object());
  std::string after = to_json(*chunk);
  return after == before ? std::string(event) : absl::StrCat("data: ", after, "\n\n");
}

}  // namespace

std::string_view verdict_name(ModerationVerdict::Kind kind) {
  switch (kind) {
    case ModerationVerdict::Kind::kAllow:
      return "allow";
    case ModerationVerdict::Kind::kAnnotate:
      return "annotate";
    case ModerationVerdict::Kind::kRedact:
      return "redact";
    case ModerationVerdict::Kind::kBlock:
      break;
  }
  return "block";
}

std::optional<ModerationVerdict> parse_verdict(std::string_view json) {
  using Kind = ModerationVerdict::Kind;
  const auto value = parse_json(json);
  const bj::object* fields = value.ok() ? value->if_object() : nullptr;
  if (fields == nullptr) return std::nullopt;
  const std::string name = string_at(*fields, "verdict");
  for (const Kind kind : {Kind::kAllow, Kind::kAnnotate, Kind::kRedact, Kind::kBlock}) {
    if (verdict_name(kind) != name) continue;
    const bj::value* text = fields->if_contains("text");
    if (kind == Kind::kRedact && (text == nullptr || !text->is_string())) return std::nullopt;
    return ModerationVerdict{kind, string_at(*fields, "text"), string_at(*fields, "note")};
  }
  return std::nullopt;
}

std::optional<ModerationVerdict> parse_openai_moderation(std::string_view json,
                                                         ModerationVerdict::Kind flagged) {
  const auto value = parse_json(json);
  const bj::object* fields = value.ok() ? value->if_object() : nullptr;
  const bj::value* results = fields == nullptr ? nullptr : fields->if_contains("results");
  if (results == nullptr || !results->is_array() || results->get_array().empty()) return std::nullopt;
  const bj::object* first = results->get_array()[0].if_object();
  const bj::value* is_flagged = first == nullptr ? nullptr : first->if_contains("flagged");
  if (is_flagged == nullptr || !is_flagged->is_bool()) return std::nullopt;
  ModerationVerdict verdict;
  if (!is_flagged->get_bool()) return verdict;
  verdict.kind = flagged;
  const bj::value* categories = first->if_contains("categories");
  if (categories == nullptr || !categories->is_object()) return verdict;
  for (const auto& category : categories->get_object()) {
    if (category.value().is_bool() && category.value().get_bool())
      absl::StrAppend(&verdict.note, verdict.note.empty() ? "" : ",",
                      to_absl(std::string_view(category.key())));
  }
  return verdict;
}

// (A sentence's end may be looked at once what follows its mark is there.)
size_t SentenceWindows::end_of_window() const {
  for (size_t at = std::max(looked_at_, least_ - 1); at < std::min(text_.size(), most_); ++at) {
    const std::string_view rest = std::string_view(text_).substr(at);
    for (const std::string_view stop : kFullStops)
      if (rest.starts_with(stop)) return at + stop.size();
    const bool is_mark = kMarks.find(rest[0]) != std::string_view::npos;
    if (is_mark && rest.size() > 1 && kSpaces.find(rest[1]) != std::string_view::npos) return at + 2;
  }
  if (text_.size() < most_ + kCharBytesMax) return 0;
  const size_t space = text_.find_last_of(kSpaces, most_ - 1);
  if (space != std::string::npos && space + 1 >= least_) return space + 1;
  size_t end = most_;
  while (end > least_ && continues_char(text_[end])) --end;
  return end;
}

std::optional<std::string> SentenceWindows::next() {
  const size_t end = end_of_window();
  if (end == 0) {
    // The last bytes may be the begin of a full stop, or a mark without what follows: they are looked at
    // again.
    looked_at_ = text_.size() > kCharBytesMax ? text_.size() - kCharBytesMax : 0;
    return std::nullopt;
  }
  std::string window = text_.substr(0, end);
  text_.erase(0, end);
  looked_at_ = 0;
  return window;
}

std::string SentenceWindows::rest() {
  looked_at_ = 0;
  return std::exchange(text_, {});
}

EventText text_of_event(std::string_view event) {
  EventText out;
  const std::string_view data = data_of(event);
  if (data.empty()) return out;
  auto chunk = parse_json(data);
  bj::object* choice = chunk.ok() ? first_choice(*chunk) : nullptr;
  if (choice == nullptr) return out;
  const bj::value* index = choice->if_contains("index");
  if (index != nullptr && index->is_int64()) out.choice = index->get_int64();
  const bj::value* finish = choice->if_contains("finish_reason");
  out.ends = finish != nullptr && finish->is_string();
  if (const bj::object* holder = text_holder(*choice)) {
    out.text = text_in(*holder);
    out.calls = calls_in(*holder);
  }
  return out;
}

std::string with_event_text(std::string_view event, std::string_view text) {
  auto chunk = parse_json(data_of(event));
  bj::object* choice = chunk.ok() ? first_choice(*chunk) : nullptr;
  bj::object* holder = choice == nullptr ? nullptr : text_holder(*choice);
  if (holder == nullptr) return std::string(event);
  set_text(*holder, text);
  return absl::StrCat("data: ", to_json(*chunk), "\n\n");
}

void HeldEvents::take(std::string_view event) {
  const EventText said = text_of_event(event);
  if (const std::string_view data = data_of(event); !data.empty()) last_chunk_ = data;
  Choice& choice = choices_.try_emplace(said.choice, window_bytes_).first->second;
  Held held{without_tokens(event), said.choice, choice.came, choice.came + said.text.size(), 0};
  held.end = held.text_end + said.calls.size();
  choice.came = held.end;
  if (!said.calls.empty()) choice.calls.emplace_back(held.text_end, held.end);
  choice.windows.feed(said.text);
  choice.windows.feed(said.calls);
  choice.ended = choice.ended || said.ends;
  held_bytes_ += held.event.size();
  held_.push_back(std::move(held));
}

void HeldEvents::end() {
  for (auto& [index, choice] : choices_) choice.ended = true;
}

std::optional<HeldEvents::Window> HeldEvents::window_of(int64_t index, Choice& choice) {
  std::optional<std::string> text;
  if (!whole_) text = choice.windows.next();
  if (!text && choice.ended) text = choice.windows.rest();
  if (!text || text->empty()) return std::nullopt;
  choice.asked += text->size();
  asked_choice_ = index;
  while (!choice.calls.empty() && choice.calls.front().second <= choice.judged) choice.calls.pop_front();
  const bool has_calls = !choice.calls.empty() && choice.calls.front().first < choice.asked;
  return Window{index, *std::move(text), has_calls};
}

std::optional<HeldEvents::Window> HeldEvents::next_window() {
  for (auto& [index, choice] : choices_)
    if (auto window = window_of(index, choice)) return window;
  return std::nullopt;
}

void HeldEvents::verdict(const ModerationVerdict& verdict) {
  Choice& choice = choices_.at(*asked_choice_);
  Judged judged{choice.judged, choice.asked, std::nullopt};
  if (verdict.kind == ModerationVerdict::Kind::kRedact) judged.instead = verdict.text;
  choice.judged = choice.asked;
  choice.verdicts.push_back(std::move(judged));
  if (verdict.note.empty()) return;
  bj::object note;
  note["choice"] = *asked_choice_;
  note["verdict"] = bj::string(verdict_name(verdict.kind));
  note["note"] = verdict.note;
  absl::StrAppend(&notes_, ": moderation ", to_json(note), "\n\n");
}

// A text that takes a window's place goes with the event in which the window began.
std::string HeldEvents::event_to_send(const Held& held) {
  Choice& choice = choices_.at(held.choice);
  std::string text;
  bool changed = false;
  const std::string own = text_of_event(held.event).text;
  for (const Judged& judged : choice.verdicts) {
    const uint64_t begin = std::max(judged.begin, held.begin), end = std::min(judged.end, held.text_end);
    if (begin >= end) continue;
    if (!judged.instead) {
      text += own.substr(begin - held.begin, end - begin);
    } else {
      changed = true;
      if (begin == judged.begin) text += *judged.instead;
    }
  }
  while (!choice.verdicts.empty() && choice.verdicts.front().end <= held.end) choice.verdicts.pop_front();
  return changed ? with_event_text(held.event, text) : held.event;
}

// (Notes go first: nothing comes after [DONE].)
std::string HeldEvents::release() {
  std::string out = std::exchange(notes_, {});
  while (!held_.empty() && held_.front().end <= choices_.at(held_.front().choice).judged) {
    const bool has_text = held_.front().end > held_.front().begin;
    out += has_text ? event_to_send(held_.front()) : held_.front().event;
    held_bytes_ -= held_.front().event.size();
    held_.pop_front();
  }
  return out;
}

std::vector<std::string> texts_of_answer(std::string_view body) {
  std::vector<std::string> texts;
  auto answer = parse_json(body);
  bj::object* fields = answer.ok() ? answer->if_object() : nullptr;
  bj::value* choices = fields == nullptr ? nullptr : fields->if_contains("choices");
  if (choices == nullptr || !choices->is_array()) return texts;
  for (bj::value& choice : choices->get_array()) {
    bj::object* holder = choice.is_object() ? text_holder(choice.get_object()) : nullptr;
    texts.push_back(holder == nullptr ? std::string() : text_in(*holder) + calls_in(*holder));
  }
  return texts;
}

std::string with_answer_texts(std::string_view body, const std::vector<JudgedText>& judged) {
  auto answer = parse_json(body);
  if (!answer.ok() || !answer->is_object()) return std::string(body);
  bj::value* choices = answer->get_object().if_contains("choices");
  if (choices == nullptr || !choices->is_array()) return std::string(body);
  bj::array& all = choices->get_array();
  for (size_t i = 0; i < std::min(all.size(), judged.size()); ++i) {
    if (!all[i].is_object()) continue;
    bj::object& choice = all[i].get_object();
    bj::object* const holder = text_holder(choice);
    if (judged[i].blocked || judged[i].instead) drop_tokens(choice);
    // (No other text can be a call's arguments.)
    const bool calls = holder != nullptr && !calls_in(*holder).empty();
    if (judged[i].blocked || (judged[i].instead && calls)) {
      choice["finish_reason"] = "content_filter";
      for (const char* name : {"tool_calls", "function_call"})
        if (holder != nullptr) holder->erase(name);
      if (holder != nullptr) set_text(*holder, "");
    } else if (judged[i].instead && holder != nullptr) {
      set_text(*holder, *judged[i].instead);
    }
  }
  return to_json(*answer);
}

std::string blocked_events(std::string_view chunk, int64_t choice) {
  constexpr std::string_view kDone = "data: [DONE]\n\n";
  auto value = parse_json(chunk);
  if (!value.ok() || !value->is_object()) return std::string(kDone);
  bj::object& fields = value->get_object();
  const bool is_chat = string_at(fields, "object") != "text_completion";
  bj::object last;
  last["index"] = choice;
  if (is_chat) {
    last["delta"] = bj::object();
  } else {
    last["text"] = "";
  }
  last["logprobs"] = nullptr;
  last["finish_reason"] = "content_filter";
  fields["choices"] = bj::array{std::move(last)};
  fields.erase("usage");
  return absl::StrCat("data: ", to_json(*value), "\n\n", to_absl(kDone));
}

}  // namespace troupe

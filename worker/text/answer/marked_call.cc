// Calls whose parts stand between marks: a name and JSON, or parameters with bare values.

#include <utility>

#include "worker/text/answer/call_reader.h"
#include "worker/text/answer/json_builder.h"
#include "worker/text/answer/mark_scanner.h"

namespace troupe {
namespace {

std::string_view without_spaces(std::string_view text) {
  while (!text.empty() && is_call_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_call_space(text.back())) text.remove_suffix(1);
  return text;
}

bool is_call_name(std::string_view name) {
  return !name.empty() && name.find_first_of(" \t\r\n{}<>\"'") == std::string_view::npos;
}

class NamedCallReader : public CallReader {
 public:
  explicit NamedCallReader(NamedMarks marks)
      : marks_(std::move(marks)),
        separator_({marks_.separator}),
        ends_(marks_.ends),
        state_(marks_.has_kind ? State::kKind : State::kName) {}

  CallStep push(char byte, CallWriter& calls) override {
    switch (state_) {
      case State::kKind:
        if (separator_.take(byte, name_)) {
          state_ = State::kName;
          name_.clear();
        }
        return name_.size() > kCallNameBytesMax ? CallStep::kRefused : CallStep::kMore;
      case State::kName:
        return push_name(byte, calls);
      case State::kFence:
        if (byte != '{' && ++fence_bytes_ <= kFenceBytesMax) return CallStep::kMore;
        state_ = State::kArguments;
        [[fallthrough]];
      case State::kArguments:
        return push_arguments(byte, calls);
    }
    return CallStep::kMore;
  }

 private:
  enum class State : uint8_t { kKind, kName, kFence, kArguments };
  static constexpr int kFenceBytesMax = 32;  // of "```json" and line breaks

  CallStep push_name(char byte, CallWriter& calls) {
    bool is_end = false;
    if (marks_.has_kind) {
      is_end = byte == '\n';
      if (!is_end) name_ += byte;
    } else {
      is_end = separator_.take(byte, name_).has_value();
    }
    if (name_.size() > kCallNameBytesMax) return CallStep::kRefused;
    if (!is_end) return CallStep::kMore;
    const std::string_view given = without_spaces(name_);
    std::string_view name = given;
    if (marks_.first_word) name = name.substr(0, name.find_first_of(" <"));
    if (marks_.id_is_name) {
      name = name.substr(0, name.rfind(':'));
      name = name.substr(name.rfind('.') + 1);
    }
    if (!is_call_name(name)) return CallStep::kRefused;
    calls.begin(name, marks_.id_is_name ? given : std::string_view());
    state_ = marks_.has_kind ? State::kFence : State::kArguments;
    return CallStep::kMore;
  }

  CallStep push_arguments(char byte, CallWriter& calls) {
    std::string text;
    const bool is_end = ends_.take(byte, text).has_value();
    for (const char each : text) is_begun_ = is_begun_ || !is_call_space(each);
    if (is_begun_) calls.arguments(text);
    if (!is_end) return CallStep::kMore;
    calls.end();
    return CallStep::kEnded;
  }

  const NamedMarks marks_;
  MarkScanner separator_, ends_;
  State state_;
  std::string name_;
  int fence_bytes_ = 0;
  bool is_begun_ = false;  // behind the arguments' leading white space
};

class XmlCallReader : public CallReader {
 public:
  explicit XmlCallReader(XmlMarks marks)
      : marks_(std::move(marks)),
        name_scanner_(marks_.name_ends),
        between_({marks_.key_opens, marks_.call_ends}),
        key_scanner_({marks_.key_ends}),
        value_open_({marks_.value_opens.empty() ? marks_.key_ends : marks_.value_opens}),
        value_scanner_(marks_.value_ends) {}

  CallStep push(char byte, CallWriter& calls) override {
    switch (state_) {
      case State::kName:
        return push_name(byte, calls);
      case State::kBetween:
        return push_between(byte, calls);
      case State::kKey: {
        std::string text;
        const bool is_end = key_scanner_.take(byte, text).has_value();
        if (key_.size() < kKeyBytesMax) key_ += text;
        if (is_end) begin_value(calls);
        return CallStep::kMore;
      }
      case State::kValueOpen: {
        std::string ignored;
        if (value_open_.take(byte, ignored)) state_ = State::kValue;
        return CallStep::kMore;
      }
      case State::kValue:
        return push_value(byte, calls);
    }
    return CallStep::kMore;
  }

 private:
  enum class State : uint8_t { kName, kBetween, kKey, kValueOpen, kValue };
  static constexpr size_t kKeyBytesMax = 4096;

  CallStep push_name(char byte, CallWriter& calls) {
    const auto mark = name_scanner_.take(byte, name_);
    if (name_.size() > kCallNameBytesMax) return CallStep::kRefused;
    if (!mark) return CallStep::kMore;
    name_ = without_spaces(name_);
    if (!is_call_name(name_)) return CallStep::kRefused;
    state_ = State::kBetween;
    const std::string_view found = marks_.name_ends[*mark];
    if (found == marks_.key_opens) return begin_key(calls);
    return found == marks_.call_ends ? end(calls) : CallStep::kMore;
  }

  void begin(CallWriter& calls) {
    if (calls.open()) return;
    calls.begin(name_);
    json_.open('{', calls);
  }

  CallStep begin_key(CallWriter& calls) {
    begin(calls);
    state_ = State::kKey;
    key_.clear();
    return CallStep::kMore;
  }

  CallStep push_between(char byte, CallWriter& calls) {
    std::string text;
    const auto mark = between_.take(byte, text);
    if (!without_spaces(text).empty()) {
      if (!calls.open()) return CallStep::kRefused;
      calls.text(text);
    }
    if (!mark) return CallStep::kMore;
    return *mark == 0 ? begin_key(calls) : end(calls);
  }

  void begin_value(CallWriter& calls) {
    key_ = without_spaces(key_);
    types_ = calls.schemas().types_of(name_, key_);
    json_.key(key_, calls);
    state_ = marks_.value_opens.empty() ? State::kValue : State::kValueOpen;
    value_.clear();
    is_streamed_ = false;
    drops_line_break_ = marks_.value_opens.empty();
  }

  CallStep push_value(char byte, CallWriter& calls) {
    std::string text;
    const auto mark = value_scanner_.take(byte, text);
    if (!text.empty() && std::exchange(drops_line_break_, false) && text.front() == '\n') text.erase(0, 1);
    take_value(text, calls);
    if (!mark) return CallStep::kMore;
    end_value(calls);
    state_ = State::kBetween;
    return marks_.value_ends[*mark].ends_with(marks_.call_ends) ? end(calls) : CallStep::kMore;
  }

  void take_value(std::string_view text, CallWriter& calls) {
    if (text.empty()) return;
    if (!is_streamed_) {
      value_ += text;
      if (types_ != kStringType && value_.size() <= kHeldValueBytesMax) return;
      is_streamed_ = true;
      json_.open_string(calls);
      text = value_;
    }
    json_.string_bytes(text, calls);
    value_.clear();
  }

  void end_value(CallWriter& calls) {
    if (is_streamed_) {
      json_.close_string(calls);
    } else {
      json_.value(json_of_bare_value(value_, types_), calls);
    }
  }

  CallStep end(CallWriter& calls) {
    begin(calls);
    json_.finish(calls);
    calls.end();
    return CallStep::kEnded;
  }

  const XmlMarks marks_;
  MarkScanner name_scanner_, between_, key_scanner_, value_open_, value_scanner_;
  JsonBuilder json_;
  State state_ = State::kName;
  std::string name_, key_, value_;
  uint8_t types_ = kNoType;
  bool is_streamed_ = false, drops_line_break_ = false;
};

}  // namespace

std::unique_ptr<CallReader> named_call_reader(NamedMarks marks) {
  return std::make_unique<NamedCallReader>(std::move(marks));
}

std::unique_ptr<CallReader> xml_call_reader(XmlMarks marks) {
  return std::make_unique<XmlCallReader>(std::move(marks));
}

}  // namespace troupe

// Calls that are JSON objects, and Mistral's, which are these or a name with an object.

#include <optional>
#include <utility>

#include "common/json/json.h"
#include "worker/text/answer/call_reader.h"
#include "worker/text/answer/json_value_scanner.h"

namespace troupe {
namespace {

std::optional<std::string> string_of_json(std::string_view json) {
  const auto value = parse_json(json);
  if (!value.ok() || !value->is_string()) return std::nullopt;
  return std::string(value->get_string().data(), value->get_string().size());
}

// A call's arguments: an object as it comes. Some models write its text as a string, or null.
class ArgumentsValue {
 public:
  JsonValueScanner::Step push(char byte, CallWriter& calls) {
    const auto step = scanner_.push(byte);
    if (step != JsonValueScanner::Step::kEndBefore) take(byte, calls);
    if (step != JsonValueScanner::Step::kMore) finish(calls);
    return step;
  }

 private:
  void take(char byte, CallWriter& calls) {
    if (is_first_) streams_ = byte == '{' || byte == '[';
    is_first_ = false;
    if (streams_) return calls.arguments(byte);
    held_ += byte;
    if (held_.size() <= kHeldValueBytesMax) return;
    streams_ = true;
    calls.arguments(std::exchange(held_, {}));
  }
  void finish(CallWriter& calls) {
    if (held_ != "null") calls.arguments(string_of_json(held_).value_or(held_));
    held_.clear();
  }

  JsonValueScanner scanner_;
  bool is_first_ = true, streams_ = false;
  std::string held_;
};

class JsonCallReader : public CallReader {
 public:
  explicit JsonCallReader(bool known_only) : known_only_(known_only) {}

  CallStep push(char byte, CallWriter& calls) override {
    switch (state_) {
      case State::kOpen:
        if (is_call_space(byte)) return CallStep::kMore;
        state_ = State::kMembers;
        return byte == '{' ? CallStep::kMore : CallStep::kRefused;
      case State::kMembers:
        return push_between(byte, calls);
      case State::kKey:
        key_ += byte;
        if (key_.size() > kHeldValueBytesMax) return broken(calls);
        if (value_.push(byte) == JsonValueScanner::Step::kLast) state_ = State::kColon;
        return CallStep::kMore;
      case State::kColon:
        if (is_call_space(byte)) return CallStep::kMore;
        return byte == ':' ? begin_value(calls) : broken(calls);
      case State::kValue:
        return push_value(byte, calls);
    }
    return CallStep::kMore;
  }

 private:
  enum class State : uint8_t { kOpen, kMembers, kKey, kColon, kValue };

  CallStep broken(CallWriter& calls) const {
    if (!calls.open()) return CallStep::kRefused;
    calls.end();
    return CallStep::kEndBefore;
  }

  CallStep push_between(char byte, CallWriter& calls) {
    if (is_call_space(byte) || byte == ',') return CallStep::kMore;
    if (byte == '}') return end(calls);
    if (byte != '"') return broken(calls);
    state_ = State::kKey;
    key_ = byte;
    value_ = {};
    value_.push(byte);
    return CallStep::kMore;
  }

  CallStep begin_value(CallWriter& calls) {
    key_ = string_of_json(key_).value_or("");
    is_arguments_ = key_ == "arguments" || key_ == "parameters";
    value_ = {};
    member_.clear();
    is_at_start_ = true;
    state_ = State::kValue;
    // Arguments that come before the name wait for it.
    if (!is_arguments_ || name_.empty() || calls.open() || is_over_) return CallStep::kMore;
    return begin(calls);
  }

  CallStep begin(CallWriter& calls) {
    if (known_only_ && !calls.schemas().has(name_)) return CallStep::kRefused;
    calls.begin(name_);
    return CallStep::kMore;
  }

  CallStep push_value(char byte, CallWriter& calls) {
    if (std::exchange(is_at_start_, false) && is_call_space(byte)) {
      is_at_start_ = true;
      return CallStep::kMore;
    }
    const bool is_streamed = is_arguments_ && calls.open() && !is_over_;
    const auto step = is_streamed ? arguments_.push(byte, calls) : value_.push(byte);
    // Text before a call's beginning is bounded where its text is held.
    if (!is_streamed && !calls.open() && step != JsonValueScanner::Step::kEndBefore) member_ += byte;
    if (step == JsonValueScanner::Step::kMore) return CallStep::kMore;
    state_ = State::kMembers;
    if (is_streamed) is_over_ = true;
    if (!calls.open() && is_arguments_) early_ = std::exchange(member_, {});
    if (!calls.open() && key_ == "name") name_ = string_of_json(member_).value_or("");
    return step == JsonValueScanner::Step::kLast ? CallStep::kMore : push_between(byte, calls);
  }

  CallStep end(CallWriter& calls) {
    if (!calls.open()) {
      if (name_.empty() || (known_only_ && early_.empty())) return CallStep::kRefused;
      if (begin(calls) == CallStep::kRefused) return CallStep::kRefused;
      auto step = JsonValueScanner::Step::kMore;
      for (const char byte : early_) step = arguments_.push(byte, calls);
      if (!early_.empty() && step == JsonValueScanner::Step::kMore)
        arguments_.push('}', calls);  // a word's end
    }
    calls.end();
    return CallStep::kEnded;
  }

  const bool known_only_;
  State state_ = State::kOpen;
  std::string key_, member_, name_, early_;
  JsonValueScanner value_;
  ArgumentsValue arguments_;
  bool is_arguments_ = false, is_at_start_ = true, is_over_ = false;
};

class MistralCallReader : public CallReader {
 public:
  CallStep push(char byte, CallWriter& calls) override {
    switch (state_) {
      case State::kStart:
        if (is_call_space(byte)) return CallStep::kMore;
        if (byte == '[') {
          state_ = State::kList;
          return CallStep::kMore;
        }
        state_ = State::kName;
        [[fallthrough]];
      case State::kName:
        return push_name(byte, calls);
      case State::kArguments:
        return push_arguments(byte, calls);
      case State::kList:
        return push_list(byte, calls);
      case State::kItem:
        return push_item(byte, calls);
    }
    return CallStep::kMore;
  }

 private:
  enum class State : uint8_t { kStart, kName, kArguments, kList, kItem };

  // NAME[ARGS], or NAME[CALL_ID]ID[ARGS], up to the object.
  CallStep push_name(char byte, CallWriter& calls) {
    if (byte != '{') {
      head_ += byte;
      return head_.size() > kCallNameBytesMax ? CallStep::kRefused : CallStep::kMore;
    }
    std::string_view name = head_;
    while (!name.empty() && is_call_space(name.back())) name.remove_suffix(1);
    if (name.ends_with("[ARGS]")) name.remove_suffix(6);
    std::string_view id;
    if (const size_t at = name.find("[CALL_ID]"); at != std::string_view::npos) {
      id = name.substr(at + 9);
      name = name.substr(0, at);
    }
    if (name.empty() || name.find_first_of(" \t\r\n[]\"") != std::string_view::npos)
      return CallStep::kRefused;
    calls.begin(name, id);
    state_ = State::kArguments;
    return push_arguments(byte, calls);
  }

  CallStep push_arguments(char byte, CallWriter& calls) {
    const auto step = arguments_.push(byte, calls);
    if (step == JsonValueScanner::Step::kMore) return CallStep::kMore;
    calls.end();
    return step == JsonValueScanner::Step::kLast ? CallStep::kEnded : CallStep::kEndBefore;
  }

  CallStep push_list(char byte, CallWriter& calls) {
    if (is_call_space(byte) || (byte == ',' && calls.count() > first_count_.value_or(calls.count())))
      return CallStep::kMore;
    if (!first_count_) first_count_ = calls.count();
    const bool has_calls = calls.count() > *first_count_;
    if (byte == ']') return has_calls ? CallStep::kEnded : CallStep::kRefused;
    if (byte != '{') return has_calls ? CallStep::kEndBefore : CallStep::kRefused;
    state_ = State::kItem;
    item_ = json_call_reader(/*known_only=*/false);
    head_.clear();
    return push_item(byte, calls);
  }

  CallStep push_item(char byte, CallWriter& calls) {
    const CallStep step = item_->push(byte, calls);
    const bool has_calls = calls.count() > *first_count_;
    if (step == CallStep::kMore && !calls.open() && has_calls) head_ += byte;
    const bool is_too_long = has_calls && head_.size() > kHeldValueBytesMax;
    if (step == CallStep::kRefused || is_too_long) {
      if (!has_calls) return CallStep::kRefused;
      calls.text(std::exchange(head_, {}));
      return is_too_long ? CallStep::kEnded : CallStep::kEndBefore;
    }
    if (step == CallStep::kEnded) state_ = State::kList;
    return step == CallStep::kEndBefore ? step : CallStep::kMore;
  }

  State state_ = State::kStart;
  std::string head_;  // the name's; of a later item, what it has before its call begins
  ArgumentsValue arguments_;
  std::optional<int32_t> first_count_;  // calls before the list's
  std::unique_ptr<CallReader> item_;
};

}  // namespace

std::unique_ptr<CallReader> json_call_reader(bool known_only) {
  return std::make_unique<JsonCallReader>(known_only);
}

std::unique_ptr<CallReader> mistral_call_reader() {
  return std::make_unique<MistralCallReader>();
}

}  // namespace troupe

#include "worker/text/answer/json_value_scanner.h"

#include <string_view>

namespace troupe {

JsonValueScanner::Step JsonValueScanner::push_in_string(char byte) {
  if (state_ == State::kEscape) {
    state_ = State::kString;
  } else if (byte == '\\') {
    state_ = State::kEscape;
  } else if (byte == '"') {
    state_ = State::kNested;
    return depth_ == 0 ? Step::kLast : Step::kMore;
  }
  return Step::kMore;
}

JsonValueScanner::Step JsonValueScanner::push(char byte) {
  constexpr std::string_view kWordBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.";
  if (state_ == State::kString || state_ == State::kEscape) return push_in_string(byte);
  if (state_ == State::kWord)
    return kWordBytes.find(byte) == std::string_view::npos ? Step::kEndBefore : Step::kMore;
  if (byte == '"') {
    state_ = State::kString;
  } else if (byte == '{' || byte == '[') {
    state_ = State::kNested;
    ++depth_;
  } else if (byte == '}' || byte == ']') {
    if (depth_ == 0) return Step::kEndBefore;
    if (--depth_ == 0) return Step::kLast;
  } else if (state_ == State::kStart) {
    if (kWordBytes.find(byte) == std::string_view::npos) return Step::kEndBefore;
    state_ = State::kWord;
  } else if (kWordBytes.find(byte) == std::string_view::npos &&
             std::string_view(" \t\r\n,:").find(byte) == std::string_view::npos) {
    return Step::kEndBefore;
  }
  return Step::kMore;
}

}  // namespace troupe

// Calls whose arguments are literals of another notation, Python's or Gemma's, which become JSON.

#include <utility>

#include "common/json/json.h"
#include "worker/text/answer/call_reader.h"
#include "worker/text/answer/json_builder.h"
#include "worker/text/answer/mark_scanner.h"
#include "worker/text/answer/python_escape.h"

namespace troupe {
namespace {

constexpr size_t kKeyBytesMax = 4096;

bool is_word_byte(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
         byte == '_' || byte == '.' || byte == '-' || byte == '+' || static_cast<unsigned char>(byte) >= 0x80;
}

// The two notations share values in nested brackets, each written as it comes.
class LiteralCallReader : public CallReader {
 protected:
  enum class State : uint8_t {
    kPrefix,
    kName,
    kArgument,
    kKey,
    kValue,
    kString,
    kEscape,
    kWord,
    kAfter,
  };

  // The text is no call, or no more of one.
  CallStep broken(CallWriter& calls) {
    if (!calls.open()) return calls.count() > begun_before_ ? CallStep::kEndBefore : CallStep::kRefused;
    json_.finish(calls);
    calls.end();
    return CallStep::kEndBefore;
  }

  void begin(CallWriter& calls) {
    if (calls.open()) return;
    calls.begin(name_);
    json_.open('{', calls);
  }

  void open_string(char quote, CallWriter& calls) {
    quote_ = quote;
    is_key_ = json_.wants_key();
    word_.clear();
    if (!is_key_) json_.open_string(calls);
    state_ = State::kString;
  }
  void string_bytes(std::string_view bytes, CallWriter& calls) {
    if (!is_key_) {
      json_.string_bytes(bytes, calls);
    } else if (word_.size() < kKeyBytesMax) {
      word_ += bytes;
    }
  }
  void close_string(CallWriter& calls) {
    if (is_key_) {
      json_.key(word_, calls);
    } else {
      json_.close_string(calls);
    }
    state_ = State::kAfter;
  }

  // A word is a number, a constant, or (which no model should write) a text.
  bool take_word(char byte) {
    if (!is_word_byte(byte)) return false;
    if (word_.size() < kHeldValueBytesMax) word_ += byte;
    return true;
  }
  void end_word(CallWriter& calls) {
    if (json_.wants_key()) {
      json_.key(word_, calls);
    } else {
      json_.value(json_of_bare_value(word_, kAnyType), calls);
    }
    state_ = State::kAfter;
  }

  State state_ = State::kPrefix;
  JsonBuilder json_;
  std::string name_, word_;
  char quote_ = 0;
  bool is_key_ = false;
  int32_t begun_before_ = 0;  // calls
};

class PythonCallReader : public LiteralCallReader {
 public:
  CallStep push(char byte, CallWriter& calls) override {
    switch (state_) {
      case State::kPrefix:
        return push_prefix(byte, calls);
      case State::kName:
        if (byte == '(') return begin_arguments(calls);
        name_ += byte;
        return is_word_byte(byte) && name_.size() <= kCallNameBytesMax ? CallStep::kMore : broken(calls);
      case State::kArgument:
        if (is_call_space(byte) || (byte == ',' && calls.open())) return CallStep::kMore;
        if (byte == ')') return end_call(calls);
        word_.clear();
        state_ = State::kKey;
        [[fallthrough]];
      case State::kKey:
        return push_key(byte, calls);
      case State::kString:
        return push_string(byte, calls);
      case State::kEscape:
        if (std::string text; escape_.push(byte, text)) {
          string_bytes(text, calls);
          state_ = State::kString;
        }
        return CallStep::kMore;
      case State::kWord:
        if (take_word(byte)) return CallStep::kMore;
        end_word(calls);
        [[fallthrough]];
      case State::kAfter:
        return push_after(byte, calls);
      case State::kValue:
        return push_value(byte, calls);
    }
    return CallStep::kMore;
  }

 private:
  // Before a call's name, in the list.
  CallStep push_prefix(char byte, CallWriter& calls) {
    if (!is_counted_) begun_before_ = calls.count();
    is_counted_ = true;
    if (is_call_space(byte)) return CallStep::kMore;
    const bool has_calls = calls.count() > begun_before_;
    if (has_calls && byte == ',') return CallStep::kMore;
    if (has_calls && byte == ']') return CallStep::kEnded;
    if (!is_word_byte(byte)) return broken(calls);
    state_ = State::kName;
    name_ = byte;
    return CallStep::kMore;
  }

  CallStep begin_arguments(CallWriter& calls) {
    if (!calls.schemas().has(name_)) return broken(calls);
    state_ = State::kArgument;
    return CallStep::kMore;
  }

  CallStep push_key(char byte, CallWriter& calls) {
    if (byte == '=' && !word_.empty()) {
      begin(calls);
      json_.key(word_, calls);
      state_ = State::kValue;
      return CallStep::kMore;
    }
    if (is_call_space(byte)) return CallStep::kMore;
    return take_word(byte) && word_.size() <= kKeyBytesMax ? CallStep::kMore : broken(calls);
  }

  CallStep push_string(char byte, CallWriter& calls) {
    if (byte == '\\') {
      state_ = State::kEscape;
    } else if (byte == quote_) {
      close_string(calls);
    } else {
      string_bytes({&byte, 1}, calls);
    }
    return CallStep::kMore;
  }

  CallStep push_value(char byte, CallWriter& calls) {
    if (is_call_space(byte)) return CallStep::kMore;
    if (byte == '"' || byte == '\'') {
      open_string(byte, calls);
    } else if (byte == '[' || byte == '(' || byte == '{') {
      if (json_.wants_key() || !json_.open(byte == '{' ? '{' : '[', calls)) return broken(calls);
      brackets_ += byte;
    } else if (is_word_byte(byte)) {
      word_ = byte;
      state_ = State::kWord;
    } else {
      return push_after(byte, calls);
    }
    return CallStep::kMore;
  }

  CallStep push_after(char byte, CallWriter& calls) {
    if (is_call_space(byte)) return CallStep::kMore;
    const bool is_nested = json_.depth() > 1;
    if (byte == ',') {
      state_ = is_nested ? State::kValue : State::kArgument;
      return CallStep::kMore;
    }
    if (byte == ':' && is_nested && json_.in_object()) {
      state_ = State::kValue;
      return CallStep::kMore;
    }
    if (!is_nested && byte == ')') return end_call(calls);
    constexpr std::string_view kOpen = "[({", kClose = "])}";
    const size_t at = kClose.find(byte);
    if (!is_nested || at == std::string_view::npos || brackets_.back() != kOpen[at]) return broken(calls);
    brackets_.pop_back();
    json_.close(calls);
    state_ = State::kAfter;
    return CallStep::kMore;
  }

  CallStep end_call(CallWriter& calls) {
    begin(calls);
    json_.finish(calls);
    calls.end();
    state_ = State::kPrefix;
    return CallStep::kMore;
  }

  std::string brackets_;  // of nested values
  PythonEscape escape_;
  bool is_counted_ = false;
};

// call:NAME{key:value,…}, where a text stands between two <|"|>.
class GemmaCallReader : public LiteralCallReader {
 public:
  CallStep push(char byte, CallWriter& calls) override {
    switch (state_) {
      case State::kPrefix:
        if (byte != kPrefix[prefix_bytes_]) return broken(calls);
        if (++prefix_bytes_ == kPrefix.size()) state_ = State::kName;
        return CallStep::kMore;
      case State::kName:
        return push_name(byte, calls);
      case State::kArgument:
        return push_argument(byte, calls);
      case State::kKey:
        if (byte == ':') {
          json_.key(word_, calls);
          state_ = State::kValue;
        } else if (word_.size() < kKeyBytesMax) {
          word_ += byte;
        }
        return CallStep::kMore;
      case State::kString:
        return push_string(byte, calls);
      case State::kWord:
        if (std::string_view(",}]").find(byte) == std::string_view::npos) {
          if (word_.size() < kHeldValueBytesMax) word_ += byte;
          return CallStep::kMore;
        }
        end_word(calls);
        [[fallthrough]];
      case State::kAfter:
        return push_after(byte, calls);
      case State::kValue:
      case State::kEscape:
        return push_value(byte, calls);
    }
    return CallStep::kMore;
  }

 private:
  static constexpr std::string_view kPrefix = "call:", kQuote = "<|\"|>";

  CallStep push_name(char byte, CallWriter& calls) {
    if (byte != '{') {
      name_ += byte;
      const bool is_name = is_word_byte(byte) || byte == ':' || byte == '/';
      return is_name && name_.size() <= kCallNameBytesMax ? CallStep::kMore : broken(calls);
    }
    if (name_.empty()) return broken(calls);
    begin(calls);
    state_ = State::kArgument;
    return CallStep::kMore;
  }

  CallStep push_argument(char byte, CallWriter& calls) {
    if (is_call_space(byte)) return CallStep::kMore;
    if (byte == '}') return push_after(byte, calls);
    word_ = byte;
    state_ = State::kKey;
    return CallStep::kMore;
  }

  CallStep push_string(char byte, CallWriter& calls) {
    std::string text;
    const bool is_end = quote_scanner_.take(byte, text).has_value();
    string_bytes(text, calls);
    if (is_end) close_string(calls);
    return CallStep::kMore;
  }

  CallStep push_value(char byte, CallWriter& calls) {
    if (is_call_space(byte)) return CallStep::kMore;
    if (byte == '{' || byte == '[') {
      if (!json_.open(byte, calls)) return broken(calls);
      state_ = byte == '{' ? State::kArgument : State::kValue;
      return CallStep::kMore;
    }
    if (byte == kQuote[quote_bytes_]) {
      if (++quote_bytes_ < kQuote.size()) return CallStep::kMore;
      quote_bytes_ = 0;
      open_string(0, calls);
      return CallStep::kMore;
    }
    word_ = kQuote.substr(0, std::exchange(quote_bytes_, 0));
    if (word_.empty() && std::string_view(",}]").find(byte) != std::string_view::npos)
      return push_after(byte, calls);
    state_ = State::kWord;
    return push(byte, calls);
  }

  CallStep push_after(char byte, CallWriter& calls) {
    if (is_call_space(byte)) return CallStep::kMore;
    if (byte == ',') {
      state_ = json_.in_object() ? State::kArgument : State::kValue;
      return CallStep::kMore;
    }
    if (byte != (json_.in_object() ? '}' : ']')) return broken(calls);
    json_.close(calls);
    state_ = State::kAfter;
    if (json_.depth() > 0) return CallStep::kMore;
    calls.end();
    return CallStep::kEnded;
  }

  MarkScanner quote_scanner_{{kQuote}};
  size_t prefix_bytes_ = 0, quote_bytes_ = 0;
};

}  // namespace

std::unique_ptr<CallReader> python_call_reader() {
  return std::make_unique<PythonCallReader>();
}

std::unique_ptr<CallReader> gemma_call_reader() {
  return std::make_unique<GemmaCallReader>();
}

}  // namespace troupe

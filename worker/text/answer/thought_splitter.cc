#include "worker/text/answer/thought_splitter.h"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

constexpr size_t kSpaceBytesMax = 256;

std::vector<std::string_view> joined(std::vector<std::string_view> marks,
                                     const std::vector<std::string_view>& more) {
  marks.insert(marks.end(), more.begin(), more.end());
  return marks;
}

void skip_line_breaks(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of("\r\n"), text.size()));
}

}  // namespace

ThoughtSplitter::ThoughtSplitter(const ThoughtForm& form, bool in_thought,
                                 const std::vector<std::string_view>& also_closes)
    : form_(form),
      opens_(joined(form.opens, form.frames)),
      closes_(joined(form.closes, also_closes)),
      close_marks_(joined(form.closes, also_closes)),
      state_(in_thought ? State::kThoughtStart : State::kStart) {}

void ThoughtSplitter::push(std::string_view text, std::string& thought, std::string& rest) {
  while (!text.empty()) {
    switch (state_) {
      case State::kStart:
        push_start(text, rest);
        break;
      case State::kThoughtStart:
      case State::kThought:
        push_thought(text, thought, rest);
        break;
      case State::kTextStart:
        skip_line_breaks(text);
        if (!text.empty()) state_ = State::kText;
        break;
      case State::kText:
        push_text(text, rest);
        break;
    }
  }
}

void ThoughtSplitter::push_start(std::string_view& text, std::string& rest) {
  const size_t space = opens_.holds() ? 0 : std::min(text.find_first_not_of(" \t\r\n"), text.size());
  if (space_.size() + space <= kSpaceBytesMax) {
    space_ += text.substr(0, space);
    text.remove_prefix(space);
  }
  if (text.empty()) return;
  // One byte at a time, for the first that is no part of a mark ends the start.
  std::string_view byte = text.substr(0, 1);
  text.remove_prefix(1);
  std::string other;
  if (const auto mark = opens_.take(byte, other)) {
    space_.clear();
    state_ = *mark < form_.opens.size() ? State::kThoughtStart : State::kTextStart;
  } else if (!other.empty()) {
    opens_.release(other);
    rest += std::exchange(space_, {});
    state_ = State::kText;
    if (form_.only_first) {
      rest += other;
    } else {
      std::string_view again = other;
      push_text(again, rest);
    }
  }
}

void ThoughtSplitter::push_text(std::string_view& text, std::string& rest) {
  if (form_.only_first) {
    rest += std::exchange(text, {});
    return;
  }
  const auto mark = opens_.take(text, rest);
  if (mark && *mark < form_.opens.size()) state_ = State::kThoughtStart;
}

void ThoughtSplitter::push_thought(std::string_view& text, std::string& thought, std::string& rest) {
  if (state_ == State::kThoughtStart) {
    skip_line_breaks(text);
    if (text.empty()) return;
    state_ = State::kThought;
  }
  const auto mark = closes_.take(text, thought);
  if (!mark) return;
  state_ = State::kTextStart;
  if (*mark < form_.closes.size()) return;
  rest += close_marks_[*mark];
  state_ = State::kText;
}

void ThoughtSplitter::finish(std::string& thought, std::string& rest) {
  if (in_thought()) {
    closes_.release(thought);
  } else {
    rest += std::exchange(space_, {});
    opens_.release(rest);
  }
}

}  // namespace troupe

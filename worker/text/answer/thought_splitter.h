#pragma once

// Takes a model's thoughts out of its text. Line breaks at their marks are the marks'. A thought that nothing
// closes goes to the answer's end. Holds no more than a mark's bytes and some white space. Not thread-safe.

#include <string>
#include <string_view>

#include "worker/text/answer/answer_forms.h"
#include "worker/text/answer/mark_scanner.h"

namespace troupe {

class ThoughtSplitter {
 public:
  // `form` outlives this. `in_thought`: the prompt has opened one. `also_closes`: marks that end a thought
  // and are text, too.
  ThoughtSplitter(const ThoughtForm& form, bool in_thought, const std::vector<std::string_view>& also_closes);

  void push(std::string_view text, std::string& thought, std::string& rest);
  void finish(std::string& thought, std::string& rest);
  bool in_thought() const { return state_ == State::kThought || state_ == State::kThoughtStart; }
  // Whether a thought goes on or may still begin.
  bool may_think() const { return in_thought() || state_ == State::kStart || !form_.only_first; }

 private:
  enum class State : uint8_t {
    kStart,         // of the answer: only white space so far
    kThoughtStart,  // right behind a mark that opens
    kThought,
    kTextStart,  // right behind a mark that closes
    kText,
  };
  void push_start(std::string_view& text, std::string& rest);
  void push_text(std::string_view& text, std::string& rest);
  void push_thought(std::string_view& text, std::string& thought, std::string& rest);

  const ThoughtForm& form_;
  MarkScanner opens_, closes_;
  std::vector<std::string_view> close_marks_;
  State state_;
  std::string space_;  // at the answer's start
};

}  // namespace troupe

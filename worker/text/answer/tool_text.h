#pragma once

// Takes the calls of tools out of a model's text. Text that only looks like a call is text: what may be one
// is held until that is known, at most kHeldBytesMax. White space around calls is part of none, and left out.
// Linear in the text. Not thread-safe.

#include <memory>
#include <string>
#include <string_view>

#include "worker/text/answer/answer_forms.h"
#include "worker/text/answer/call_writer.h"
#include "worker/text/answer/mark_scanner.h"

namespace troupe {

class ToolText {
 public:
  static constexpr size_t kHeldBytesMax = 4096;

  // `form` outlives this.
  ToolText(const ToolForm& form, CallWriter::Options options);

  void push(std::string_view text, AnswerDelta& delta);
  void finish(AnswerDelta& delta);
  int32_t call_count() const { return calls_.count(); }

 private:
  // Where the text stands, which decides what white space and brackets are.
  enum class Place : uint8_t {
    kStart,   // of the answer, or behind an opening: white space so far
    kBehind,  // a call: likewise
    kText,
  };
  void push_text(std::string_view& text, AnswerDelta& delta);
  void push_call(char byte, AnswerDelta& delta);
  void take_mark(size_t index, AnswerDelta& delta);
  void add_text(std::string_view text, AnswerDelta& delta);
  void begin_call(std::string_view mark);
  void refuse(AnswerDelta& delta);
  // Holds text that a call would make no text. True: it is held.
  bool hold(std::string_view text);

  const ToolForm& form_;
  CallWriter calls_;
  MarkScanner marks_;  // calls, openings, endings, in this order
  Place place_ = Place::kStart;
  bool behind_opening_ = false;
  std::string pending_;                 // text if no call follows: white space, openings, a separator
  std::unique_ptr<CallReader> reader_;  // null: between calls
  std::string held_;                    // the reader's bytes until it begins a call
  int32_t begun_before_ = 0;            // calls before the reader's
};

}  // namespace troupe

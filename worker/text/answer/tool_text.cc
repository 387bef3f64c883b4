#include "worker/text/answer/tool_text.h"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

std::vector<std::string_view> scanned_marks(const ToolForm& form) {
  std::vector<std::string_view> marks = form.calls;
  marks.insert(marks.end(), form.openings.begin(), form.openings.end());
  marks.insert(marks.end(), form.endings.begin(), form.endings.end());
  return marks;
}

}  // namespace

ToolText::ToolText(const ToolForm& form, CallWriter::Options options)
    : form_(form), calls_(std::move(options)), marks_(scanned_marks(form)) {}

void ToolText::push(std::string_view text, AnswerDelta& delta) {
  calls_.write_to(delta);
  while (!text.empty()) {
    if (reader_ == nullptr) {
      push_text(text, delta);
    } else {
      const char byte = text.front();
      text.remove_prefix(1);
      push_call(byte, delta);
    }
  }
}

void ToolText::push_text(std::string_view& text, AnswerDelta& delta) {
  if (place_ != Place::kText && !marks_.holds()) {
    const char byte = text.front();
    const bool is_bracket = form_.bracket != 0 && byte == form_.bracket;
    const bool is_separator = form_.separator != 0 && byte == form_.separator && place_ == Place::kBehind;
    if (is_bracket) begin_call({&byte, 1});
    if (is_call_space(byte) || is_separator) add_text({&byte, 1}, delta);
    if (is_bracket || is_call_space(byte) || is_separator) {
      text.remove_prefix(1);
      // The bracket is the reader's, too, where it opens an object.
      if (is_bracket && byte == '{') push_call(byte, delta);
      return;
    }
  }
  // Before the first text, every byte may change what the next one is.
  std::string_view piece = place_ == Place::kText ? text : text.substr(0, 1);
  const size_t size = piece.size();
  std::string plain;
  const auto mark = marks_.take(piece, plain);
  text.remove_prefix(size - piece.size());
  if (!plain.empty()) add_text(plain, delta);
  if (mark) take_mark(*mark, delta);
}

void ToolText::take_mark(size_t index, AnswerDelta& delta) {
  if (index < form_.calls.size()) return begin_call(form_.calls[index]);
  index -= form_.calls.size();
  if (index < form_.openings.size()) {
    if (!hold(form_.openings[index])) return add_text(form_.openings[index], delta);
    if (place_ == Place::kText) place_ = Place::kStart;
    behind_opening_ = true;
    return;
  }
  // Right behind a call it is the call's.
  if (place_ != Place::kBehind) add_text(form_.endings[index - form_.openings.size()], delta);
}

bool ToolText::hold(std::string_view text) {
  if (pending_.size() + text.size() > kHeldBytesMax) return false;
  pending_ += text;
  return true;
}

void ToolText::add_text(std::string_view text, AnswerDelta& delta) {
  const bool is_space = std::all_of(text.begin(), text.end(), is_call_space);
  if (place_ == Place::kBehind && is_space) return;
  const bool is_separator = form_.separator != 0 && text == std::string_view(&form_.separator, 1);
  if (place_ == Place::kBehind && is_separator && pending_.empty()) {
    hold(text);
    return;
  }
  if (place_ == Place::kStart && is_space && hold(text)) return;
  delta.content += std::exchange(pending_, {});
  delta.content += text;
  place_ = Place::kText;
  behind_opening_ = false;
}

void ToolText::begin_call(std::string_view mark) {
  held_ = mark;
  if (form_.bracket == '{') held_.clear();  // push_call() adds it
  begun_before_ = calls_.count();
  reader_ = form_.reader(behind_opening_);
}

void ToolText::refuse(AnswerDelta& delta) {
  reader_.reset();
  delta.content += std::exchange(pending_, {});
  delta.content += std::exchange(held_, {});
  place_ = Place::kText;
  behind_opening_ = false;
}

void ToolText::push_call(char byte, AnswerDelta& delta) {
  const CallStep step = reader_->push(byte, calls_);
  const bool has_begun = calls_.count() > begun_before_;
  if (has_begun) {
    held_.clear();
    pending_.clear();
  } else if (step != CallStep::kRefused) {
    held_ += byte;
  }
  if (step == CallStep::kMore && held_.size() > kHeldBytesMax) return refuse(delta);
  if (step == CallStep::kMore) return;
  if (step == CallStep::kRefused) {
    refuse(delta);
  } else {
    reader_.reset();
    behind_opening_ = false;
    place_ = Place::kBehind;
  }
  std::string_view again(&byte, 1);
  if (step != CallStep::kEnded) push_text(again, delta);
}

void ToolText::finish(AnswerDelta& delta) {
  calls_.write_to(delta);
  if (reader_ != nullptr && calls_.count() > begun_before_) return;  // cut
  if (reader_ != nullptr) refuse(delta);
  std::string rest;
  marks_.release(rest);
  if (!rest.empty()) add_text(rest, delta);
  if (place_ != Place::kBehind) delta.content += std::exchange(pending_, {});
}

}  // namespace troupe

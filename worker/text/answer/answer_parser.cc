#include "worker/text/answer/answer_parser.h"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

size_t last_of(const std::vector<std::string_view>& marks, std::string_view text) {
  size_t last = 0;  // one behind the place, 0: nowhere
  for (const std::string_view mark : marks) {
    const size_t at = text.rfind(mark);
    if (at != std::string_view::npos) last = std::max(last, at + 1);
  }
  return last;
}

}  // namespace

std::vector<std::string_view> thought_ending_calls(const AnswerSyntax& syntax) {
  if (syntax.tools == nullptr || !syntax.tools->ends_thought) return {};
  return syntax.tools->openings;
}

bool opens_thought(const ThoughtForm& form, std::string_view prompt, bool goes_on) {
  const size_t opened = last_of(form.opens, prompt), closed = last_of(form.closes, prompt);
  if (goes_on && opened > closed) return true;
  for (const std::string_view mark : form.opens) {
    const size_t end = prompt.find_last_not_of(" \t\r\n");
    if (end != std::string_view::npos && prompt.substr(0, end + 1).ends_with(mark)) return true;
  }
  if (!form.is_unopened || goes_on) return false;
  // The turn may be opened with a thought that is empty already.
  for (const std::string_view mark : form.closes) {
    const size_t end = prompt.find_last_not_of(" \t\r\n");
    if (end != std::string_view::npos && prompt.substr(0, end + 1).ends_with(mark)) return false;
  }
  return true;
}

AnswerParser::AnswerParser(const AnswerSyntax& syntax, std::string answer_id, int32_t choice)
    : schemas_(syntax.schemas), includes_thoughts_(syntax.includes_thoughts) {
  if (syntax.thoughts != nullptr)
    thoughts_.emplace(*syntax.thoughts, syntax.in_thought, thought_ending_calls(syntax));
  if (syntax.tools != nullptr) {
    CallWriter::Options options;
    options.schemas = schemas_.get();
    options.answer_id = std::move(answer_id);
    options.choice = choice;
    options.short_ids = syntax.tools->short_ids;
    options.parallel = syntax.parallel_calls;
    tools_.emplace(*syntax.tools, std::move(options));
  }
  for (const auto& [text, token_count] : syntax.sent) {
    AnswerDelta known;
    push(text, token_count, known);
  }
}

void AnswerParser::add_rest(std::string_view rest, AnswerDelta& delta) {
  if (tools_) {
    tools_->push(rest, delta);
  } else {
    delta.content += rest;
  }
}

void AnswerParser::push(std::string_view text, int32_t token_count, AnswerDelta& delta) {
  if (!thoughts_) return add_rest(text, delta);
  const bool was_in_thought = thoughts_->in_thought();
  std::string thought, rest;
  thoughts_->push(text, thought, rest);
  if (was_in_thought || thoughts_->in_thought() || !thought.empty()) thought_tokens_ += token_count;
  if (includes_thoughts_) delta.reasoning += thought;
  add_rest(rest, delta);
}

void AnswerParser::finish(AnswerDelta& delta) {
  std::string thought, rest;
  if (thoughts_) thoughts_->finish(thought, rest);
  if (includes_thoughts_) delta.reasoning += thought;
  add_rest(rest, delta);
  if (tools_) tools_->finish(delta);
}

}  // namespace troupe

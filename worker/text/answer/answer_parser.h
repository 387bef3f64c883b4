#pragma once

// A choice's text, piece by piece → what the client gets: thoughts, content, calls of tools. Pure: the same
// for every cut of the text into pieces, so that a stream which goes on elsewhere can be parsed again from
// the text that was sent. Memory is bounded by what its parts may hold. Not thread-safe; one a choice.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/text/answer/answer_delta.h"
#include "worker/text/answer/answer_forms.h"
#include "worker/text/answer/thought_splitter.h"
#include "worker/text/answer/tool_schemas.h"
#include "worker/text/answer/tool_text.h"

namespace troupe {

// How the answers to one request are parsed.
struct AnswerSyntax {
  const ToolForm* tools = nullptr;             // null: no calls
  const ThoughtForm* thoughts = nullptr;       // null: no thoughts
  std::shared_ptr<const ToolSchemas> schemas;  // REQUIRES: not null where tools is not
  bool in_thought = false;                     // the prompt opened one
  bool includes_thoughts = true;               // in what the client gets
  bool parallel_calls = true;
  // The sent part of a resumed answer, as it came: text, and the number of its tokens.
  std::vector<std::pair<std::string, int32_t>> sent;

  bool parses() const { return tools != nullptr || thoughts != nullptr; }
};

// Whether the prompt's end opens a thought that the answer goes on with. `goes_on`: the prompt ends with the
// assistant's own words.
bool opens_thought(const ThoughtForm& form, std::string_view prompt, bool goes_on);
// The marks of calls that end a thought, too.
std::vector<std::string_view> thought_ending_calls(const AnswerSyntax& syntax);

class AnswerParser {
 public:
  // The ids of calls follow from `answer_id` and `choice`. REQUIRES: syntax.parses()
  AnswerParser(const AnswerSyntax& syntax, std::string answer_id, int32_t choice);

  // Appends to `delta`. `token_count`: tokens behind the text.
  void push(std::string_view text, int32_t token_count, AnswerDelta& delta);
  void finish(AnswerDelta& delta);

  bool has_calls() const { return tools_ && tools_->call_count() > 0; }
  // Tokens of thoughts, their marks included; none where thoughts are not parsed.
  std::optional<int64_t> thought_tokens() const {
    return thoughts_ ? std::optional<int64_t>(thought_tokens_) : std::nullopt;
  }

 private:
  void add_rest(std::string_view rest, AnswerDelta& delta);

  std::optional<ThoughtSplitter> thoughts_;
  std::optional<ToolText> tools_;
  const std::shared_ptr<const ToolSchemas> schemas_;
  const bool includes_thoughts_;
  int64_t thought_tokens_ = 0;
};

}  // namespace troupe

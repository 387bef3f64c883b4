#pragma once

// Settles which parts of an answer's text are thoughts and calls of tools: by the model's forms, and by what
// the request asks for.

#include <memory>
#include <string_view>
#include <vector>

#include "common/api/api.h"
#include "worker/engine/thinking_budget.h"
#include "worker/kv/types.h"
#include "worker/text/answer/answer_parser.h"
#include "worker/text/chat_template.h"
#include "worker/text/tokenizer/tokenizer.h"

namespace troupe {

// How the model writes calls and thoughts in its answers.
struct ModelForms {
  const ToolForm* tools = nullptr;        // null: not known, or not looked for
  const ThoughtForm* thoughts = nullptr;  // likewise
  // The special tokens of the marks, sorted: of both, and of thoughts alone. Null: none.
  std::shared_ptr<const std::vector<TokenId>> all_tokens, thought_tokens;
  std::vector<TokenId> thought_end;  // the tokens of the mark that ends a thought; empty: not known
};

// The forms of a model with these templates, either of which may be null, by the names of settings: a form's,
// "none", or "auto", which is what the template shows.
ModelForms model_forms(const Tokenizer& tokenizer, const ChatTemplate* chat, const ChatTemplate* for_tools,
                       std::string_view tool_parser, std::string_view reasoning_parser);

struct PreparedAnswer {
  AnswerSyntax syntax;
  std::shared_ptr<const std::vector<TokenId>> shown_special;  // EngineRequest's
  std::shared_ptr<const ThinkingLimit> thinking_limit;        // EngineRequest's
};
// `request`: a chat, which has become `prompt`. Errors: thoughts that cannot be bounded as it asks.
ApiResult<PreparedAnswer> prepare_answer(const Tokenizer& tokenizer, const ModelForms& forms,
                                         const GenerateRequest& request, const std::vector<TokenId>& prompt);

}  // namespace troupe

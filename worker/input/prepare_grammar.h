#pragma once

// Settles the grammar of a request's answers: its format, the calls that it must or may have, and what stands
// around them in the model's own way to write.

#include <optional>
#include <span>

#include "common/api/api.h"
#include "worker/engine/engine.h"
#include "worker/input/grammar_cache.h"
#include "worker/input/prepare_answer.h"

namespace troupe {

// The served model's parts that a grammar is made with.
struct GrammarModel {
  GrammarCache* cache =
      nullptr;  // null: its answers follow no grammar, which is an error if one is asked for
  const Tokenizer& tokenizer;
  const ModelForms& forms;
};

// Sets the grammar of the request's prompts. `syntax`: of a chat. REQUIRES: the engine requests' other fields
// are settled. Errors: 400 that name the field.
std::optional<ApiError> take_grammar(const GrammarModel& model, const GenerateRequest& request,
                                     const AnswerSyntax& syntax, std::span<EngineRequest* const> prompts);

// Replays the tokens that were sent of an answer. Errors: they do not follow the grammar, or go on behind its
// end; else whether the answer ends with them.
ApiResult<bool> ends_grammar(const AnswerGrammar& grammar, const std::vector<TokenId>& ids,
                             std::string_view field);

}  // namespace troupe

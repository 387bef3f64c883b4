#pragma once

// Settles the grammar of a request's answers: its format, the calls that it must or may have, and what stands
// around them in the model's own way to write.

#include <optional>

#include "common/api/api.h"
#include "worker/engine/answer_grammar.h"
#include "worker/input/grammar_cache.h"
#include "worker/input/prepare_answer.h"

namespace troupe {

struct EngineRequest;
struct PreparedRequest;

// Sets the engine requests' grammars, all prompts'. REQUIRES: prompts and syntax are settled, and what was
// sent of a resumed answer is not. `cache`: of the model; null: it has no grammars, which is an error where
// one is asked for. Errors: 400 that name the field.
std::optional<ApiError> take_grammar(GrammarCache* cache, const Tokenizer& tokenizer, const ModelForms& forms,
                                     const GenerateRequest& request, PreparedRequest& prepared);

// Replays the tokens that were sent of an answer. Errors: they do not follow the grammar, or go on behind its
// end; else whether the answer ends with them.
ApiResult<bool> ends_grammar(const AnswerGrammar& grammar, const std::vector<TokenId>& ids,
                             std::string_view field);

}  // namespace troupe

#include "worker/input/prepare_answer.h"

#include <algorithm>
#include <string>
#include <utility>

namespace troupe {

namespace {

using Tokens = std::shared_ptr<const std::vector<TokenId>>;

// Special tokens that are marks, or parts of one.
Tokens tokens_in(const Tokenizer& tokenizer, const std::vector<std::string_view>& marks) {
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_special(id)) continue;
    const std::string_view text = tokenizer.token_bytes(id, /*skip_special=*/false);
    const bool is_in_mark = !text.empty() && std::any_of(marks.begin(), marks.end(), [text](auto mark) {
      return mark.find(text) != std::string_view::npos;
    });
    if (is_in_mark) ids.push_back(id);
  }
  if (ids.empty()) return nullptr;
  return std::make_shared<const std::vector<TokenId>>(std::move(ids));
}

std::vector<std::string> texts_of(const ChatTemplate* chat, const ChatTemplate* other) {
  const ChatTemplate* const chosen = chat != nullptr ? chat : other;
  return chosen == nullptr ? std::vector<std::string>() : chosen->own_texts();
}

// Whether the answer begins in a thought, by the end of what the model reads.
bool begins_in_thought(const Tokenizer& tokenizer, const ThoughtForm& form, const GenerateRequest& request,
                       const std::vector<TokenId>& prompt) {
  constexpr size_t kTokensOfMark = 24;  // and of white space behind it
  if (!request.continue_final_message) {
    const auto begin = prompt.end() - static_cast<ptrdiff_t>(std::min(prompt.size(), kTokensOfMark));
    const std::string end =
        tokenizer.decode(std::vector<TokenId>(begin, prompt.end()), /*skip_special=*/false);
    return opens_thought(form, end, /*goes_on=*/false);
  }
  // The assistant's words may open or close one; else what stands before them counts.
  const std::string& words = request.messages.back().content;
  const auto has_any = [&words](const std::vector<std::string_view>& marks) {
    return std::any_of(marks.begin(), marks.end(),
                       [&words](std::string_view mark) { return words.find(mark) != std::string::npos; });
  };
  if (has_any(form.opens) || has_any(form.closes)) return opens_thought(form, words, /*goes_on=*/true);
  const std::string text = tokenizer.decode(prompt, /*skip_special=*/false);
  return opens_thought(form, std::string_view(text).substr(0, text.rfind(words)), /*goes_on=*/false);
}

ApiError no_thinking_limit() {
  return ApiError::unsupported(
      "thinking_token_budget",
      "'thinking_token_budget' is not supported here: this model's template shows no "
      "form of thoughts whose end is known; leave it out.");
}

}  // namespace

ModelForms model_forms(const Tokenizer& tokenizer, const ChatTemplate* chat, const ChatTemplate* for_tools,
                       std::string_view tool_parser, std::string_view reasoning_parser) {
  ModelForms forms;
  forms.tools = tool_parser == "auto" ? tool_form_shown(texts_of(for_tools, chat)) : tool_form(tool_parser);
  forms.thoughts = reasoning_parser == "auto" ? thought_form_shown(texts_of(chat, for_tools))
                                              : thought_form(reasoning_parser);
  forms.all_tokens = tokens_in(tokenizer, marks_of(forms.tools, forms.thoughts));
  forms.thought_tokens = tokens_in(tokenizer, marks_of(nullptr, forms.thoughts));
  if (forms.thoughts != nullptr) forms.thought_end = thought_end_tokens(tokenizer, *forms.thoughts);
  return forms;
}

ApiResult<PreparedAnswer> prepare_answer(const Tokenizer& tokenizer, const ModelForms& forms,
                                         const GenerateRequest& request, const std::vector<TokenId>& prompt) {
  PreparedAnswer prepared;
  AnswerSyntax& syntax = prepared.syntax;
  syntax.thoughts = forms.thoughts;
  syntax.includes_thoughts = request.include_reasoning;
  if (syntax.thoughts != nullptr)
    syntax.in_thought = begins_in_thought(tokenizer, *syntax.thoughts, request, prompt);
  prepared.shown_special = forms.thought_tokens;
  const bool may_call =
      forms.tools != nullptr && !request.tools_json.empty() && request.tool_choice != ToolChoice::kNone;
  if (may_call) {
    syntax.tools = forms.tools;
    syntax.parallel_calls = request.parallel_tool_calls;
    // The template has read them, so they parse.
    auto schemas = ToolSchemas::parse(request.tools_json);
    syntax.schemas = std::make_shared<const ToolSchemas>(schemas.ok() ? *std::move(schemas) : ToolSchemas());
    prepared.shown_special = forms.all_tokens;
  }
  if (!request.thinking_token_budget) return prepared;
  if (forms.thought_end.empty()) return no_thinking_limit();
  ThinkingLimit limit{.token_count_max = *request.thinking_token_budget,
                      .syntax = syntax,
                      .end = forms.thought_end,
                      .shown_special = prepared.shown_special};
  prepared.thinking_limit = std::make_shared<const ThinkingLimit>(std::move(limit));
  return prepared;
}

}  // namespace troupe

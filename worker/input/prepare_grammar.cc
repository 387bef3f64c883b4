#include "worker/input/prepare_grammar.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/input/call_format.h"
#include "worker/input/mark_speller.h"
#include "worker/input/structural_tag.h"

namespace troupe {

namespace {

using grammar::Format;

ApiError unsupported(std::string_view param, std::string_view why) {
  return ApiError::unsupported(param,
                               absl::StrCat("'", to_absl(param), "' is not supported here: ", to_absl(why)));
}

// The format's source is refused.
ApiError refused(std::string_view param, const Status& status) {
  return ApiError::bad_field(param,
                             absl::StrCat("'", to_absl(param), "' cannot be followed: ", status.message()));
}

ApiResult<Format> format_of(const AnswerFormat& wanted, MarkSpeller& speller) {
  Format format;
  format.json.any_whitespace = wanted.any_whitespace;
  format.text = wanted.text;
  switch (wanted.kind) {
    case AnswerFormat::Kind::kJsonObject:
      format.kind = Format::Kind::kObject;
      return format;
    case AnswerFormat::Kind::kJsonSchema:
      format.kind = Format::Kind::kSchema;
      return format;
    case AnswerFormat::Kind::kRegex:
      format.kind = Format::Kind::kRegex;
      return format;
    case AnswerFormat::Kind::kGbnf:
      format.kind = Format::Kind::kGbnf;
      return format;
    case AnswerFormat::Kind::kChoice:
      format.kind = Format::Kind::kEither;
      for (const std::string& choice : wanted.choices) format.parts.push_back(Format::literal(choice));
      return format;
    case AnswerFormat::Kind::kStructuralTag:
      break;
  }
  auto tag = format_of_structural_tag(wanted.text, speller);
  if (!tag.ok()) return refused(wanted.field, tag.status());
  return *std::move(tag);
}

bool must_call(const GenerateRequest& request) {
  return request.tool_choice == ToolChoice::kRequired || request.tool_choice == ToolChoice::kNamed;
}

// The calls that an answer must have, or may have in place of `content`, or within any text.
ApiResult<std::optional<Format>> with_calls(const ModelForms& forms, const AnswerSyntax& syntax,
                                            const GenerateRequest& request, std::optional<Format> content,
                                            MarkSpeller& speller) {
  const bool may_call = request.tool_choice != ToolChoice::kNone && !request.tools_json.empty();
  if (!may_call) return content;
  if (forms.tools == nullptr) {
    if (!must_call(request)) return content;  // what it calls with is text
    return unsupported("tool_choice",
                       "this model's template shows no form of calls that is known; leave it out.");
  }
  const bool may_be_strict = request.tools_json.find("\"strict\"") != std::string::npos;
  if (!must_call(request) && !content && !may_be_strict) return content;
  auto functions = called_functions(request.tools_json, request.called_tool);
  if (!functions.ok()) return functions.error();
  const auto is_strict = [](const CalledFunction& function) { return function.is_strict; };
  const bool any_strict = std::any_of(functions->begin(), functions->end(), is_strict);
  if (!must_call(request) && !any_strict && !content) return content;
  CallFormat form(*forms.tools, syntax.schemas.get(), &speller);
  if (!form.is_known()) {
    const std::string field = must_call(request) ? "tool_choice"
                              : any_strict       ? "tools"
                                                 : request.format->field;
    return unsupported(field, absl::StrCat("calls in this model's form, ", to_absl(forms.tools->name),
                                           ", cannot be held to a grammar; ",
                                           must_call(request) ? "leave it out or set it to \"auto\"."
                                           : any_strict       ? "leave 'strict' out of the functions."
                                                              : "leave it or 'tools' out."));
  }
  const auto to_optional = [](ApiResult<Format> format) -> ApiResult<std::optional<Format>> {
    if (!format.ok()) return format.error();
    return std::optional<Format>(*std::move(format));
  };
  if (must_call(request)) return to_optional(form.calls(*functions, request.parallel_tool_calls));
  for (CalledFunction& function : *functions) {
    if (!function.is_strict) function.schema.clear();
  }
  if (!content) return to_optional(form.text_with_calls(*functions));
  auto calls = form.calls(*functions, request.parallel_tool_calls);
  if (!calls.ok()) return calls.error();
  return std::optional<Format>(Format::either({*std::move(content), *std::move(calls)}));
}

// Thoughts, to which no grammar applies, may stand before the content.
Format behind_thoughts(const AnswerSyntax& syntax, bool goes_on, Format content, MarkSpeller& speller) {
  const ThoughtForm& form = *syntax.thoughts;
  const Format breaks{.kind = Format::Kind::kRegex, .text = "[\\r\\n]{0,4}"};
  if (form.name == "openai_gptoss") {
    const std::string final_mark = speller.spell("<|channel|>final<|message|>");
    return Format::sequence({Format::until(final_mark, {final_mark}), std::move(content)});
  }
  // The shortest counts of marks that differ in what stands before them.
  std::vector<std::string_view> closes;
  for (const std::string_view mark : form.closes) {
    const bool is_shortest = std::none_of(form.closes.begin(), form.closes.end(), [mark](auto other) {
      return other.size() < mark.size() && mark.ends_with(other);
    });
    if (is_shortest) closes.push_back(mark);
  }
  const std::vector<std::string> marks = speller.spell_all(closes);
  std::vector<Format> ends;
  for (const std::string& mark : marks) ends.push_back(Format::until(mark, marks));
  Format after = Format::sequence({Format::either(std::move(ends)), breaks, content});
  if (syntax.in_thought) return after;
  if (goes_on) return content;
  std::vector<Format> opens;
  for (const std::string& mark : speller.spell_all(form.opens)) opens.push_back(Format::literal(mark));
  Format thinks = Format::sequence({breaks, Format::either(std::move(opens)), std::move(after)});
  return Format::either({std::move(thinks), std::move(content)});
}

// The assistant's words that the answer goes on with, as far as the grammar is about them.
std::string begun_answer(const GenerateRequest& request, const AnswerSyntax& syntax, MarkSpeller& speller) {
  if (request.kind != GenerateRequest::Kind::kChat || !request.continue_final_message) return {};
  if (syntax.in_thought) return {};
  std::string_view words = request.messages.back().content;
  if (syntax.thoughts != nullptr) {
    for (const std::string_view mark : syntax.thoughts->closes) {
      const size_t at = words.rfind(mark);
      if (at == std::string_view::npos) continue;
      words.remove_prefix(at + mark.size());
      words.remove_prefix(std::min(words.find_first_not_of(" \t\r\n"), words.size()));
    }
  }
  return speller.spell(words);
}

void show_tokens(const std::vector<TokenId>& tokens, EngineRequest& engine) {
  if (tokens.empty()) return;
  std::vector<TokenId> shown = tokens;
  if (engine.shown_special != nullptr)
    shown.insert(shown.end(), engine.shown_special->begin(), engine.shown_special->end());
  std::sort(shown.begin(), shown.end());
  shown.erase(std::unique(shown.begin(), shown.end()), shown.end());
  engine.shown_special = std::make_shared<const std::vector<TokenId>>(std::move(shown));
}

// Whether it may begin with any text.
bool begins_free(const Format& format) {
  if (format.kind == Format::Kind::kFree || format.kind == Format::Kind::kUntil) return true;
  if (format.kind == Format::Kind::kEither)
    return std::any_of(format.parts.begin(), format.parts.end(), begins_free);
  return !format.parts.empty() && begins_free(format.parts.front());
}

// A tokenizer may drop the space that an answer's first token begins with.
StatusOr<std::shared_ptr<const grammar::CompiledGrammar>> compiled(GrammarCache& cache, const Format& format,
                                                                   bool at_start) {
  if (!at_start || !cache.strips_first_space() || begins_free(format)) return cache.find(format);
  Format behind_space = Format::sequence({Format::literal(" "), format});
  TROUPE_ASSIGN_OR_RETURN(auto plain, cache.find(format));
  const bool begins_with_space = grammar::GrammarMatcher(plain).accept_text(" ").value_or(true);
  if (begins_with_space) return cache.find(behind_space);
  return cache.find(Format::either({format, std::move(behind_space)}));
}

}  // namespace

std::optional<ApiError> take_grammar(const GrammarModel& model, const GenerateRequest& request,
                                     const AnswerSyntax& syntax, std::span<EngineRequest* const> prompts) {
  MarkSpeller speller(&model.tokenizer);
  std::optional<Format> content;
  if (request.format) {
    auto format = format_of(*request.format, speller);
    if (!format.ok()) return format.error();
    content = *std::move(format);
  }
  const bool is_chat = request.kind == GenerateRequest::Kind::kChat;
  if (is_chat) {
    auto with = with_calls(model.forms, syntax, request, std::move(content), speller);
    if (!with.ok()) return with.error();
    content = *std::move(with);
  }
  if (!content) return std::nullopt;
  const std::string field = request.format       ? request.format->field
                            : must_call(request) ? "tool_choice"
                                                 : "tools";
  if (model.cache == nullptr) return unsupported(field, "this worker's answers are filler text.");
  if (syntax.thoughts != nullptr)
    content = behind_thoughts(syntax, request.continue_final_message, *std::move(content), speller);
  const std::string begun = begun_answer(request, syntax, speller);
  for (EngineRequest* const engine : prompts) {
    auto found = compiled(*model.cache, *content, !engine->continues_text);
    if (!found.ok()) return refused(field, found.status());
    engine->grammar = {*std::move(found), begun};
    show_tokens(speller.tokens(), *engine);
    if (begun.empty()) continue;
    const auto accepted = grammar::GrammarMatcher(engine->grammar.compiled).accept_text(begun);
    if (accepted.ok() && *accepted) continue;
    return ApiError::bad_field(
        "messages",
        absl::StrCat("the message that the answer goes on with does not begin as '", field, "' asks for."));
  }
  return std::nullopt;
}

ApiResult<bool> ends_grammar(const AnswerGrammar& grammar, const std::vector<TokenId>& ids,
                             std::string_view field) {
  grammar::GrammarMatcher matcher(grammar.compiled);
  if (!grammar.begun.empty()) matcher.accept_text(grammar.begun).IgnoreError();
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool is_behind_end = i > 0 && matcher.is_finished();
    const auto accepted = is_behind_end ? StatusOr<bool>(false) : matcher.accept(ids[i]);
    if (accepted.ok() && *accepted) continue;
    return ApiError::bad_field(absl::StrCat(to_absl(field), "[", i, "]"),
                               is_behind_end ? "comes behind the end of the answer under its grammar"
                                             : "does not go on as the answer's grammar asks for");
  }
  return !ids.empty() && matcher.is_finished();
}

}  // namespace troupe

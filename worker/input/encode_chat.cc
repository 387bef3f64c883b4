#include "worker/input/encode_chat.h"

// The template is chosen and rendered, with marks where the request's texts
// quote special tokens, and encoded. A chat that is gone on with has a boundary before the assistant's words.

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "common/json/wide_integers.h"
#include "common/json/wide_json.h"
#include "worker/input/encode_text.h"
#include "worker/input/message_ends.h"
#include "worker/input/own_tokens.h"
#include "worker/text/chat_context.h"
#include "worker/text/final_words.h"
#include "worker/text/tokenizer/cut_text.h"

namespace troupe {

namespace {

// Marks the special tokens in a request's text, where they are to stay text; else nothing.
TextMap marks_of(const ServedModel& model) {
  if (model.special_tokens_in_content == ContentTokens::kAllow) return {};
  return [&model](std::string_view text) -> std::optional<std::string> {
    const std::vector<size_t> cuts = model.tokenizer->cuts_of_special(text);
    if (cuts.empty() && !has_marks(text)) return std::nullopt;
    return with_marks(text, cuts);
  };
}

// The template that chat_template_kwargs names, as in vLLM, or nothing.
std::optional<std::string> asked_template(const GenerateRequest& request) {
  constexpr std::string_view kKey = "chat_template";
  const std::string& kwargs = request.chat_template_kwargs_json;
  if (kwargs.find(kKey) == std::string::npos) return std::nullopt;
  const auto value = parse_json_with_wide_integers(kwargs);
  if (!value.ok() || !value->is_object()) return std::nullopt;  // an error of chat_context()
  const bj::value* name = value->get_object().if_contains(bj::string_view(kKey.data(), kKey.size()));
  if (name == nullptr || name->is_null()) return std::nullopt;
  if (!name->is_string()) return to_json(*name);
  const std::string_view text(name->get_string().data(), name->get_string().size());
  const std::string_view number = wide_integer_of(text);
  return std::string(number.empty() ? text : number);
}

ApiResult<const ChatTemplate*> choose_template(const ServedModel& model, const GenerateRequest& request) {
  if (const auto name = asked_template(request)) {
    const auto named = model.named_templates.find(*name);
    if (named != model.named_templates.end()) return named->second;
    std::string known;
    for (const auto& [each, chat] : model.named_templates) known += (known.empty() ? "" : ", ") + each;
    return ApiError::bad_field(
        "chat_template_kwargs.chat_template",
        "is none of the templates that model '" + model.name + "' has: " + (known.empty() ? "none" : known));
  }
  const bool uses_tools = model.tool_template != nullptr && !request.tools_json.empty();
  const ChatTemplate* const chosen = uses_tools ? model.tool_template : model.chat_template;
  if (chosen != nullptr) return chosen;
  return ApiError::unsupported(
      "messages", "model '" + model.name + "' has no chat template; POST the prompt to /v1/completions");
}

// A refusal is mostly about the order of roles, which may not be those of the request.
ApiError refused_by_template(const GenerateRequest& request, const TemplateTraits& traits,
                             std::string_view why) {
  constexpr size_t kRolesMax = 12;
  const std::vector<TemplateTurn> turns = template_turns(request.messages, traits);
  std::string roles;
  for (size_t i = 0; i < std::min(turns.size(), kRolesMax); ++i)
    roles += (i == 0 ? "" : ", ") + std::string(role_name(turns[i].role));
  if (turns.size() > kRolesMax) roles += ", …";
  return ApiError::bad_field("messages",
                             "chat template: " + std::string(why) + " (roles that it got: " + roles + ")");
}

struct Renderer {
  const ServedModel& model;
  const ChatTemplate& chat;
  const TextMap marks;

  bool knows_own() const { return marks && model.own_tokens.has_value(); }
  ApiResult<std::string> render(const GenerateRequest& request, bool add_generation_prompt) const {
    const bj::object& variables = knows_own() ? model.own_tokens->variables : model.special_tokens;
    auto context = chat_context(request, variables, add_generation_prompt, chat.traits(), marks);
    if (!context.ok()) return ApiError::bad_field("messages", to_std(context.status().message()));
    auto text = knows_own() ? chat.render_mapped(*context) : chat.render(*context);
    if (!text.ok()) {
      const std::string_view why = to_std(text.status().message());
      return refused_by_template(request, chat.traits(), marks ? without_marks(why).text : std::string(why));
    }
    return *std::move(text);
  }

  ApiResult<ContinuedMessage> render_to_final_message(const GenerateRequest& request) const {
    const GenerateRequest tagged = with_final_tag(request);
    auto rendered = render(tagged, /*add_generation_prompt=*/false);
    if (!rendered.ok()) return rendered.error();
    GenerateRequest before = request;
    before.messages.pop_back();
    ApiResult<std::string> opened = std::string();
    if (!before.messages.empty()) opened = render(before, /*add_generation_prompt=*/true);
    std::string text = final_text(tagged, chat.traits().wants_parts);
    if (marks) text = marks(text).value_or(text);
    text.resize(text.rfind(kFinalTag.substr(0, kFinalTag.size() - 1)));
    const bool thinks_apart = request.messages.back().extra_json.find("\"reasoning") != std::string::npos;
    if (opened.ok() && !thinks_apart) {
      if (auto generated = as_generated(*rendered, *opened, text)) return *std::move(generated);
    }
    auto split = split_final_message(*std::move(rendered), opened.ok() ? *opened : std::string_view(), text);
    if (!split.ok())
      return ApiError::bad_field("messages",
                                 "chat template: " + std::string(to_std(split.status().message())));
    return *std::move(split);
  }
};

ApiError lost_message_error(const GenerateRequest& request, size_t index) {
  const std::string field = "messages[" + std::to_string(index) + "]";
  const std::string role(role_name(request.messages[index].role));
  return ApiError::bad_field(field, "'" + field + "' has role '" + role +
                                        "', and the model's chat template leaves its text out there; send it "
                                        "as a message of role 'user', or within one.");
}

// Whether a template leaves a message out whose text is not found in what it writes, and may be there in
// another form: another text in its place then changes something.
bool leaves_out(const Renderer& renderer, const GenerateRequest& request, size_t index,
                bool add_generation_prompt) {
  GenerateRequest other = request;
  other.messages[index].content += " and more";
  other.messages[index].part_bytes.clear();
  GenerateRequest same = request;
  same.messages[index].part_bytes.clear();
  const auto changed = renderer.render(other, add_generation_prompt);
  const auto unchanged = renderer.render(same, add_generation_prompt);
  return changed.ok() && unchanged.ok() && changed.value() == unchanged.value();
}

}  // namespace

ChatEncoding encoding_of(const GenerateRequest& request) {
  ChatEncoding how;
  how.add_generation_prompt = request.add_generation_prompt;
  how.continue_final_message = request.continue_final_message;
  return how;
}

ApiResult<std::vector<TokenId>> encode_chat(const ServedModel& model, const GenerateRequest& request,
                                            const ChatEncoding& how) {
  const auto chosen = choose_template(model, request);
  if (!chosen.ok()) return chosen.error();
  const Renderer renderer{model, *chosen.value(), marks_of(model)};
  ContinuedMessage text;
  if (how.continue_final_message) {
    auto split = renderer.render_to_final_message(request);
    if (!split.ok()) return split.error();
    text = *std::move(split);
  } else {
    auto rendered = renderer.render(request, how.add_generation_prompt);
    if (!rendered.ok()) return rendered.error();
    text.before = *std::move(rendered);
  }
  CutText cut{std::move(text.before), {}}, words{std::move(text.words), {}};
  if (renderer.marks) {
    cut = without_marks(cut.text);
    words = without_marks(words.text);
  }
  EncodeOptions options;
  options.add_special = how.add_special;
  if (how.continue_final_message) options.boundary = cut.text.size();
  for (const size_t at : words.cuts) cut.cuts.push_back(cut.text.size() + at);
  for (const size_t at : words.own) cut.own.push_back(cut.text.size() + at);
  cut.text += words.text;
  if (renderer.knows_own()) cut_other_tokens(model, cut);
  options.cuts = cut.cuts;
  auto ids = encode_text(model, cut.text, options, "messages");
  if (!ids.ok()) return ids;
  const auto lost = lost_message(request.messages, cut.text);
  if (lost && leaves_out(renderer, request, *lost, how.add_generation_prompt && !how.continue_final_message))
    return lost_message_error(request, *lost);
  if (how.message_ends != nullptr)
    *how.message_ends = message_ends(*model.tokenizer, request.messages, cut.text, *ids);
  return ids;
}

}  // namespace troupe

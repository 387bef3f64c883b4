// The fields shared with generation requests (messages, tools, model, …) are read by those requests' own
// rows, so that a chat counted here is the chat answered there.

#include "common/api/tokenize.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/api/read.h"

namespace troupe {

namespace {

using Kind = GenerateRequest::Kind;

struct TokenizeDraft {
  TokenizeRequest request;
  bool has_prompt = false;
  std::optional<std::string> content;  // the text, as llama.cpp's clients name it
  std::optional<bool> add_special, add_special_tokens;
  FinalMessage final_message;
};

// Reads a field specific to these requests; `known` is false for any other.
Fault read_own_field(TokenizeDraft& draft, std::string_view name, dom::element value, bool& known) {
  known = true;
  if (name == "add_special_tokens" || name == "add_special") {
    auto& flag = name == "add_special" ? draft.add_special : draft.add_special_tokens;
    return read_bool(name, value, flag.emplace());
  }
  if (name == "add_generation_prompt") {
    auto fault = read_bool(name, value, draft.request.add_generation_prompt);
    draft.final_message.asks_generation_prompt = !fault && draft.request.add_generation_prompt;
    return fault;
  }
  if (name == "assistant_prefill")
    return read_string(name, value, std::numeric_limits<size_t>::max(), draft.final_message.prefill);
  if (name == "continue_final_message")
    return read_goes_on(name, value, draft.request.source, draft.final_message);
  if (name == "return_token_strs") return read_bool(name, value, draft.request.return_token_strs);
  if (name == "prompt") {
    draft.has_prompt = true;
    std::string text;
    if (auto fault = read_string(name, value, std::numeric_limits<size_t>::max(), text)) return fault;
    draft.request.source.prompt = std::move(text);
    return std::nullopt;
  }
  if (name == "content")
    return read_string(name, value, std::numeric_limits<size_t>::max(), draft.content.emplace());
  known = false;
  return std::nullopt;
}

Fault read_tokenize_field(TokenizeDraft& draft, const ApiLimits& limits, std::string_view name,
                          dom::element value) {
  bool known = false;
  auto fault = read_own_field(draft, name, value, known);
  // (Its text would be missing in the count.)
  if (name == "persona") return read_persona(name, value, /*is_taken=*/false, draft.request.source);
  if (known || !names_chat(name)) return fault;
  return read_request_field(limits, name, value, draft.request.source);
}

// llama.cpp's form, where no field of vLLM's says otherwise: the text alone, without what begins a prompt.
void use_content(TokenizeDraft& draft) {
  GenerateRequest& source = draft.request.source;
  if (!draft.content || draft.has_prompt || !source.messages.empty()) return;
  source.prompt = *std::move(draft.content);
  draft.has_prompt = true;
  if (!draft.add_special_tokens) draft.add_special_tokens = draft.add_special.value_or(false);
  // (A page that has no name for its only model sends JavaScript's word for none.)
  if (source.model == "undefined") source.model.clear();
}

Fault finish(TokenizeDraft& draft) {
  use_content(draft);
  GenerateRequest& source = draft.request.source;
  const bool is_chat = !source.messages.empty();
  if (is_chat && draft.has_prompt) {
    return ApiError::bad_field("prompt", "'prompt' and 'messages' exclude each other; send one of them.");
  }
  if (!is_chat && !draft.has_prompt) {
    return ApiError::bad_field("prompt", "'prompt' (a string) or 'messages' (an array) is required.");
  }
  source.kind = is_chat ? Kind::kChat : Kind::kCompletion;
  if (auto fault = settle_final_message(source, std::move(draft.final_message))) return fault;
  draft.request.add_special_tokens = draft.add_special_tokens.value_or(!is_chat);
  return std::nullopt;
}

Fault read_tokens(dom::element value, std::vector<int32_t>& tokens) {
  if (!value.is_array()) return expected("tokens", "a list of token ids", value);
  return read_id_list("tokens", value.get_array().value_unsafe(), tokens);
}

Fault read_detokenize_fields(DetokenizeRequest& request, const ApiLimits& limits, dom::object fields) {
  GenerateRequest shared;
  bool has_tokens = false;
  for (const auto field : fields) {
    if (field.value.is_null()) continue;
    Fault fault;
    if (field.key == "model") fault = read_request_field(limits, field.key, field.value, shared);
    if (field.key == "tokens") {
      has_tokens = true;
      fault = read_tokens(field.value, request.tokens);
    }
    if (fault) return fault;
  }
  request.model = std::move(shared.model);
  if (!has_tokens) return missing("tokens", "a list of token ids");
  return std::nullopt;
}

}  // namespace

ApiResult<TokenizeRequest> parse_tokenize_request(std::string_view body, const ApiLimits& limits) {
  StrictJson json;
  auto fields = parse_body(json, body, limits);
  if (!fields.ok()) return fields.error();
  TokenizeDraft draft;
  for (const auto field : *fields) {
    if (field.value.is_null()) continue;
    if (auto fault = read_tokenize_field(draft, limits, field.key, field.value)) return *std::move(fault);
  }
  if (auto fault = finish(draft)) return *std::move(fault);
  return std::move(draft.request);
}

ApiResult<DetokenizeRequest> parse_detokenize_request(std::string_view body, const ApiLimits& limits) {
  StrictJson json;
  auto fields = parse_body(json, body, limits);
  if (!fields.ok()) return fields.error();
  DetokenizeRequest request;
  if (auto fault = read_detokenize_fields(request, limits, *fields)) return *std::move(fault);
  return request;
}

std::string tokenize_json(const TokenizeAnswer& answer) {
  std::string out;
  out.reserve(answer.tokens.size() * 8 + 64);
  absl::StrAppend(&out, "{\"count\":", answer.tokens.size(), ",\"max_model_len\":", answer.max_model_len,
                  ",\"tokens\":[");
  for (size_t i = 0; i < answer.tokens.size(); ++i) {
    if (i > 0) out += ',';
    absl::StrAppend(&out, answer.tokens[i]);
  }
  out += "],\"token_strs\":";
  if (!answer.has_token_strs) return out + "null}";
  char separator = '[';
  for (const std::string& text : answer.token_strs) {
    out += separator;
    separator = ',';
    append_json_string(out, text);
  }
  return out + (separator == '[' ? "[]}" : "]}");
}

std::string detokenize_json(std::string_view prompt) {
  std::string out = "{\"prompt\":";
  append_json_string(out, prompt);
  return out + '}';
}

}  // namespace troupe

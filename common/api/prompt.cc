// Parses `prompt`: a text, token ids, or a list of these; and how long it may be.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/api/read.h"

namespace troupe {

namespace {

// Reads one prompt: text or ids, not empty.
Fault read_one_prompt(std::string_view param, dom::element value, GenerateRequest::Prompt& prompt) {
  if (is_text(value)) {
    if (value.get_string().value_unsafe().empty()) return expected(param, kPromptRule, value);
    prompt = std::string(value.get_string().value_unsafe());
    return std::nullopt;
  }
  if (!value.is_array() || value.get_array().value_unsafe().size() == 0)
    return expected(param, kPromptRule, value);
  std::vector<int32_t> ids;
  if (auto fault = read_id_list(param, value.get_array().value_unsafe(), ids)) return fault;
  prompt = std::move(ids);
  return std::nullopt;
}

}  // namespace

Fault read_prompt(std::string_view name, dom::element value, GenerateRequest& request) {
  dom::element first;
  if (!value.is_array() || value.get_array().value_unsafe().at(0).get(first)) {
    return read_one_prompt(name, value, request.prompt);
  }
  if (!is_text(first) && !first.is_array()) return read_one_prompt(name, value, request.prompt);
  const dom::array items = value.get_array().value_unsafe();
  if (items.size() > kPromptsMax)
    return ApiError::bad_field(name, absl::StrCat("'prompt' must be a list of at most ", kPromptsMax,
                                                  " prompts, not ", items.size(), "."));
  request.more_prompts.resize(items.size() - 1);
  size_t index = 0;
  for (const dom::element item : items) {
    auto& prompt = index == 0 ? request.prompt : request.more_prompts[index - 1];
    if (auto fault = read_one_prompt(absl::StrCat("prompt[", index, "]"), item, prompt)) return fault;
    ++index;
  }
  return std::nullopt;
}

Fault read_context_max(std::string_view param, dom::element value, std::optional<int64_t>& out) {
  int64_t count = 0;
  if (auto fault = read_integer(param, value, {.min = 0}, count)) return fault;
  if (count > 0) out = std::min(out.value_or(count), count);
  return std::nullopt;
}

Fault check_best_of(const GenerateRequest& request) {
  if (request.best_of == 1) return std::nullopt;
  if (request.best_of < request.n) {
    return ApiError::bad_field("best_of", absl::StrCat("'best_of' must be at least 'n', ", request.n,
                                                       ", or 1, not ", request.best_of, "."));
  }
  if (!request.stream || request.best_of == request.n) return std::nullopt;
  return ApiError::bad_field("best_of",
                             "'best_of' must be 'n' or 1 where 'stream' is true: which answers are the "
                             "best is known at their end.");
}

Fault check_context(const GenerateRequest& request) {
  if (!request.echo || !request.context_tokens_max) return std::nullopt;
  return ApiError::bad_field("echo",
                             "'echo' must be false where a prompt may be cut ('max_context_length').");
}

}  // namespace troupe

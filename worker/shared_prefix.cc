#include "worker/shared_prefix.h"

#include <algorithm>

namespace troupe {

namespace {

// The same conversation up to the first message that is not shared, which says something else and is the
// last. What the two prompts have in common is the shared part as the template writes it: no template needs
// to be understood, and one that moves the system text about (Mistral) gives the little that really is
// common.
int32_t common_chat_count(const ServedModel& model, const GenerateRequest& request,
                          const std::vector<TokenId>& prompt, size_t shared_messages) {
  GenerateRequest other;  // with what a template sees
  other.tools_json = request.tools_json;
  other.chat_template_kwargs_json = request.chat_template_kwargs_json;
  other.messages.assign(request.messages.begin(),
                        request.messages.begin() + static_cast<std::ptrdiff_t>(shared_messages) + 1);
  std::string& content = other.messages.back().content;
  const size_t first = content.find_first_not_of(" \t\r\n");
  const bool begins_with_zero = first != std::string::npos && content[first] == '0';
  content.assign(1, begins_with_zero ? '1' : '0');
  auto ids = encode_chat(model, other);
  if (!ids.ok()) return 0;
  const auto end = std::mismatch(prompt.begin(), prompt.end(), ids->begin(), ids->end()).first;
  return static_cast<int32_t>(end - prompt.begin());
}

int32_t leading_text_count(const Tokenizer& tokenizer, const std::vector<TokenId>& prompt, int64_t bytes) {
  int32_t count = 0;
  for (const TokenId id : prompt) {
    bytes -= static_cast<int64_t>(tokenizer.token_bytes(id, /*skip_special=*/true).size());
    if (bytes < 0) break;
    ++count;
  }
  return count;
}

}  // namespace

int32_t shared_prefix_count(const ServedModel& model, const GenerateRequest& request,
                            const std::vector<TokenId>& prompt, const RoutingHints& hints) {
  if (hints.set.is_zero()) return 0;
  const auto prompt_count = static_cast<int32_t>(prompt.size());
  if (request.kind == GenerateRequest::Kind::kCompletion) {
    if (hints.prefix_bytes <= 0) return 0;
    if (std::holds_alternative<std::string>(request.prompt)) {
      return leading_text_count(*model.tokenizer, prompt, hints.prefix_bytes);
    }
    const auto ids = hints.prefix_bytes / static_cast<int64_t>(sizeof(TokenId));
    return static_cast<int32_t>(std::min<int64_t>(ids, prompt_count));
  }
  if (hints.prefix_messages <= 0) return 0;
  const auto shared_messages = static_cast<size_t>(hints.prefix_messages);
  if (shared_messages >= request.messages.size()) return prompt_count;
  return common_chat_count(model, request, prompt, shared_messages);
}

}  // namespace troupe

#include "worker/input/shared_prefix.h"

#include <algorithm>

#include "worker/input/encode_chat.h"
#include "worker/input/encode_text.h"

namespace troupe {

namespace {

// Encodes the same conversation up to the first unshared message, which becomes the last and says something
// else. The tokens common to both prompts are the shared part as the template renders it: no template has to
// be understood, and one that moves the system text (Mistral) yields the little that is really common.
int32_t common_chat_count(const ServedModel& model, const GenerateRequest& request,
                          const std::vector<TokenId>& prompt, size_t shared_messages) {
  GenerateRequest other;  // with the fields a template reads
  other.tools_json = request.tools_json;
  other.documents_json = request.documents_json;
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

// Appends a message of the role that speaks next.
GenerateRequest with_next_message(const GenerateRequest& beginning) {
  GenerateRequest request = beginning;
  ChatMessage& next = request.messages.emplace_back();
  next.role = beginning.messages.back().role == Role::kUser ? Role::kAssistant : Role::kUser;
  next.content.assign(1, '0');
  return request;
}

ApiResult<std::vector<TokenId>> common_chat_beginning(const ServedModel& model,
                                                      const GenerateRequest& beginning) {
  const GenerateRequest request = with_next_message(beginning);
  auto prompt = encode_chat(model, request);
  if (!prompt.ok()) return prompt.error();
  const int32_t count = common_chat_count(model, request, *prompt, beginning.messages.size());
  prompt->resize(static_cast<size_t>(count));
  return prompt;
}

// A tokenizer may join the end of a text with what follows, so four continuations are tried: a letter, a
// digit, a space and a new line.
ApiResult<std::vector<TokenId>> common_text_beginning(const ServedModel& model, const std::string& text) {
  auto prompt = encode_text(model, text, /*add_special=*/true);
  if (!prompt.ok()) return prompt.error();
  for (const char next : {'s', '0', ' ', '\n'}) {
    auto other = encode_text(model, text + next, /*add_special=*/true);
    if (!other.ok()) return other.error();
    const auto end = std::mismatch(prompt->begin(), prompt->end(), other->begin(), other->end()).first;
    prompt->erase(end, prompt->end());
  }
  return prompt;
}

}  // namespace

ApiResult<std::vector<TokenId>> common_beginning(const ServedModel& model, const GenerateRequest& beginning) {
  if (beginning.kind == GenerateRequest::Kind::kChat) return common_chat_beginning(model, beginning);
  const auto* text = std::get_if<std::string>(&beginning.prompt);
  return text == nullptr ? encode_prompt(model, beginning.prompt) : common_text_beginning(model, *text);
}

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

// The assistant's last words in a chat that is asked for, which the answer goes on with: three fields say so.

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/api/read.h"

namespace troupe {
namespace {

bool ends_in_an_assistants_text(const std::vector<ChatMessage>& messages) {
  return !messages.empty() && messages.back().role == Role::kAssistant &&
         !absl::StripAsciiWhitespace(messages.back().content).empty();
}

}  // namespace

Fault read_goes_on(std::string_view param, dom::element value, GenerateRequest& request,
                   FinalMessage& fields) {
  std::string_view word;
  if (!value.get(word)) {
    if (word != "auto") return expected(param, "true, false or \"auto\"", value);
    fields.goes_on_if_assistants = true;
    return std::nullopt;
  }
  return read_bool(param, value, request.continue_final_message);
}

Fault settle_final_message(GenerateRequest& request, FinalMessage fields) {
  std::vector<ChatMessage>& messages = request.messages;
  for (size_t i = 0; i + 1 < messages.size(); ++i) {
    if (messages[i].prefix)
      return ApiError::bad_field(
          absl::StrCat("messages[", i, "].prefix"),
          absl::StrCat("'messages[", i, "].prefix' may be true in the last message only."));
  }
  bool goes_on = request.continue_final_message || (!messages.empty() && messages.back().prefix);
  // A front end that sends the same fields with every request leaves it to the last message.
  if (fields.goes_on_if_assistants && !fields.asks_generation_prompt)
    goes_on = goes_on || ends_in_an_assistants_text(messages);
  if (!fields.prefill.empty()) {
    messages.push_back({Role::kAssistant, std::move(fields.prefill), ""});
    goes_on = true;
  }
  request.continue_final_message = goes_on;
  if (!goes_on) return std::nullopt;
  if (fields.asks_generation_prompt) {
    return ApiError::bad_field(
        "add_generation_prompt",
        "'add_generation_prompt' must be false where the last message is gone on with.");
  }
  request.add_generation_prompt = false;
  if (ends_in_an_assistants_text(messages)) return std::nullopt;
  return ApiError::bad_field(
      "continue_final_message",
      "'continue_final_message' needs a last message of role 'assistant' with some text.");
}

}  // namespace troupe

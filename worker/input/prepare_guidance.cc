#include "worker/input/prepare_guidance.h"

#include <algorithm>
#include <string>
#include <utility>

#include "worker/input/encode_chat.h"
#include "worker/input/encode_text.h"

namespace troupe {

namespace {

constexpr std::string_view kField = "negative_prompt";

ApiResult<std::vector<TokenId>> encode_negative_chat(const ServedModel& model, const GenerateRequest& request,
                                                     const std::string& system) {
  GenerateRequest negative = request;
  std::vector<ChatMessage>& messages = negative.messages;
  const auto instructs = [](const ChatMessage& message) {
    return message.role == Role::kSystem || message.role == Role::kDeveloper;
  };
  messages.erase(messages.begin(), std::find_if_not(messages.begin(), messages.end(), instructs));
  ChatMessage& first = *messages.emplace(messages.begin());
  first.role = Role::kSystem;
  first.content = system;
  auto ids = encode_chat(model, negative, encoding_of(negative));
  if (ids.ok()) return ids;
  ApiError error = ids.error();  // of messages that were rendered with the client's own instructions already
  error.param = std::string(kField);
  error.message = "'negative_prompt' as the chat's system message: " + error.message;
  return error;
}

}  // namespace

ApiResult<std::optional<Guidance>> prepare_guidance(const ServedModel& model, const GenerateRequest& request,
                                                    const std::vector<TokenId>& prompt,
                                                    std::optional<Guidance> known) {
  std::optional<Guidance> guidance;
  if (!request.samplers || request.samplers->guidance_scale == 1) return guidance;
  guidance.emplace().scale = request.samplers->guidance_scale;
  const std::string& text = request.samplers->negative_prompt;
  if (text.empty()) {
    guidance->negative_prompt = {prompt.back()};
    return guidance;
  }
  if (known) return known;
  auto ids = request.kind == GenerateRequest::Kind::kChat
                 ? encode_negative_chat(model, request, text)
                 : encode_text(model, text, /*add_special=*/true, kField);
  if (!ids.ok()) return ids.error();
  if (ids->empty()) return ApiError::bad_field(kField, "comes to no tokens at all");
  if (auto fault = unknown_token(model, kField, *ids)) return *std::move(fault);
  guidance->negative_prompt = *std::move(ids);
  return guidance;
}

}  // namespace troupe

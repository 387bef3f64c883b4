#include "sim/live/client_conversations.h"

#include <algorithm>
#include <utility>

#include "sim/trace/prompt_text.h"

namespace troupe::sim {

namespace {

Hash128 key_of(const TraceRequest& request) {
  return {0, request.session};
}

std::vector<Message> first_messages(const TraceRequest& request, uint64_t number) {
  PromptText text = prompt_text(request, number);
  std::vector<Message> out;
  if (!text.prefix.empty()) out.push_back({"system", std::move(text.prefix)});
  if (!text.rest.empty()) out.push_back({"user", std::move(text.rest)});
  return out;
}

}  // namespace

bool Conversations::continues(const TraceRequest& request, const Talk& talk) {
  return talk.number != 0 && request.input_tokens > talk.tokens &&
         request.blocks.size() >= talk.held.size() &&
         std::equal(talk.held.begin(), talk.held.end(), request.blocks.begin());
}

std::vector<Message> Conversations::messages(const TraceRequest& request, uint64_t number) {
  if (request.session == 0) return first_messages(request, number);
  Talk& talk = talks_.touch(key_of(request));
  const bool again =
      talk.number != 0 && request.input_tokens == talk.prompt_tokens && request.blocks == talk.prompt_blocks;
  if (continues(request, talk)) {
    if (!talk.is_answered) {
      talk.answer.clear();
      append_words(talk.answer, talk.number, talk.tokens - talk.prompt_tokens);
      made_up_ += 1;
    }
    talk.messages.push_back({"assistant", std::move(talk.answer)});
    append_words(talk.messages.emplace_back(Message{"user", {}}).text, number,
                 request.input_tokens - talk.tokens);
  } else if (!again) {
    talk.messages = first_messages(request, number);
  }
  talk.number = number;
  talk.prompt_tokens = request.input_tokens;
  talk.tokens = int64_t{request.input_tokens} + request.output_tokens;
  talk.prompt_blocks = request.blocks;
  const auto whole = static_cast<size_t>(request.input_tokens / request.block_tokens);
  talk.held.assign(request.blocks.begin(), request.blocks.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                                        whole, request.blocks.size())));
  talk.held.insert(talk.held.end(), request.output_blocks.begin(), request.output_blocks.end());
  talk.answer.clear();
  talk.is_answered = false;
  return talk.messages;
}

void Conversations::answered(const TraceRequest& request, uint64_t number, std::string text) {
  if (request.session == 0) return;
  Talk* talk = talks_.find(key_of(request));
  if (talk == nullptr || talk->number != number) return;  // another request was sent meanwhile
  talk->answer = std::move(text);
  talk->is_answered = true;
}

}  // namespace troupe::sim

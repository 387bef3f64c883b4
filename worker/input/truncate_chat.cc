#include "worker/input/truncate_chat.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "worker/input/encode_chat.h"
#include "worker/input/encode_text.h"
#include "worker/input/history_cuts.h"
#include "worker/input/shared_prefix.h"

namespace troupe {

namespace {

// Kept for the answer if the request says nothing: a quarter of the window, at most this.
constexpr int64_t kAnswerMax = 1024;
// An answer's length where the next turn is guessed.
constexpr int64_t kAnswerGuess = 256;
// Tokens that templates write around a turn's two messages, about.
constexpr int64_t kAroundTurn = 16;
// Instructions among so many of the last messages may be a front end's that it puts at a depth, anew each
// turn.
constexpr size_t kPassingDepth = 10;

bool is_instruction(const ChatMessage& message) {
  return message.role == Role::kSystem || message.role == Role::kDeveloper;
}

int64_t room_of(const ServedModel& model, const GenerateRequest& request) {
  const int64_t window = model.total_count_max;
  const int64_t answer = request.max_tokens.value_or(std::min<int64_t>(window / 4, kAnswerMax));
  const int64_t room = std::max<int64_t>(1, window - std::max<int64_t>(1, answer));
  return std::min(room, request.truncation->max_prompt_tokens.value_or(room));
}

size_t fixed_count(const GenerateRequest& request) {
  size_t count = 0;
  while (count < request.messages.size() && is_instruction(request.messages[count])) ++count;
  const auto asked = static_cast<size_t>(request.truncation->keep_messages);
  return std::min(std::max(count, asked), request.messages.size());
}

GenerateRequest chat_of(const GenerateRequest& request, std::vector<ChatMessage> messages) {
  GenerateRequest chat;
  chat.tools_json = request.tools_json;
  chat.documents_json = request.documents_json;
  chat.chat_template_kwargs_json = request.chat_template_kwargs_json;
  chat.reasoning_effort = request.reasoning_effort;
  chat.messages = std::move(messages);
  return chat;
}

int64_t encoded_count(const ServedModel& model, const GenerateRequest& chat) {
  auto ids = encode_chat(model, chat);
  return ids.ok() ? static_cast<int64_t>(ids->size()) : 0;
}

// Tokens that the template writes itself.
struct OwnTokens {
  int64_t around = 0;     // a message
  int64_t beginning = 0;  // and end of a chat: the tools, the documents
};

// By two chats of which one has a pair of messages more.
OwnTokens own_tokens(const ServedModel& model, const GenerateRequest& request) {
  const std::string word = "a";
  std::vector<ChatMessage> messages;
  for (const Role role : {Role::kUser, Role::kAssistant, Role::kUser}) {
    messages.emplace_back();
    messages.back().role = role;
    messages.back().content = word;
  }
  const int64_t two = encoded_count(model, chat_of(request, {messages.begin(), messages.begin() + 1}));
  const int64_t four = encoded_count(model, chat_of(request, std::move(messages)));
  auto own = encode_text(model, word, /*add_special=*/false, "messages");
  const int64_t word_count = own.ok() ? static_cast<int64_t>(own->size()) : 0;
  OwnTokens tokens;
  tokens.around = std::max<int64_t>(0, (four - two + 1) / 2 - word_count);
  tokens.beginning = std::max<int64_t>(0, two - word_count - tokens.around);
  return tokens;
}

class Cutter {
 public:
  Cutter(const ServedModel& model, GenerateRequest& request)
      : model_(model),
        request_(request),
        room_(room_of(model, request)),
        fixed_count_(fixed_count(request)) {}

  ApiResult<TruncatedChat> cut() {
    TruncatedChat out;
    out.places.fixed_count = static_cast<int32_t>(fixed_count_);
    if (bytes() <= model_.prompt_bytes_max) {
      if (auto fault = encode(out)) return *std::move(fault);
    }
    if (out.prompt.empty() || !fits(out)) {
      if (auto fault = measure()) return *std::move(fault);
      if (auto fault = cut_to_fit(out)) return *std::move(fault);
    }
    look_ahead(out);
    return out;
  }

 private:
  bool fits(const TruncatedChat& out) const { return static_cast<int64_t>(out.prompt.size()) <= room_; }

  int64_t bytes() const {
    int64_t sum = 0;
    for (const ChatMessage& message : request_.messages)
      sum += static_cast<int64_t>(message.content.size() + message.extra_json.size());
    return sum;
  }

  std::optional<ApiError> encode(TruncatedChat& out) {
    ChatEncoding how = encoding_of(request_);
    how.message_ends = &out.places.message_ends;
    auto ids = encode_chat(model_, request_, how);
    if (!ids.ok()) return ids.error();
    out.prompt = std::move(*ids);
    return std::nullopt;
  }

  // A text's tokens, of one of the messages; one that no prompt has room for has more than the window.
  ApiResult<int64_t> count(const std::string& text) {
    if (static_cast<int64_t>(text.size()) > model_.prompt_bytes_max)
      return int64_t{model_.total_count_max} + 1;
    auto ids = encode_text(model_, text, /*add_special=*/false, "messages");
    if (!ids.ok()) return ids.error();
    return static_cast<int64_t>(ids->size());
  }

  std::optional<ApiError> measure() {
    const auto [around, beginning] = own_tokens(model_, request_);
    fixed_tokens_ = beginning;
    const std::vector<ChatMessage>& messages = request_.messages;
    std::vector<HistoryMessage> history;
    bool in_turns_instructions = false;
    for (size_t i = 0; i < messages.size(); ++i) {
      auto tokens = count(messages[i].content);
      auto more = count(messages[i].extra_json);
      if (!tokens.ok()) return tokens.error();
      if (!more.ok()) return more.error();
      const int64_t sum = *tokens + *more + around;
      if (i < fixed_count_) {
        fixed_tokens_ += sum;
        continue;
      }
      const bool instructs = is_instruction(messages[i]);
      HistoryMessage& each = history.emplace_back();
      each.tokens = sum;
      each.passing = instructs && i + kPassingDepth >= messages.size();
      // Instructions before a user's message are that one's.
      each.begins_turn =
          !in_turns_instructions && (instructs ? leads_to_user(i) : messages[i].role == Role::kUser);
      in_turns_instructions = instructs && (each.begins_turn || in_turns_instructions);
    }
    const double step = static_cast<double>(history_room()) * request_.truncation->drop;
    cuts_.emplace(history, std::max<int64_t>(1, static_cast<int64_t>(step)));
    return std::nullopt;
  }

  bool leads_to_user(size_t index) const {
    while (index < request_.messages.size() && is_instruction(request_.messages[index])) ++index;
    return index < request_.messages.size() && request_.messages[index].role == Role::kUser;
  }

  int64_t history_room() const { return std::max<int64_t>(1, room_ - fixed_tokens_); }

  void leave_out(size_t count) {
    const auto begin = request_.messages.begin() + static_cast<std::ptrdiff_t>(fixed_count_);
    request_.messages.erase(begin, begin + static_cast<std::ptrdiff_t>(count));
  }

  // The counts of single messages are not quite those of a chat, so one cut more may be needed.
  std::optional<ApiError> cut_to_fit(TruncatedChat& out) {
    size_t left_out = 0;
    std::optional<size_t> cut = cuts_->first_kept(history_room());
    while (cut) {
      leave_out(*cut - left_out);
      left_out = *cut;
      out.places.left_out = static_cast<int32_t>(left_out);
      if (auto fault = encode(out)) return fault;
      cut = fits(out) ? std::nullopt : cuts_->next(*cut);
    }
    return std::nullopt;
  }

  // Whether the room is full after two turns like this one: what is computed ahead has that long.
  bool is_nearly_full(const TruncatedChat& out) {
    if (!fits(out)) return false;  // it is refused
    auto last = count(request_.messages.back().content);
    const int64_t answer = std::min(request_.max_tokens.value_or(kAnswerGuess), kAnswerGuess);
    const int64_t turn = answer + (last.ok() ? *last : 0) + kAroundTurn;
    return static_cast<int64_t>(out.prompt.size()) + 2 * turn > room_;
  }

  void look_ahead(TruncatedChat& out) {
    if (!model_.keeps_prefixes || request_.continue_final_message || !is_nearly_full(out)) return;
    if (!cuts_ && measure()) return;
    const auto left_out = static_cast<size_t>(out.places.left_out);
    const auto next = cuts_->next(left_out);
    if (!next) return;
    std::vector<ChatMessage> kept = request_.messages;
    const auto begin = kept.begin() + static_cast<std::ptrdiff_t>(fixed_count_);
    kept.erase(begin, begin + static_cast<std::ptrdiff_t>(*next - left_out));
    auto beginning = common_beginning(model_, chat_of(request_, std::move(kept)));
    if (beginning.ok()) out.next_beginning = std::move(*beginning);
  }

  const ServedModel& model_;
  GenerateRequest& request_;
  const int64_t room_;
  const size_t fixed_count_;
  int64_t fixed_tokens_ = 0;
  std::optional<HistoryCuts> cuts_;  // by measure()
};

}  // namespace

ApiResult<TruncatedChat> truncate_chat(const ServedModel& model, GenerateRequest& request) {
  return Cutter(model, request).cut();
}

}  // namespace troupe

// A chat's answer as a message of blocks: thoughts, text, calls, in the order in which they come. In a stream
// a block ends where the next begins, and the message's end waits for the usage behind the last chunk.

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/dialects/anthropic/anthropic.h"

namespace troupe::dialect::anthropic {
namespace {

void append_event(std::string& out, std::string_view name, const bj::object& data) {
  absl::StrAppend(&out, "event: ", to_absl(name), "\ndata: ", to_json(data), "\n\n");
}

bj::object usage_object(const AnswerUsage& usage) {
  bj::object out;
  out["input_tokens"] = usage.prompt_tokens - usage.cached_tokens;
  out["cache_creation_input_tokens"] = 0;
  out["cache_read_input_tokens"] = usage.cached_tokens;
  out["output_tokens"] = usage.completion_tokens;
  return out;
}

std::string_view stop_reason(const ChoicePiece& choice) {
  if (choice.finish == "length") return "max_tokens";
  if (choice.finish == "tool_calls" || choice.finish == "function_call") return "tool_use";
  if (choice.finish == "content_filter") return "refusal";
  return choice.stop_text.empty() ? "end_turn" : "stop_sequence";
}

bj::value stop_sequence(const ChoicePiece& choice) {
  if (stop_reason(choice) != "stop_sequence") return nullptr;
  return bj::value(bj::string_view(choice.stop_text));
}

// The arguments of a call; as `raw_arguments` where they are no object (cut at max_tokens, or wrongly
// written).
bj::object input_of(const std::string& arguments) {
  if (arguments.empty()) return {};
  auto value = parse_json(arguments);
  if (value.ok() && value->is_object()) return std::move(value->get_object());
  return bj::object{{"raw_arguments", bj::string_view(arguments)}};
}

bj::object message_object(const AnswerPiece& piece, bj::array content, const AnswerUsage& usage) {
  bj::object message;
  message["id"] = id_with("msg_", piece.id);
  message["type"] = "message";
  message["role"] = "assistant";
  message["model"] = bj::string_view(piece.model);
  message["content"] = std::move(content);
  message["stop_reason"] = nullptr;
  message["stop_sequence"] = nullptr;
  message["usage"] = usage_object(usage);
  return message;
}

class MessageAnswer final : public DialectAnswer {
 public:
  std::string whole(const bj::object& body) override {
    const AnswerPiece piece = read_answer(body);
    bj::array content;
    ChoicePiece choice;
    if (!piece.choices.empty()) choice = piece.choices.front();
    if (!choice.reasoning.empty())
      content.push_back(bj::object{
          {"type", "thinking"}, {"thinking", bj::string_view(choice.reasoning)}, {"signature", ""}});
    if (!choice.text.empty())
      content.push_back(bj::object{{"type", "text"}, {"text", bj::string_view(choice.text)}});
    for (const ChoicePiece::Call& call : choice.calls)
      content.push_back(bj::object{{"type", "tool_use"},
                                   {"id", bj::string_view(call.id)},
                                   {"name", bj::string_view(call.name)},
                                   {"input", input_of(call.arguments)}});
    bj::object message = message_object(piece, std::move(content), piece.usage.value_or(AnswerUsage{}));
    message["stop_reason"] = bj::string_view(stop_reason(choice));
    message["stop_sequence"] = stop_sequence(choice);
    return to_json(message);
  }

  std::string error(const AnswerError& error) const override {
    bj::object fields{{"type", bj::string_view(error_type(error.status))},
                      {"message", bj::string_view(error.message)}};
    return to_json(bj::object{{"type", "error"}, {"error", std::move(fields)}});
  }

  void chunk(const AnswerPiece& piece, std::string& out) override {
    if (piece.usage) usage_ = *piece.usage;
    begin(piece, out);
    for (const ChoicePiece& choice : piece.choices) {
      if (!choice.reasoning.empty()) think(choice.reasoning, out);
      if (!choice.text.empty()) say(choice.text, out);
      for (const ChoicePiece::Call& call : choice.calls) call_tool(call, out);
      if (!choice.finish.empty()) last_ = choice;
    }
  }

  void end(std::string& out) override {
    begin({}, out);  // a worker of another kind may have said nothing
    close_block(out);
    bj::object delta{{"stop_reason", bj::string_view(stop_reason(last_))},
                     {"stop_sequence", stop_sequence(last_)}};
    append_event(out, "message_delta",
                 {{"type", "message_delta"}, {"delta", std::move(delta)}, {"usage", usage_object(usage_)}});
    append_event(out, "message_stop", {{"type", "message_stop"}});
  }

  void fail(const AnswerError& failed, std::string& out) override {
    absl::StrAppend(&out, "event: error\ndata: ", error(failed), "\n\n");
  }

 private:
  enum class Block : uint8_t { kNone, kThinking, kText, kCall };

  void begin(const AnswerPiece& piece, std::string& out) {
    if (std::exchange(begun_, true)) return;
    append_event(out, "message_start",
                 {{"type", "message_start"}, {"message", message_object(piece, {}, usage_)}});
    append_event(out, "ping", {{"type", "ping"}});
  }
  void open_block(Block kind, bj::object content, std::string& out) {
    close_block(out);
    block_ = kind;
    append_event(
        out, "content_block_start",
        {{"type", "content_block_start"}, {"index", block_index_}, {"content_block", std::move(content)}});
  }
  void close_block(std::string& out) {
    if (block_ == Block::kNone) return;
    if (block_ == Block::kThinking) delta({{"type", "signature_delta"}, {"signature", ""}}, out);
    append_event(out, "content_block_stop", {{"type", "content_block_stop"}, {"index", block_index_++}});
    block_ = Block::kNone;
  }
  void delta(bj::object said, std::string& out) {
    append_event(out, "content_block_delta",
                 {{"type", "content_block_delta"}, {"index", block_index_}, {"delta", std::move(said)}});
  }
  void think(const std::string& text, std::string& out) {
    if (block_ != Block::kThinking)
      open_block(Block::kThinking, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}, out);
    delta({{"type", "thinking_delta"}, {"thinking", bj::string_view(text)}}, out);
  }
  void say(const std::string& text, std::string& out) {
    if (block_ != Block::kText) open_block(Block::kText, {{"type", "text"}, {"text", ""}}, out);
    delta({{"type", "text_delta"}, {"text", bj::string_view(text)}}, out);
  }
  void call_tool(const ChoicePiece::Call& call, std::string& out) {
    if (!call.name.empty() || block_ != Block::kCall || call.index != call_index_) {
      call_index_ = call.index;
      open_block(Block::kCall,
                 {{"type", "tool_use"},
                  {"id", bj::string_view(call.id)},
                  {"name", bj::string_view(call.name)},
                  {"input", bj::object{}}},
                 out);
    }
    if (call.arguments.empty()) return;
    delta({{"type", "input_json_delta"}, {"partial_json", bj::string_view(call.arguments)}}, out);
  }

  bool begun_ = false;
  Block block_ = Block::kNone;  // the open one
  int64_t block_index_ = 0;
  size_t call_index_ = 0;
  AnswerUsage usage_;
  ChoicePiece last_;
};

}  // namespace

std::unique_ptr<DialectAnswer> make_answer() {
  return std::make_unique<MessageAnswer>();
}

std::string_view error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
    case 529:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace troupe::dialect::anthropic

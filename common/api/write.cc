// Answers in the form OpenAI's clients expect, written straight into a string: every token of every stream
// makes a chunk, so no tree is built in between.

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/api/logprobs.h"
#include "common/core/status.h"
#include "common/json/json.h"

namespace troupe {

namespace {

using Kind = GenerateRequest::Kind;

// Appends {"id":…,"object":…,"created":…,"model":… — without the closing brace.
void append_header(std::string& out, const AnswerHeader& header, std::string_view object) {
  out += "{\"id\":";
  append_json_string(out, header.id);
  absl::StrAppend(&out, ",\"object\":\"", to_absl(object), "\",\"created\":", header.created_s,
                  ",\"model\":");
  append_json_string(out, header.model);
}

std::string_view chunk_object(Kind kind) {
  return kind == Kind::kChat ? "chat.completion.chunk" : "text_completion";
}

// (It may be long, and a gateway looks for the finish reason at a chunk's end.)
void append_stop_reason(std::string& out, const StopReason* stop) {
  if (stop != nullptr && std::holds_alternative<std::string>(*stop)) {
    append_json_string(out, std::get<std::string>(*stop));
  } else if (stop != nullptr && std::holds_alternative<int32_t>(*stop)) {
    absl::StrAppend(&out, std::get<int32_t>(*stop));
  } else {
    out += "null";
  }
}

// Appends the rest of a choice after its text, with its closing brace.
void append_end(std::string& out, Kind kind, const Choice& choice) {
  out += ",\"logprobs\":";
  if (choice.logprobs == nullptr) {
    out += "null";
  } else {
    append_logprobs(out, kind, *choice.logprobs);
  }
  if (choice.finish == FinishReason::kNone) {
    out += ",\"finish_reason\":null}";
  } else {
    const bool ends_for_calls = choice.has_calls && choice.finish == FinishReason::kStop;
    const std::string_view name = ends_for_calls ? "tool_calls" : finish_reason_name(choice.finish);
    out += ",\"stop_reason\":";
    append_stop_reason(out, choice.stop);
    absl::StrAppend(&out, ",\"finish_reason\":\"", to_absl(name), "\"}");
  }
}

void append_usage(std::string& out, const Usage& usage) {
  absl::StrAppend(&out, "\"usage\":{\"prompt_tokens\":", usage.prompt_tokens,
                  ",\"completion_tokens\":", usage.completion_tokens,
                  ",\"total_tokens\":", usage.prompt_tokens + usage.completion_tokens,
                  ",\"prompt_tokens_details\":{\"cached_tokens\":", usage.cached_tokens);
  if (usage.cache_break) {
    absl::StrAppend(&out, ",\"cache_break\":{\"message\":", usage.cache_break->message,
                    ",\"token\":", usage.cache_break->token, "}");
  }
  if (usage.truncated_messages > 0)
    absl::StrAppend(&out, ",\"truncated_messages\":", usage.truncated_messages);
  out += '}';
  if (usage.reasoning_tokens) {
    absl::StrAppend(&out, ",\"completion_tokens_details\":{\"reasoning_tokens\":", *usage.reasoning_tokens,
                    "}");
  }
  out += '}';
}

// Under both of its names: vLLM's and OpenRouter's, and DeepSeek's and SGLang's.
void append_reasoning(std::string& out, std::string_view reasoning) {
  for (const std::string_view name : {"\"reasoning\":", ",\"reasoning_content\":"}) {
    out += name;
    append_json_string(out, reasoning);
  }
}

// Only a call's first piece has an id and a name. `in_stream`: pieces need an index.
void append_calls(std::string& out, std::span<const ToolCall> calls, bool in_stream) {
  out += "\"tool_calls\":[";
  for (const ToolCall& call : calls) {
    if (&call != calls.data()) out += ',';
    out += '{';
    if (in_stream) absl::StrAppend(&out, "\"index\":", call.index, ",");
    if (!call.name.empty()) {
      out += "\"id\":";
      append_json_string(out, call.id);
      out += ",\"type\":\"function\",\"function\":{\"name\":";
      append_json_string(out, call.name);
      out += ",\"arguments\":";
    } else {
      out += "\"function\":{\"arguments\":";
    }
    append_json_string(out, call.arguments);
    out += "}}";
  }
  out += ']';
}

// Without text a message that has something else has none.
void append_message(std::string& out, const Choice& choice) {
  out += "\"message\":{\"role\":\"assistant\",\"content\":";
  if (choice.text.empty() && (!choice.reasoning.empty() || !choice.calls.empty())) {
    out += "null";
  } else {
    append_json_string(out, choice.text);
  }
  if (!choice.reasoning.empty()) {
    out += ',';
    append_reasoning(out, choice.reasoning);
  }
  if (!choice.calls.empty()) {
    out += ',';
    append_calls(out, choice.calls, /*in_stream=*/false);
  }
  out += '}';
}

// The first chat chunk names the role; the last, often without text, has an empty delta.
void append_delta(std::string& out, const Choice& piece, bool first) {
  out += ",\"delta\":{";
  std::string_view comma;
  const auto separate = [&] { out += std::exchange(comma, ","); };
  if (first) {
    separate();
    out += "\"role\":\"assistant\"";
  }
  if (!piece.reasoning.empty()) {
    separate();
    append_reasoning(out, piece.reasoning);
  }
  if (!piece.text.empty() || (first && piece.reasoning.empty() && piece.calls.empty())) {
    separate();
    out += "\"content\":";
    append_json_string(out, piece.text);
  }
  if (!piece.calls.empty()) {
    separate();
    append_calls(out, piece.calls, /*in_stream=*/true);
  }
  out += '}';
}

void append_ids(std::string& out, const Choice& piece) {
  out += ",\"troupe\":{\"ids\":[";
  for (const int32_t& id : *piece.ids) absl::StrAppend(&out, &id == piece.ids->data() ? "" : ",", id);
  out += ']';
  if (piece.seed) absl::StrAppend(&out, ",\"seed\":", *piece.seed);
  if (piece.usage != nullptr) {
    absl::StrAppend(&out, ",\"prompt_tokens\":", piece.usage->prompt_tokens,
                    ",\"completion_tokens\":", piece.usage->completion_tokens,
                    ",\"cached_tokens\":", piece.usage->cached_tokens);
  }
  out += '}';
}

}  // namespace

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kNone:
      break;
  }
  return "";
}

std::string answer_json(const AnswerHeader& header, std::span<const Choice> choices, const Usage& usage) {
  std::string out;
  size_t text_bytes = 0;
  for (const Choice& choice : choices) text_bytes += choice.text.size() + choice.text.size() / 8 + 128;
  out.reserve(text_bytes + 256);
  const bool is_chat = header.kind == Kind::kChat;
  append_header(out, header, is_chat ? "chat.completion" : "text_completion");
  out += ",\"choices\":[";
  for (const Choice& choice : choices) {
    if (&choice != choices.data()) out += ',';
    absl::StrAppend(&out, "{\"index\":", choice.index, ",");
    if (is_chat) {
      append_message(out, choice);
    } else {
      out += "\"text\":";
      append_json_string(out, choice.text);
    }
    append_end(out, header.kind, choice);
  }
  out += "],";
  append_usage(out, usage);
  out += '}';
  return out;
}

std::string chunk_json(const AnswerHeader& header, const Choice& piece, bool first, ChunkUsage shown,
                       const Usage& usage) {
  std::string out;
  out.reserve(piece.text.size() + piece.text.size() / 8 + 256);
  append_header(out, header, chunk_object(header.kind));
  absl::StrAppend(&out, ",\"choices\":[{\"index\":", piece.index);
  if (header.kind == Kind::kChat) {
    append_delta(out, piece, first);
  } else {
    out += ",\"text\":";
    append_json_string(out, piece.text);
  }
  append_end(out, header.kind, piece);
  out += shown == ChunkUsage::kNull ? "],\"usage\":null" : "]";
  if (shown == ChunkUsage::kRunning) {
    out += ',';
    append_usage(out, usage);
  }
  if (piece.ids != nullptr) append_ids(out, piece);
  out += '}';
  return out;
}

std::string usage_chunk_json(const AnswerHeader& header, const Usage& usage) {
  std::string out;
  append_header(out, header, chunk_object(header.kind));
  out += ",\"choices\":[],";
  append_usage(out, usage);
  out += '}';
  return out;
}

}  // namespace troupe

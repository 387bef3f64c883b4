// Answers in the form OpenAI's clients expect, written straight into a string: every token of every stream
// makes a chunk, so no tree is built in between.

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
    absl::StrAppend(&out, ",\"finish_reason\":\"", to_absl(finish_reason_name(choice.finish)), "\"}");
  }
}

void append_usage(std::string& out, const Usage& usage) {
  absl::StrAppend(&out, "\"usage\":{\"prompt_tokens\":", usage.prompt_tokens,
                  ",\"completion_tokens\":", usage.completion_tokens,
                  ",\"total_tokens\":", usage.prompt_tokens + usage.completion_tokens,
                  ",\"prompt_tokens_details\":{\"cached_tokens\":", usage.cached_tokens, "}}");
}

// The first chat chunk names the role; the last, often without text, has an empty delta.
void append_delta(std::string& out, std::string_view text, bool first) {
  out += ",\"delta\":{";
  if (first) out += "\"role\":\"assistant\",";
  if (first || !text.empty()) {
    out += "\"content\":";
    append_json_string(out, text);
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
    out += is_chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":";
    append_json_string(out, choice.text);
    if (is_chat) out += '}';
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
    append_delta(out, piece.text, first);
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

// Chat has a list of tokens, each with its bytes and alternatives; completions have four lists of equal
// length. A token is bytes, but JSON strings are text: half a character is written as OpenAI writes it,
// "bytes:\\xe4\\xbd", so that tokens with different bytes never look alike.

#include "common/api/logprobs.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"

namespace troupe {

namespace {

// Stands for a probability of (nearly) zero, whose logarithm JSON cannot hold. OpenAI's value.
constexpr float kLogprobMin = -9999.0f;

// Appends the shortest text that reads back as the same float.
void append_logprob(std::string& out, std::optional<float> logprob) {
  if (!logprob) {
    out += "null";
    return;
  }
  char text[32];
  const float bounded = *logprob >= kLogprobMin ? *logprob : kLogprobMin;  // also for a NaN
  const auto end = std::to_chars(text, text + sizeof text, bounded).ptr;
  out.append(text, end);
}

void append_token(std::string& out, std::string_view bytes) {
  if (is_valid_utf8(bytes)) {
    append_json_string(out, bytes);
    return;
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  out += "\"bytes:";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += "\\\\x";
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  out += '"';
}

void append_chat_token(std::string& out, std::string_view bytes, std::optional<float> logprob) {
  out += "{\"token\":";
  append_token(out, bytes);
  out += ",\"logprob\":";
  append_logprob(out, logprob);
  out += ",\"bytes\":[";
  for (size_t i = 0; i < bytes.size(); ++i) {
    absl::StrAppend(&out, i > 0 ? "," : "", static_cast<int>(static_cast<unsigned char>(bytes[i])));
  }
  out += ']';
}

void append_chat(std::string& out, const std::vector<TokenLogprob>& tokens) {
  out += "{\"content\":[";
  for (const TokenLogprob& token : tokens) {
    if (&token != tokens.data()) out += ',';
    append_chat_token(out, token.bytes, token.logprob);
    out += ",\"top_logprobs\":[";
    for (const auto& other : token.top) {
      if (&other != token.top.data()) out += ',';
      append_chat_token(out, other.bytes, other.logprob);
      out += '}';
    }
    out += "]}";
  }
  out += "],\"refusal\":null}";
}

// Appends the alternatives as an object keyed by token: of several ids with the same bytes it holds the most
// probable one. The token itself is always included, so there may be one more than requested.
void append_top(std::string& out, const TokenLogprob& token) {
  if (!token.logprob) {
    out += "null";
    return;
  }
  const auto append = [&out](std::string_view bytes, float logprob) {
    if (out.back() != '{') out += ',';
    append_token(out, bytes);
    out += ':';
    append_logprob(out, logprob);
  };
  out += '{';
  bool has_itself = false;
  for (auto it = token.top.begin(); it != token.top.end(); ++it) {
    const auto same = [it](const TokenLogprob::Alternative& earlier) { return earlier.bytes == it->bytes; };
    if (std::any_of(token.top.begin(), it, same)) continue;
    append(it->bytes, it->logprob);
    has_itself = has_itself || it->bytes == token.bytes;
  }
  if (!has_itself) append(token.bytes, *token.logprob);
  out += '}';
}

// Appends "name":[…] with what `append` writes for each token.
template <typename Append>
void append_list(std::string& out, std::string_view name, const std::vector<TokenLogprob>& tokens,
                 Append append) {
  absl::StrAppend(&out, "\"", to_absl(name), "\":[");
  for (const TokenLogprob& token : tokens) {
    if (&token != tokens.data()) out += ',';
    append(token);
  }
  out += ']';
}

void append_completion(std::string& out, const std::vector<TokenLogprob>& tokens) {
  out += '{';
  append_list(out, "tokens", tokens, [&out](const TokenLogprob& t) { append_token(out, t.bytes); });
  out += ',';
  append_list(out, "token_logprobs", tokens,
              [&out](const TokenLogprob& t) { append_logprob(out, t.logprob); });
  out += ',';
  append_list(out, "top_logprobs", tokens, [&out](const TokenLogprob& t) { append_top(out, t); });
  out += ',';
  append_list(out, "text_offset", tokens,
              [&out](const TokenLogprob& t) { absl::StrAppend(&out, t.text_offset); });
  out += '}';
}

}  // namespace

void append_logprobs(std::string& out, GenerateRequest::Kind kind, const std::vector<TokenLogprob>& tokens) {
  if (kind == GenerateRequest::Kind::kChat) {
    append_chat(out, tokens);
  } else {
    append_completion(out, tokens);
  }
}

}  // namespace troupe

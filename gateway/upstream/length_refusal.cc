#include "gateway/upstream/length_refusal.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

#include "common/json/json.h"

namespace troupe {
namespace {

constexpr size_t kBodyMax = size_t{64} << 10;
constexpr size_t kNumberWithin = 24;  // bytes after a phrase
constexpr int64_t kContextMax = int64_t{1} << 40;

// In lower case; the context's tokens follow, if any do.
constexpr std::array<std::string_view, 10> kPhrases{
    "maximum context length",        // OpenAI, vLLM, SGLang, ours
    "maximum model length",          // vLLM: "… is longer than the maximum model length of 4096"
    "the model's context length",    // SGLang: "… is longer than the model's context length (4096 tokens)"
    "the available context size",    // llama.cpp: "… exceeds the available context size (4096 tokens)"
    "exceed context window of",      // llama-cpp-python
    "exceeds the context window",    // OpenAI
    "exceeds the context length",    // Ollama
    "exceeds maximum context",       // Ollama
    "`max_new_tokens` must be <=",   // TGI
    "`inputs` must have less than",  // TGI
};

// The number that follows within a few bytes of the same sentence; 0: none.
int64_t number_after(std::string_view text) {
  text = text.substr(0, kNumberWithin + 20);
  const size_t begin = text.find_first_of("0123456789.\n");
  if (begin == std::string_view::npos || begin > kNumberWithin) return 0;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), number);
  return error == std::errc() && number > 0 ? std::min(number, kContextMax) : 0;
}

void read_message(std::string_view message, route::Failure& failure) {
  std::string lower(message);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  const std::string_view text = lower;
  for (const std::string_view phrase : kPhrases) {
    const size_t at = text.find(phrase);
    if (at == std::string_view::npos) continue;
    failure.too_long = true;
    if (failure.context_max == 0) failure.context_max = number_after(text.substr(at + phrase.size()));
  }
}

std::string_view string_in(const bj::object& object, std::string_view name) {
  const bj::value* value = object.if_contains({name.data(), name.size()});
  if (value == nullptr || !value->is_string()) return {};
  const bj::string& text = value->get_string();
  return {text.data(), text.size()};
}

}  // namespace

void note_length_refusal(std::string_view body, route::Failure& failure) {
  constexpr std::array<int, 4> kStatuses{400, 413, 422, 500};
  if (std::find(kStatuses.begin(), kStatuses.end(), failure.http_status) == kStatuses.end()) return;
  if (body.size() > kBodyMax) return;
  const auto parsed = parse_json(body);
  const bj::object* object = parsed.ok() ? parsed->if_object() : nullptr;
  if (object == nullptr) return;
  const bj::value* inner = object->if_contains("error");
  if (inner != nullptr && inner->is_string()) {  // TGI, Ollama
    read_message(string_in(*object, "error"), failure);
    return;
  }
  const bj::object& error = inner != nullptr && inner->is_object() ? inner->get_object() : *object;
  if (string_in(error, "code") == "context_length_exceeded" ||
      string_in(error, "type") == "exceed_context_size_error")
    failure.too_long = true;
  const bj::value* slots = error.if_contains("n_ctx");  // llama.cpp
  if (failure.too_long && slots != nullptr && slots->is_int64() && slots->get_int64() > 0)
    failure.context_max = std::min(slots->get_int64(), kContextMax);
  read_message(string_in(error, "message"), failure);
}

}  // namespace troupe

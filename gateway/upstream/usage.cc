#include "gateway/upstream/usage.h"

#include <algorithm>

#include "common/core/json.h"

namespace troupe {
namespace {

// The object that begins at `text`, braces matched outside strings; empty when it does not end.
std::string_view object_at(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{') {
      ++depth;
    } else if (c == '}' && --depth == 0) {
      return text.substr(0, i + 1);
    }
  }
  return {};
}

std::optional<int64_t> count_of(const bj::object& object, std::string_view name) {
  const auto it = object.find(bj::string_view(name.data(), name.size()));
  if (it == object.end() || !it->value().is_int64() || it->value().get_int64() < 0) return std::nullopt;
  return it->value().get_int64();
}

}  // namespace

void UsageTap::feed(std::string_view bytes) {
  bytes_ += bytes.size();
  if (bytes.size() >= kTailBytes) {
    tail_.assign(bytes.substr(bytes.size() - kTailBytes));
    return;
  }
  // Trimmed only at twice the size, so that a stream of small pieces is not moved at every one.
  if (tail_.size() + bytes.size() > 2 * kTailBytes) tail_.erase(0, tail_.size() - kTailBytes);
  tail_.append(bytes);
}

std::optional<route::AnswerCounts> UsageTap::counts() const {
  constexpr std::string_view kName = "\"usage\"";  // in a string of the model's the quotes would be escaped
  // However it came, in one piece or many, the same bytes count.
  const std::string_view tail =
      std::string_view(tail_).substr(tail_.size() - std::min(tail_.size(), kTailBytes));
  size_t at = tail.rfind(kName);
  if (at == std::string_view::npos) return std::nullopt;
  at = tail.find_first_not_of(" \t\r\n", at + kName.size());
  if (at == std::string_view::npos || tail[at] != ':') return std::nullopt;
  at = tail.find_first_not_of(" \t\r\n", at + 1);
  if (at == std::string_view::npos || tail[at] != '{') return std::nullopt;
  const auto usage = parse_json(object_at(tail.substr(at)));
  if (!usage.ok() || !usage->is_object()) return std::nullopt;

  route::AnswerCounts counts;
  const auto prompt = count_of(usage->get_object(), "prompt_tokens");
  if (!prompt) return std::nullopt;
  counts.prompt_tokens = *prompt;
  counts.completion_tokens = count_of(usage->get_object(), "completion_tokens").value_or(0);
  const auto details = usage->get_object().find("prompt_tokens_details");
  if (details != usage->get_object().end() && details->value().is_object()) {
    const auto cached = count_of(details->value().get_object(), "cached_tokens");
    counts.has_cached = cached.has_value() && *cached <= counts.prompt_tokens;
    if (counts.has_cached) counts.cached_tokens = *cached;
  }
  return counts;
}

}  // namespace troupe

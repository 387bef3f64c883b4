#include "gateway/upstream/usage.h"

#include <algorithm>
#include <cstring>

#include "common/api/api.h"

namespace troupe {
namespace {

// The object at the beginning of `text`, braces matched outside strings; empty when it does not end.
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

constexpr std::string_view kName = "\"usage\"";  // in a model's string the quotes would be escaped

// Position after the last `"usage"`; npos: none. Searched from the end, by its rarest letter.
size_t after_last_usage(std::string_view text) {
  constexpr size_t kRarest = kName.find('g');
  for (size_t left = text.size(); left > 0;) {
    const void* found = memrchr(text.data(), kName[kRarest], left);
    if (found == nullptr) break;
    left = static_cast<size_t>(static_cast<const char*>(found) - text.data());
    if (left >= kRarest && text.substr(left - kRarest).starts_with(kName))
      return left - kRarest + kName.size();
  }
  return std::string_view::npos;
}

// Counts lines that begin with `data:`. An event's JSON has no line breaks: the search stops thrice a chunk.
size_t data_lines(std::string_view bytes) {
  size_t count = bytes.starts_with("data:") ? 1 : 0;
  for (size_t at = 0; (at = bytes.find('\n', at)) != std::string_view::npos;)
    count += bytes.substr(++at).starts_with("data:") ? 1 : 0;
  return count;
}

}  // namespace

void UsageTap::feed(std::string_view bytes) {
  bytes_ += bytes.size();
  events_ += data_lines(bytes);
  if (bytes.size() >= kTailBytes) {
    tail_.assign(bytes.substr(bytes.size() - kTailBytes));
    return;
  }
  // Trimmed only at twice the size, so that small pieces do not move it every time.
  if (tail_.size() + bytes.size() > 2 * kTailBytes) tail_.erase(0, tail_.size() - kTailBytes);
  tail_.append(bytes);
}

std::optional<route::AnswerCounts> UsageTap::counts() const {
  // The same bytes count, whether they came in one piece or many.
  const std::string_view tail =
      std::string_view(tail_).substr(tail_.size() - std::min(tail_.size(), kTailBytes));
  size_t at = after_last_usage(tail);
  if (at == std::string_view::npos) return std::nullopt;
  at = tail.find_first_not_of(" \t\r\n", at);
  if (at == std::string_view::npos || tail[at] != ':') return std::nullopt;
  at = tail.find_first_not_of(" \t\r\n", at + 1);
  if (at == std::string_view::npos || tail[at] != '{') return std::nullopt;
  const auto usage = parse_usage(object_at(tail.substr(at)));
  if (!usage) return std::nullopt;
  route::AnswerCounts counts;
  counts.prompt_tokens = usage->prompt_tokens;
  counts.completion_tokens = usage->completion_tokens;
  counts.has_cached = usage->cached_tokens.has_value();
  counts.cached_tokens = usage->cached_tokens.value_or(0);
  return counts;
}

}  // namespace troupe

#include "worker/input/message_ends.h"

#include <algorithm>

namespace troupe {

namespace {

// Longer texts are looked for by their beginning, which keeps a search linear.
constexpr size_t kSoughtMax = 64;
// A search that finds nothing reads all that is left, so no more than this many are made.
constexpr int kMissesMax = 8;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::vector<size_t> text_ends(std::span<const ChatMessage> messages, std::string_view rendered) {
  std::vector<size_t> ends;
  ends.reserve(messages.size());
  size_t from = 0;
  int misses = 0;
  for (const ChatMessage& message : messages) {
    const std::string_view text = trimmed(message.content);
    const size_t at = text.empty() || misses >= kMissesMax ? std::string_view::npos
                                                           : rendered.find(text.substr(0, kSoughtMax), from);
    if (at != std::string_view::npos)
      from = std::min(at + text.size(), rendered.size());
    else if (!text.empty())
      ++misses;
    ends.push_back(from);
  }
  return ends;
}

}  // namespace

std::vector<int32_t> message_ends(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                                  std::string_view rendered, std::span<const TokenId> prompt) {
  const std::vector<size_t> texts = text_ends(messages, rendered);
  std::vector<int32_t> ends;
  ends.reserve(texts.size());
  size_t bytes = 0;
  int32_t count = 0;
  for (const size_t end : texts) {
    while (bytes < end && static_cast<size_t>(count) < prompt.size())
      bytes += tokenizer.token_bytes(prompt[static_cast<size_t>(count++)], /*skip_special=*/false).size();
    ends.push_back(count);
  }
  return ends;
}

}  // namespace troupe

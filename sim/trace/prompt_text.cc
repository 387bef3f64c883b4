#include "sim/trace/prompt_text.h"

#include <algorithm>
#include <array>

#include "common/core/random.h"

namespace troupe::sim {

namespace {

// A power of two, so that a word is a few bits of a hash.
constexpr std::array<std::string_view, 64> kWords{
    "the", "of",   "and",  "to",   "in",   "is",   "was", "for",  "on",   "that", "with",  "as",    "it",
    "by",  "at",   "from", "his",  "her",  "an",   "be",  "this", "are",  "had",  "not",   "but",   "or",
    "one", "have", "were", "all",  "out",  "she",  "he",  "they", "you",  "who",  "will",  "more",  "no",
    "if",  "my",   "up",   "what", "said", "time", "new", "some", "can",  "two",  "then",  "first", "do",
    "any", "now",  "like", "our",  "over", "man",  "me",  "even", "most", "made", "after", "way"};

}  // namespace

void append_words(std::string& out, uint64_t id, int64_t count) {
  route::Random random(id);
  for (int64_t i = 0; i < count; ++i) {
    out += ' ';
    out += kWords[random.next() >> 58];
  }
}

PromptText prompt_text(const TraceRequest& request, uint64_t unique) {
  PromptText text;
  const int64_t block = request.block_tokens, prefix_blocks = request.prefix_tokens / block;
  int64_t left = request.input_tokens;
  for (size_t i = 0; i < request.blocks.size() && left > 0; ++i) {
    const int64_t count = std::min(block, left);
    append_words(static_cast<int64_t>(i) < prefix_blocks ? text.prefix : text.rest, request.blocks[i], count);
    left -= count;
  }
  append_words(text.rest, unique, left);
  return text;
}

}  // namespace troupe::sim

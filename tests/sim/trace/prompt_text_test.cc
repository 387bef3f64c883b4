// Prompts for live workers: text is equal exactly where block ids are.

#include "sim/trace/prompt_text.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace troupe::sim {
namespace prompt_text_test {

TraceRequest request_of(std::vector<uint64_t> blocks, int32_t tokens, int32_t prefix_tokens) {
  TraceRequest r;
  r.block_tokens = 16;
  r.input_tokens = tokens;
  r.prefix_tokens = prefix_tokens;
  r.blocks = std::move(blocks);
  return r;
}

int64_t words(const std::string& text) {
  return std::count(text.begin(), text.end(), ' ');
}

TEST(PromptText, SharesTextExactlyWhereIdsAgree) {
  const PromptText a = prompt_text(request_of({1, 2, 3}, 40, 32), 7);
  const PromptText b = prompt_text(request_of({1, 2, 4}, 40, 32), 7);
  EXPECT_EQ(a.prefix, b.prefix);
  EXPECT_NE(a.rest, b.rest);
  EXPECT_EQ(words(a.prefix), 32);
  EXPECT_EQ(words(a.rest), 8);
  EXPECT_NE(prompt_text(request_of({9, 2}, 32, 32), 7).prefix, a.prefix);
}

TEST(PromptText, CoversEveryToken) {
  // The partial last block has an id, or none: then its text is unique to the request.
  EXPECT_EQ(words(prompt_text(request_of({1, 2, 3}, 33, 0), 1).rest), 33);
  EXPECT_EQ(words(prompt_text(request_of({1, 2}, 33, 0), 1).rest), 33);
  EXPECT_NE(prompt_text(request_of({1}, 30, 0), 1).rest, prompt_text(request_of({1}, 30, 0), 2).rest);
}

}  // namespace prompt_text_test
}  // namespace troupe::sim

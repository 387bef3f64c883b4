#include "worker/text/tokenizer/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>
#include <string_view>

#include "tests/cpu_time.h"

namespace troupe {
namespace stop_matcher_test {

std::string random_text(std::mt19937_64& rng, size_t size_max) {
  std::string text(rng() % (size_max + 1), ' ');
  for (char& c : text) c = "ab\xff"[rng() % 3];
  return text;
}

TEST(StopMatcher, FindsTheLongestThatEndsAndWhatMayBeginOne) {
  std::mt19937_64 rng(3);
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> strings(rng() % 5);
    for (std::string& string : strings) string = random_text(rng, 5);
    const std::string text = random_text(rng, 30);
    StopMatcher matcher(strings);
    for (size_t end = 1; end <= text.size(); ++end) {
      const std::string_view seen = std::string_view(text).substr(0, end);
      size_t match = 0, undecided = 0;
      for (const std::string& string : strings) {
        if (seen.ends_with(string)) match = std::max(match, string.size());
        for (size_t size = 1; size <= string.size(); ++size)
          if (seen.ends_with(string.substr(0, size))) undecided = std::max(undecided, size);
      }
      ASSERT_EQ(matcher.push(text[end - 1]), match) << seen;
      ASSERT_EQ(matcher.undecided(), undecided) << seen;
    }
  }
}

// A text that nearly matches for as long as it can.
TEST(StopMatcher, TakesTimeInProportionToItsText) {
  constexpr size_t kSize = 100'000;
  std::vector<std::string> strings;
  for (size_t i = 0; i < 16; ++i) strings.push_back(std::string(kSize - i, 'a') + "b");
  for (size_t i = 0; i < kSize / 4; ++i) strings.push_back(std::string(1, 'c') + std::to_string(i));
  const double before = cpu_seconds();
  StopMatcher matcher(strings);
  for (size_t i = 0; i < 16 * kSize; ++i) EXPECT_EQ(matcher.push(i % kSize == 0 ? 'c' : 'a'), 0u);
  EXPECT_LT(cpu_seconds() - before, 20) << "every string at every place would be an hour";
}

}  // namespace stop_matcher_test
}  // namespace troupe

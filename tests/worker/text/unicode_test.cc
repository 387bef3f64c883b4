#include "worker/text/unicode.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "tests/cpu_time.h"
#include "worker/text/unicode_corrections.h"

namespace troupe {
namespace unicode_test {

constexpr NormalForm kForms[] = {NormalForm::kNfc, NormalForm::kNfd, NormalForm::kNfkc, NormalForm::kNfkd};

std::string by_utf8proc(const std::string& text, NormalForm form) {
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const int options = UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                      (compatible ? UTF8PROC_COMPAT : 0);
  utf8proc_uint8_t* made = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &made,
                                 static_cast<utf8proc_option_t>(options));
  EXPECT_GE(size, 0);
  std::string out(reinterpret_cast<char*>(made), static_cast<size_t>(size));
  std::free(made);
  return out;
}

bool is_newer(char32_t c) {
  return std::any_of(kNewerThanNormalizers.begin(), kNewerThanNormalizers.end(),
                     [c](const CodePoints& range) { return range.first <= c && c <= range.last; });
}

// Marks of many classes behind letters that compose and that decompose, Hangul, and anything else.
TEST(NormalizeUtf8, IsWhatUtf8procMakes) {
  std::mt19937_64 rng(8);
  const char32_t letters[] = {U'a',  U'ắ',  U'é', U'ﬁ', U'각', U'ᄀ', U'ᅡ',
                              U'ᆨ', U'宋', U'क', U'ﷺ', U'Å',  U' '};
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (size_t i = rng() % 24; i > 0; --i) {
      const uint64_t kind = rng() % 8;
      if (kind < 5) {
        append_utf8(text, static_cast<char32_t>(0x300 + rng() % 0x70));
      } else if (kind < 7) {
        append_utf8(text, letters[rng() % std::size(letters)]);
      } else {
        const auto c = static_cast<char32_t>(0x80 + rng() % 0xD700);
        if (!is_newer(c)) append_utf8(text, c);
      }
    }
    for (const NormalForm form : kForms) {
      const auto made = normalize_utf8(text, form);
      ASSERT_TRUE(made.ok()) << made.status();
      ASSERT_EQ(*made, by_utf8proc(text, form)) << text;
    }
  }
}

TEST(NormalizeUtf8, OrdersALongRunOfMarksInTime) {
  std::string text = "a";
  for (int i = 0; i < 250'000; ++i) text += "\u0301";  // class 230
  for (int i = 0; i < 250'000; ++i) text += "\u0323";  // class 220: before all of those
  for (const NormalForm form : kForms) {
    const double before = cpu_seconds();
    const auto made = normalize_utf8(text, form);
    ASSERT_TRUE(made.ok());
    EXPECT_TRUE(made->starts_with(form == NormalForm::kNfc || form == NormalForm::kNfkc ? "ạ" : "a\u0323"));
    EXPECT_TRUE(made->ends_with("\u0301"));
    EXPECT_LT(cpu_seconds() - before, 20) << "quadratic time would be a quarter of an hour";
  }
}

}  // namespace unicode_test
}  // namespace troupe

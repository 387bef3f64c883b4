#include "common/json/wide_integers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "common/json/wide_json.h"

namespace troupe::wide_integers_test {

constexpr auto kText = WideIntegers::kAsMarkedText;

TEST(WideIntegers, AreSpelledAsTextsOrDoubles) {
  const std::string wide = R"({"n": [12345678901234567890123, -9223372036854775809]})";
  EXPECT_EQ(with_wide_integers(wide, WideIntegers::kAsDoubles),
            R"({"n": [12345678901234567890123e0, -9223372036854775809e0]})");
  const auto value = parse_json(with_wide_integers(wide, kText));
  ASSERT_TRUE(value.ok());
  const auto digits = [&](size_t i) {
    const auto& text = value->at("n").at(i).as_string();
    return std::string(wide_integer_of({text.data(), text.size()}));
  };
  EXPECT_EQ(digits(0), "12345678901234567890123");
  EXPECT_EQ(digits(1), "-9223372036854775809");
}

TEST(WideIntegers, OtherNumbersAndTextsAreLeftAlone) {
  for (const char* json :
       {"[1, -1, 9223372036854775807, -922337203685477580]", R"(["123456789012345678901234567890"])",
        R"(["\"123456789012345678901234567890"])",
        "[1234567890123456789012.5, 1e400, 12345678901234567890123e2]", "[00000000000000000000000001]", ""}) {
    EXPECT_EQ(with_wide_integers(json, kText), "") << json;
  }
  EXPECT_EQ(wide_integer_of("12345678901234567890123"), "");
  EXPECT_EQ(wide_integer_of(std::string(kWideIntegerMark) + "1"), "");
  EXPECT_EQ(wide_integer_of(std::string(kWideIntegerMark) + "12345678901234567890123x"), "");
  EXPECT_EQ(wide_integer_of(kWideIntegerMark), "");
}

TEST(WideIntegers, AreReadBesideEverythingElse) {
  const auto value = parse_json_with_wide_integers(R"({"a": 1, "b": 123456789012345678901234567890})");
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(value->at("a").as_int64(), 1);
  EXPECT_TRUE(value->at("b").is_string());
  EXPECT_FALSE(parse_json_with_wide_integers(R"({"a": 1, "a": 123456789012345678901234567890})").ok());
}

}  // namespace troupe::wide_integers_test

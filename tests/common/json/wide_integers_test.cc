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
        "[1234567890123456789012.5, 1e400, 12345678901234567890123e2]", "[00000000000000000000000001]", "",
        "{12345678901234567890123:1}", "{12345678901234567890123 \n:1}"}) {
    EXPECT_EQ(with_wide_integers(json, kText), "") << json;
  }
  EXPECT_EQ(wide_integer_of("12345678901234567890123"), "");
  EXPECT_EQ(wide_integer_of(std::string(wide_integer_mark()) + "1"), "");
  EXPECT_EQ(wide_integer_of(std::string(wide_integer_mark()) + "12345678901234567890123x"), "");
  EXPECT_EQ(wide_integer_of(wide_integer_mark()), "");
}

TEST(WideIntegers, IntegersOfSixtyFourBitsStayNumbers) {
  EXPECT_EQ(with_wide_integers("[-9223372036854775808, 18446744073709551615, -1234567890123456789]", kText),
            "");
  EXPECT_EQ(with_wide_integers("[-1234567890123456789, 18446744073709551616]", WideIntegers::kAsDoubles),
            "[-1234567890123456789, 18446744073709551616e0]");
}

TEST(WideIntegers, NoTextOfAClientIsTakenForOne) {
  const std::string own =
      "\xEF\xB7\x92"
      "12345678901234567890123";
  EXPECT_EQ(wide_integer_of(own), "");
  const auto value = parse_json_with_wide_integers("[\"" + own + "\", 12345678901234567890123]");
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(std::string_view(value->at(0).as_string()), own);
  EXPECT_EQ(wide_integer_of(std::string_view(value->at(0).as_string())), "");
  EXPECT_EQ(wide_integer_of(std::string_view(value->at(1).as_string())), "12345678901234567890123");
}

TEST(WideIntegers, AreReadBesideEverythingElse) {
  const auto value = parse_json_with_wide_integers(R"({"a": 1, "b": 123456789012345678901234567890})");
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(value->at("a").as_int64(), 1);
  EXPECT_TRUE(value->at("b").is_string());
  EXPECT_FALSE(parse_json_with_wide_integers(R"({"a": 1, "a": 123456789012345678901234567890})").ok());
}

}  // namespace troupe::wide_integers_test

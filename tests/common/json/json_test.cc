#include "common/json/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/cpu_time.h"

namespace troupe::json_test {

using ::testing::HasSubstr;

static std::string error_of(std::string_view text, const JsonLimits& limits = {}) {
  const auto value = parse_json(text, limits);
  return value.ok() ? "accepted" : std::string(value.status().message());
}

static std::string nested(int depth, std::string_view open, std::string_view close) {
  std::string text;
  for (int i = 0; i < depth; ++i) text += open;
  for (int i = 0; i < depth; ++i) text += close;
  return text;
}

TEST(Json, ReadsEveryKindOfValueInDocumentOrder) {
  const std::string text =
      R"({"z":1,"a":[true,false,null,-5,18446744073709551615,1.5],"s":"宋江 \u00e9 \ud83d\ude00 \u0000"})";
  const auto value = parse_json(text);
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(to_json(*value),
            "{\"z\":1,\"a\":[true,false,null,-5,18446744073709551615,1.5E0],"
            "\"s\":\"宋江 é 😀 \\u0000\"}");
  EXPECT_TRUE(value->at("a").at(3).is_int64());
  EXPECT_TRUE(value->at("a").at(4).is_uint64());
  EXPECT_EQ(value->at("s").as_string().size(), std::string("宋江 é 😀 ").size() + 1);
}

TEST(Json, AcceptsAScalarRootAndWhitespaceAround) {
  EXPECT_EQ(to_json(*parse_json(" \n\t 42 \r\n")), "42");
  EXPECT_EQ(to_json(*parse_json("\"x\"")), "\"x\"");
}

TEST(Json, RefusesTextThatIsNotOneValue) {
  for (const std::string_view text :
       {"",         " ",   "\n",   "{",   "}",     "[1,]", "[1 2]", "{\"a\":1,}", "{\"a\"}", "{a:1}",
        "{} {}",    "1 2", "[1]x", "nul", "nulll", "True", "'a'",   "[1,,2]",     "//c\n1",  "\xEF\xBB\xBF{}",
        "{\"a\":}", "[",   "]",    "\"",  ","}) {
    EXPECT_THAT(error_of(text), HasSubstr("invalid JSON")) << text;
  }
  EXPECT_THAT(error_of(std::string_view("{}\0", 3)), HasSubstr("invalid JSON"));
  EXPECT_THAT(error_of(std::string_view("\0", 1)), HasSubstr("invalid JSON"));
}

TEST(Json, ReportsPositionOfTheError) {
  EXPECT_THAT(error_of("{\"a\": 1, \"b\" 2}"), HasSubstr("at byte 13"));
  EXPECT_THAT(error_of("[1, 1e999]"), HasSubstr("at byte"));
  EXPECT_THAT(error_of("[1] x"), HasSubstr("at byte 4"));
}

TEST(Json, NamesPathOfDuplicateKeysAtEveryDepth) {
  EXPECT_THAT(error_of(R"({"a":1,"a":2})"), HasSubstr("duplicate key 'a'"));
  EXPECT_THAT(error_of(R"({"x":[0,{"y":{"k":1,"l":2,"k":3}}]})"), HasSubstr("'x[1].y.k'"));
  EXPECT_THAT(error_of(R"([[{"":1,"":2}]])"), HasSubstr("duplicate key"));
  EXPECT_THAT(error_of(R"({"a":1,"\u0061":2})"), HasSubstr("duplicate key 'a'"));
  EXPECT_THAT(error_of(R"({"a\u0000b":1,"a\u0000c":2})"), "accepted");
  EXPECT_THAT(error_of(R"({"a":{"k":1},"b":{"k":1}})"), "accepted");
}

TEST(Json, FindsDuplicateAmongAMillionKeysWithoutQuadraticWork) {
  std::string text = "{";
  for (int i = 0; i < 1'000'000; ++i) text += "\"k" + std::to_string(i) + "\":0,";
  const double start = cpu_seconds();
  EXPECT_THAT(error_of(text + "\"k777777\":0}"), HasSubstr("duplicate key 'k777777'"));
  // Quadratic time would be hours; the bound leaves room for sanitizers.
  EXPECT_LT(cpu_seconds() - start, 20.0);
}

TEST(Json, AcceptsTheDepthLimitAndRefusesOneMore) {
  EXPECT_EQ(error_of(nested(64, "[", "]")), "accepted");
  EXPECT_THAT(error_of(nested(65, "[", "]")), HasSubstr("nested deeper than 64"));
  EXPECT_EQ(error_of(nested(63, "{\"a\":", "}").insert(63 * 5, "{}")), "accepted");
  EXPECT_THAT(error_of(nested(64, "{\"a\":", "}").insert(64 * 5, "{}")), HasSubstr("nested deeper"));
  EXPECT_THAT(error_of(nested(1'000'000, "[", "]")), HasSubstr("nested deeper"));
  EXPECT_THAT(error_of(nested(65, "[", "]").insert(65, "1")), HasSubstr("nested deeper than 64"));
  EXPECT_EQ(error_of(nested(64, "[", "]").insert(64, "1")), "accepted");
  EXPECT_THAT(error_of(nested(1'000'000, "[", "")), HasSubstr("invalid JSON"));
  EXPECT_EQ(error_of(nested(3, "[", "]"), {.depth_max = 3}), "accepted");
  EXPECT_THAT(error_of(nested(4, "[", "]"), {.depth_max = 3}), HasSubstr("nested deeper than 3"));
  EXPECT_EQ(error_of("1", {.depth_max = 1}), "accepted");
  EXPECT_EQ(error_of("[1]", {.depth_max = 1}), "accepted");
}

TEST(Json, RefusesTextOverTheSizeLimit) {
  EXPECT_THAT(error_of("[1,2,3]", {.bytes_max = 6}), HasSubstr("at most 6"));
  EXPECT_EQ(error_of("[1,2,3]", {.bytes_max = 7}), "accepted");
}

TEST(Json, RefusesNumbersOutOfRange) {
  for (const std::string_view text :
       {"1e999", "-1e999", "18446744073709551616", "-9223372036854775809", "99999999999999999999999999",
        "NaN", "Infinity", "-Infinity", "01", "-", "+1", ".5", "1.", "1e", "0x10", "1e+", "--1", "-01"}) {
    EXPECT_THAT(error_of(text), HasSubstr("invalid JSON")) << text;
    EXPECT_THAT(error_of("[" + std::string(text) + "]"), HasSubstr("invalid JSON")) << text;
  }
  EXPECT_EQ(to_json(*parse_json("[18446744073709551615,-9223372036854775808,9223372036854775808]")),
            "[18446744073709551615,-9223372036854775808,9223372036854775808]");
  EXPECT_EQ(error_of("[1e308,-1e308,1e-999,5e-324]"), "accepted");
}

TEST(Json, RefusesInvalidUtf8AndLoneSurrogates) {
  for (const std::string_view text :
       {"\"\xff\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"", "\"\xe4\xb8\""}) {
    EXPECT_THAT(error_of(text), HasSubstr("UTF-8")) << testing::PrintToString(text);
  }
  for (const std::string_view text : {R"("\ud800")", R"("\udc00")", R"("\ud800\ud800")", R"("\ud800x")",
                                      R"("\ud83d\u0041")", R"("\udc00\ud800")", R"("\u12")", R"("\x41")"}) {
    EXPECT_THAT(error_of(text), HasSubstr("invalid JSON")) << text;
  }
  EXPECT_THAT(error_of("\"a\nb\""), HasSubstr("control character"));
  EXPECT_THAT(error_of(std::string_view("\"a\0b\"", 5)), HasSubstr("invalid JSON"));
}

TEST(Json, EscapesAllControlBytesInStrings) {
  std::string all;
  for (int c = 0; c < 0x80; ++c) all += static_cast<char>(c);
  all += "é宋\u2028\u2029\u0085\u2027\u00a0😀";
  std::string literal;
  append_json_string(literal, all);
  for (const char c : literal) EXPECT_GE(static_cast<unsigned char>(c), 0x20);
  const auto back = parse_json(literal);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(std::string_view(back->as_string()), all);
  EXPECT_THAT(literal, HasSubstr("é宋\\u2028\\u2029\\u0085\u2027\u00a0😀")) << "where clients cut lines";
}

TEST(Json, Utf8CheckFollowsTheUnicodeStandard) {
  EXPECT_TRUE(is_valid_utf8(""));
  EXPECT_TRUE(is_valid_utf8("宋江😀"));
  EXPECT_FALSE(is_valid_utf8("\xed\xa0\x80"));
  EXPECT_FALSE(is_valid_utf8("\xf0\x9f\x98"));
}

TEST(Json, FileErrorsCarryThePath) {
  EXPECT_THAT(std::string(read_json_file("/nonexistent/x.json").status().message()),
              HasSubstr("/nonexistent/x.json: cannot open"));
  const std::string path = testing::TempDir() + "json_test.json";
  std::ofstream(path) << R"({"a":1,"a":2})";
  EXPECT_EQ(std::string(read_json_file(path).status().message()), path + ": invalid JSON: duplicate key 'a'");
  EXPECT_THAT(std::string(read_json_file(path, {.bytes_max = 3}).status().message()),
              HasSubstr("larger than the 3"));
  std::ofstream(path) << R"({"a":1})";
  EXPECT_TRUE(read_json_file(path).ok());
  // Many a tokenizer_config.json has this value for "no limit".
  std::ofstream(path) << R"({
    "model_max_length": 1000000000000000019884624838656,
    "s": "\\\"12345678901234567890123",
    "n": [-9223372036854775809, 18446744073709551615, 1.5e-7, 12345678901234567890123e2]
  })";
  const auto wide = read_json_file(path);
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_EQ(wide->at("model_max_length").as_double(), 1e30);
  EXPECT_EQ(wide->at("s").as_string(), "\\\"12345678901234567890123");
  EXPECT_EQ(wide->at("n").as_array()[0].as_double(), -9223372036854775808.0);
  EXPECT_EQ(wide->at("n").as_array()[2].as_double(), 1.5e-7);
  EXPECT_FALSE(parse_json(R"({"a": 1000000000000000019884624838656})").ok()) << "requests stay strict";
  EXPECT_THAT(std::string(read_json_file(testing::TempDir()).status().message()),
              HasSubstr(testing::TempDir()));
}

}  // namespace troupe::json_test

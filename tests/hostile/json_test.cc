// Everything that JSON and event streams pass takes time in proportion to the text.

#include "common/json/json.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "common/api/api.h"
#include "common/api/sse.h"
#include "common/json/wide_json.h"
#include "tests/hostile/cpu_growth.h"

namespace troupe {
namespace hostile_json_test {

std::string json_string(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

HostileText document(const char* begin, const char* unit, const char* end) {
  return {std::string(begin) + unit, begin, unit, end};
}

// Documents as well as texts: deep, wide, of numbers without an end.
std::vector<HostileText> documents() {
  std::vector<HostileText> all = hostile_texts();
  for (const HostileText& bytes : hostile_bytes()) all.push_back(bytes);
  for (const HostileText& one :
       {document("[0", ",0", "]"), document("[[]", ",[]", "]"), document("{\"a\":[{}", ",{\"a\":1}", "]}"),
        document("[1", "0", "]"), document("[-1", "0", ""), document("[0.1", "0", "e5]"),
        document("[1e1", "0", "]"), document("[\"", "\\n", "\"]"), document("[\"", "\\ud83d\\ude00", "\"]"),
        document("[\"", "\\ud83d", "\"]"), document("[", " ", "]"),
        document("[123456789012345678901234567890", ",123456789012345678901234567890", "]"),
        document("[", "123456789012345678901234567890e", "]")})
    all.push_back(one);
  return all;
}

TEST(HostileTexts, JsonParsers) {
  expect_linear("parse_json", documents(), [](const std::string& text) {
    static_cast<void>(parse_json(text));
    static_cast<void>(parse_json_with_wide_integers(text));
  });
  expect_linear("a string", hostile_texts(), [](const std::string& text) {
    const auto value = parse_json(json_string(text));
    ASSERT_TRUE(value.ok());
    EXPECT_EQ(to_json(*value).empty(), false);
  });
}

// Objects of many keys, alike but for their ends.
TEST(HostileTexts, JsonKeys) {
  expect_linear("keys", hostile_texts(), [](const std::string& text) {
    std::string json = "{";
    for (size_t i = 0; json.size() < text.size(); ++i)
      json += (i == 0 ? "" : ",") + json_string("a key that many have in common " + std::to_string(i)) + ":" +
              (i % 2 == 0 ? "1" : "{}");
    ASSERT_TRUE(parse_json(json + "}").ok());
  });
}

std::string body_of(std::string_view field, std::string_view value) {
  return "{\"model\":\"m\",\"" + std::string(field) + "\":" + std::string(value) + "}";
}

TEST(HostileTexts, RequestBodies) {
  ApiParser parser;
  const auto parse_both = [&](const std::string& body) {
    static_cast<void>(parser.parse_chat(JsonText(body)));
    static_cast<void>(parser.parse_completion(JsonText(body)));
  };
  expect_linear("a body", documents(), parse_both);
  expect_linear("a prompt and a user", hostile_texts(), [&](const std::string& text) {
    parse_both(body_of("prompt", json_string(text)));
    parse_both(body_of("user", json_string(text)));
    parse_both(body_of(json_string(text).substr(1, 100'000), "1"));
  });
  expect_linear("a value of any kind", documents(), [&](const std::string& text) {
    for (const char* field : {"messages", "tools", "stop", "logit_bias", "chat_template_kwargs", "seed"})
      parse_both(body_of(field, text));
  });
  for (const char* unit :
       {R"(,{"role":"user","content":"a"})", R"(,{"role":"assistant","tool_calls":[{"function":{}}]})"}) {
    expect_linear(unit, {{unit, R"({"messages":[{"role":"user","content":"a"})", unit, "]}"}}, parse_both);
  }
  for (const char* unit : {R"(,{"type":"text","text":"a"})", R"(,{"type":"image_url"})"})
    expect_linear(
        unit, {{unit, R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"})", unit, "]}]}"}},
        parse_both);
}

TEST(HostileTexts, EventStreams) {
  std::vector<HostileText> streams = documents();
  for (const char* unit : {"data: a\n", "data: a\n\n", ":\n", "data\r", "event: a\r\n", "id: 1\n\r", "\n\r"})
    streams.push_back({unit, "", unit, "\n\n"});
  for (const size_t piece : {size_t{1}, size_t{100}, size_t{1} << 30}) {
    expect_linear("SSE in pieces of " + std::to_string(piece), streams, [&](const std::string& text) {
      SseParser parser(64u << 20);
      for (size_t at = 0; at < text.size(); at += piece)
        static_cast<void>(parser.feed(std::string_view(text).substr(at, piece), [](const SseEvent&) {}));
    });
  }
}

// Answers as they are written.
TEST(HostileTexts, Answers) {
  expect_linear("answers", hostile_texts(), [](const std::string& text) {
    Choice choice;
    choice.text = text;
    std::vector<TokenLogprob> logprobs(text.size() / 16);
    choice.logprobs = &logprobs;
    AnswerHeader header;
    EXPECT_FALSE(answer_json(header, std::span(&choice, 1), {}).empty());
    EXPECT_FALSE(chunk_json(header, choice, true).empty());
  });
}

}  // namespace hostile_json_test
}  // namespace troupe

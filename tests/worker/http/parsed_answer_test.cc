// Answers whose text has thoughts and calls: what chunks and whole answers say of them, and how they go on at
// another worker.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/api/sse.h"
#include "common/json/json.h"
#include "worker/http/response_builder.h"

namespace troupe::parsed_answer_test {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view kTools =
    R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])";

// The text of one token each, as the engine gives it.
const std::vector<std::string> kTokens = {
    "<think>", "\nHm",         ".\n",       "</think>",  "\n\n",
    "Yes. ",   "<tool_call>",  "{\"name\"", ": \"f\", ", "\"arguments\": {\"a",
    "\": 1}}", "</tool_call>", "\n"};

Answer::Options options_of(const std::vector<std::string>& sent = {}) {
  Answer::Options options;
  options.header = {GenerateRequest::Kind::kChat, "chatcmpl-1", "m", 0};
  options.includes_token_ids = true;
  options.seed = 5;
  options.begun = !sent.empty();
  options.syntax.tools = tool_form("hermes");
  options.syntax.thoughts = thought_form("qwen3");
  options.syntax.schemas = std::make_shared<ToolSchemas>(ToolSchemas::parse(kTools).value());
  for (const std::string& text : sent) options.syntax.sent.emplace_back(text, 1);
  return options;
}

EngineOutput piece_of(size_t token) {
  EngineOutput piece;
  piece.text = kTokens[token];
  piece.ids = {static_cast<TokenId>(token)};
  piece.usage = {7, static_cast<int64_t>(token) + 1, 0};
  if (token + 1 == kTokens.size()) piece.finish = FinishReason::kStop;
  return piece;
}

// The chunks from a token on, by their JSON.
std::vector<std::string> chunks_from(size_t token) {
  Answer answer(options_of({kTokens.begin(), kTokens.begin() + static_cast<ptrdiff_t>(token)}));
  std::string stream;
  for (; token < kTokens.size(); ++token) answer.append_chunks(stream, piece_of(token));
  EXPECT_TRUE(answer.done());
  std::vector<std::string> chunks;
  SseParser parser;
  const Status fed = parser.feed(stream, [&](const SseEvent& event) { chunks.push_back(event.data); });
  EXPECT_TRUE(fed.ok());
  return chunks;
}

TEST(ParsedAnswer, ChunksNameACallOnceAndHoldTheIdsOfWhatSaysNothing) {
  const std::vector<std::string> chunks = chunks_from(0);
  ASSERT_EQ(chunks.size(), 8u) << ::testing::PrintToString(chunks);
  EXPECT_THAT(chunks[0], HasSubstr(R"("delta":{"role":"assistant","content":""})"));
  EXPECT_THAT(chunks[1], HasSubstr(R"("delta":{"reasoning":"Hm","reasoning_content":"Hm"})"));
  EXPECT_THAT(chunks[2], HasSubstr(R"("reasoning":".")"));
  EXPECT_THAT(chunks[3], HasSubstr(R"("delta":{"content":"Yes. "})"));
  EXPECT_THAT(chunks[3], HasSubstr(R"("troupe":{"ids":[3,4,5]})"));
  EXPECT_THAT(chunks[4], HasSubstr(R"("delta":{"tool_calls":[{"index":0,"id":"call_)"));
  EXPECT_THAT(chunks[4], HasSubstr(R"("type":"function","function":{"name":"f","arguments":"{\"a"}}]})"));
  EXPECT_THAT(chunks[4], HasSubstr(R"("troupe":{"ids":[6,7,8,9]})"));
  EXPECT_THAT(chunks[5],
              HasSubstr(R"("delta":{"tool_calls":[{"index":0,"function":{"arguments":"\": 1}"}}]})"));
  EXPECT_THAT(chunks[5], HasSubstr(R"("finish_reason":null)"));
  EXPECT_THAT(chunks[6],
              HasSubstr(R"("delta":{},"logprobs":null,"stop_reason":null,"finish_reason":"tool_calls")"));
  EXPECT_EQ(chunks[7], "[DONE]");
}

TEST(ParsedAnswer, GoesOnWithTheVerySameChunksWhereverItIsCut) {
  const std::vector<std::string> whole = chunks_from(0);
  // The tokens behind each chunk; a resumed stream begins after one, and names its seed again.
  const size_t ends[] = {1, 2, 3, 6, 10, 11};
  for (size_t cut = 0; cut < std::size(ends); ++cut) {
    std::vector<std::string> rest = chunks_from(ends[cut]);
    ASSERT_EQ(rest.size() + cut + 1, whole.size()) << cut;
    const size_t seed = rest[0].find(",\"seed\":5");
    ASSERT_NE(seed, std::string::npos);
    rest[0].erase(seed, 9);
    for (size_t i = 0; i < rest.size(); ++i) EXPECT_EQ(rest[i], whole[cut + 1 + i]) << cut;
  }
}

TEST(ParsedAnswer, WholeHasNoContentWhereThereAreOnlyCalls) {
  Answer answer(options_of());
  for (size_t token = 0; token < kTokens.size(); ++token) {
    EngineOutput piece = piece_of(token);
    if (piece.text == "Yes. ") piece.text.clear();
    answer.collect(std::move(piece));
  }
  const std::string json = answer.whole_json();
  EXPECT_THAT(
      json,
      HasSubstr(R"("content":null,"reasoning":"Hm.","reasoning_content":"Hm.","tool_calls":[{"id":"call_)"));
  EXPECT_THAT(json, HasSubstr(R"("function":{"name":"f","arguments":"{\"a\": 1}"}}]})"));
  EXPECT_THAT(json, HasSubstr(R"("finish_reason":"tool_calls")"));
  EXPECT_THAT(json, HasSubstr(R"("completion_tokens_details":{"reasoning_tokens":4})"));
  EXPECT_THAT(json, Not(HasSubstr("\"index\":0,\"id\"")));
}

TEST(ParsedAnswer, WithoutFormsTheTextIsContent) {
  Answer::Options options = options_of();
  options.syntax = {};
  Answer answer(std::move(options));
  for (size_t token = 0; token < kTokens.size(); ++token) answer.collect(piece_of(token));
  const std::string json = answer.whole_json();
  EXPECT_THAT(json, HasSubstr(R"("content":"<think>\nHm.)"));
  EXPECT_THAT(json, HasSubstr(R"("finish_reason":"stop")"));
  EXPECT_THAT(json, Not(HasSubstr("reasoning")));
}

}  // namespace troupe::parsed_answer_test

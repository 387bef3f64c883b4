// Chunks and answers from pieces in any order of choices, and echoed prompts.

#include "worker/http/response_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "common/api/sse.h"
#include "common/json/json.h"

namespace troupe::answer_test {

using ::testing::ElementsAre;

static EngineOutput piece_of(int32_t choice, std::string text, FinishReason finish,
                             int64_t completion_tokens) {
  EngineOutput piece;
  piece.choice = choice;
  piece.text = std::move(text);
  piece.finish = finish;
  piece.usage = {7, completion_tokens, choice == 0 ? 3 : 6};
  return piece;
}

static Answer::Options options_of(int32_t choice_count) {
  Answer::Options options;
  options.header.kind = GenerateRequest::Kind::kCompletion;
  options.choice_count = choice_count;
  options.usage = ChunkUsage::kNull;
  return options;
}

static bj::value json_of(const std::string& text) {
  const auto value = parse_json(text);
  EXPECT_TRUE(value.ok()) << text;
  return value.ok() ? *value : bj::value();
}

// The chunks of a stream, [DONE] apart.
static std::vector<bj::value> chunks_of(const std::string& stream) {
  std::vector<bj::value> chunks;
  SseParser parser;
  const Status fed = parser.feed(stream, [&](const SseEvent& event) {
    if (event.data != "[DONE]") chunks.push_back(json_of(event.data));
  });
  EXPECT_TRUE(fed.ok()) << stream;
  return chunks;
}

TEST(Answer, InterleavesChoicesAndLastOneEndsTheStream) {
  Answer answer(options_of(2));
  std::string out;
  answer.append_chunks(out, piece_of(1, "b", FinishReason::kNone, 1));
  answer.append_chunks(out, piece_of(0, "a", FinishReason::kStop, 4));
  EXPECT_FALSE(answer.done());
  EXPECT_EQ(out.find("[DONE]"), std::string::npos);
  answer.append_chunks(out, piece_of(1, "", FinishReason::kLength, 5));
  EXPECT_TRUE(answer.done());
  EXPECT_TRUE(out.ends_with(kSseDone));
  EXPECT_NE(out.find(R"("prompt_tokens":7,"completion_tokens":9,"total_tokens":16,)"
                     R"("prompt_tokens_details":{"cached_tokens":3})"),
            std::string::npos)
      << out;
  EXPECT_LT(out.find(R"("index":1,"text":"b")"), out.find(R"("index":0,"text":"a")"));
}

// By the mean over a choice's own tokens; the echoed prompt's say nothing about it. One without a token is
// the last.
TEST(Answer, TellsTheBestOfEachPromptsChoices) {
  Answer::Options options = options_of(3);
  options.prompt_count = 2;
  options.best_count = 2;
  Answer answer(std::move(options));
  const std::vector<std::vector<float>> scores = {{-3}, {-1, -1, -1}, {-2}, {-1}, {-2, -1}, {}};
  for (int32_t choice = 0; choice < 6; ++choice) {
    EngineOutput piece = piece_of(choice, std::to_string(choice), FinishReason::kStop, 1);
    for (const float score : scores[static_cast<size_t>(choice)])
      piece.logprobs.emplace_back().logprob = score;
    piece.stop = choice;
    answer.collect(std::move(piece));
  }
  ASSERT_TRUE(answer.done());
  const bj::value whole = json_of(answer.whole_json());
  std::string texts;
  for (const bj::value& choice : whole.at("choices").as_array()) {
    EXPECT_EQ(choice.at("index"), texts.size());
    EXPECT_TRUE(choice.at("logprobs").is_null());
    EXPECT_EQ(std::to_string(choice.at("stop_reason").to_number<int>()), choice.at("text").as_string());
    texts += choice.at("text").as_string();
  }
  EXPECT_EQ(texts, "1234");
  EXPECT_EQ(whole.at_pointer("/usage/completion_tokens"), 6);
}

TEST(Answer, SendsIdsInEveryPieceSeedInTheFirstAndUsageInTheLast) {
  Answer::Options options = options_of(2);
  options.usage = ChunkUsage::kNone;  // requested by clients, not by gateways
  options.includes_token_ids = true;
  options.seed = 9;
  Answer answer(std::move(options));
  std::string out;
  const auto append = [&](EngineOutput piece, std::vector<TokenId> ids) {
    piece.ids = std::move(ids);
    answer.append_chunks(out, std::move(piece));
  };
  append(piece_of(1, "b", FinishReason::kNone, 1), {31});
  append(piece_of(0, "", FinishReason::kNone, 1), {41});
  append(piece_of(1, "bb", FinishReason::kStop, 3), {32, 33});
  append(piece_of(0, "a", FinishReason::kLength, 2), {42});
  std::vector<std::string> told;
  SseParser parser;
  ASSERT_TRUE(parser
                  .feed(out,
                        [&told](const SseEvent& event) {
                          const size_t at = event.data.find(R"("troupe":)");
                          if (at != std::string::npos) told.push_back(event.data.substr(at));
                        })
                  .ok());
  EXPECT_THAT(told, ElementsAre(R"("troupe":{"ids":[31],"seed":9}})", R"("troupe":{"ids":[41],"seed":9}})",
                                R"("troupe":{"ids":[32,33]}})",
                                R"("troupe":{"ids":[42],"prompt_tokens":7,"completion_tokens":5,)"
                                R"("cached_tokens":3}})"));
  EXPECT_EQ(out.find("\"usage\""), std::string::npos) << out;
}

TEST(Answer, WholeAnswerHasChoicesInOrder) {
  Answer answer(options_of(3));
  for (const int32_t choice : {2, 0, 1}) {
    answer.collect(piece_of(choice, std::to_string(choice), FinishReason::kNone, 1));
    answer.collect(piece_of(choice, "!", FinishReason::kStop, 2));
  }
  ASSERT_TRUE(answer.done());
  const auto json = json_of(answer.whole_json());
  for (int i = 0; i < 3; ++i) {
    const auto& choice = json.at("choices").as_array().at(static_cast<size_t>(i));
    EXPECT_EQ(choice.at("index"), i);
    EXPECT_EQ(choice.at("text").as_string(), std::to_string(i) + "!");
  }
  EXPECT_EQ(json.at_pointer("/usage/completion_tokens"), 6);
  EXPECT_EQ(json.at_pointer("/usage/prompt_tokens"), 7);
}

static TokenLogprob told(std::string bytes, float logprob, int64_t offset) {
  TokenLogprob token;
  token.bytes = std::move(bytes);
  token.logprob = logprob;
  token.text_offset = offset;
  return token;
}

static std::vector<TokenLogprob> prompt_scores() {
  std::vector<TokenLogprob> scores = {told("宋", -1, 0), told("a", -2, 0)};
  scores.front().logprob.reset();
  return scores;
}

TEST(Answer, EchoPrecedesEachChoiceAndShiftsOffsets) {
  auto options = options_of(2);
  options.wants_logprobs = true;
  options.echoes.push_back(EchoedPrompt{"宋a", 2, {0, 1}});
  Answer answer(options);
  for (const int32_t choice : {0, 1}) {
    auto first = piece_of(choice, "x", FinishReason::kNone, 1);
    if (choice == 0) first.prompt_logprobs = prompt_scores();
    first.logprobs = {told("x", -3, 0)};
    answer.collect(std::move(first));
    auto second = piece_of(choice, "y", FinishReason::kLength, 2);
    second.logprobs = {told("y", -4, 1)};
    answer.collect(std::move(second));
  }
  const auto json = json_of(answer.whole_json());
  for (const auto& choice : json.at("choices").as_array()) {
    EXPECT_EQ(choice.at("text"), "宋axy");
    const auto& logprobs = choice.at("logprobs");
    EXPECT_EQ(logprobs.at("tokens"), bj::value({"宋", "a", "x", "y"}));
    EXPECT_EQ(logprobs.at("text_offset"), bj::value({0, 1, 2, 3}));
    EXPECT_TRUE(logprobs.at("token_logprobs").as_array().at(0).is_null());
  }
}

TEST(Answer, ChoicesOfSeveralPromptsHaveTheirOwnEchoAndUsageCountsAllPrompts) {
  auto options = options_of(2);
  options.prompt_count = 2;
  options.wants_logprobs = true;
  options.echoes = {EchoedPrompt{"宋a", 2, {0, 1}}, EchoedPrompt{"b", 1, {0}}};
  Answer answer(options);
  for (const int32_t choice : {3, 2, 0, 1}) {  // 3 waits for 2, which scores the second prompt
    auto piece = piece_of(choice, "x" + std::to_string(choice), FinishReason::kStop, 1);
    if (choice == 0) piece.prompt_logprobs = prompt_scores();
    if (choice == 2) piece.prompt_logprobs = {told("b", -5, 0)};
    if (choice >= 2) piece.usage = {20, 1, choice == 2 ? 8 : 16};
    piece.logprobs = {told("x", -3, 0)};
    answer.collect(std::move(piece));
  }
  ASSERT_TRUE(answer.done());
  const auto json = json_of(answer.whole_json());
  std::vector<std::string> texts;
  for (const auto& choice : json.at("choices").as_array()) texts.emplace_back(choice.at("text").as_string());
  EXPECT_EQ(texts, (std::vector<std::string>{"宋ax0", "宋ax1", "bx2", "bx3"}));
  EXPECT_EQ(json.at_pointer("/choices/3/logprobs/text_offset"), bj::value({0, 1}));
  EXPECT_EQ(json.at_pointer("/choices/3/logprobs/token_logprobs/0"), -5);
  EXPECT_EQ(json.at_pointer("/usage/prompt_tokens"), 27);
  EXPECT_EQ(json.at_pointer("/usage/completion_tokens"), 4);
  EXPECT_EQ(json.at_pointer("/usage/prompt_tokens_details/cached_tokens"), 11);
}

TEST(Answer, EveryChunkHasTheUsageSoFarWhereItIsAskedFor) {
  auto options = options_of(1);
  options.usage = ChunkUsage::kRunning;
  Answer answer(options);
  std::string out;
  answer.append_chunks(out, piece_of(0, "a", FinishReason::kNone, 1));
  answer.append_chunks(out, piece_of(0, "b", FinishReason::kStop, 2));
  std::vector<int64_t> counts;
  for (const bj::value& chunk : chunks_of(out))
    counts.push_back(chunk.at_pointer("/usage/completion_tokens").as_int64());
  EXPECT_EQ(counts, (std::vector<int64_t>{1, 2, 2})) << out;
}

// The prompt is scored for choice 0; other choices, with a cached prompt, may be faster.
TEST(Answer, OtherChoicesWaitForPromptScores) {
  auto options = options_of(3);
  options.wants_logprobs = true;
  options.echoes.push_back(EchoedPrompt{"宋a", 2, {0, 1}});
  Answer answer(options);
  std::string out;
  answer.append_chunks(out, piece_of(2, "z", FinishReason::kNone, 1));
  answer.append_chunks(out, piece_of(1, "y", FinishReason::kStop, 1));
  answer.append_chunks(out, piece_of(2, "!", FinishReason::kStop, 2));
  EXPECT_EQ(out, "");
  auto first = piece_of(0, "x", FinishReason::kStop, 1);
  first.prompt_logprobs = prompt_scores();
  answer.append_chunks(out, std::move(first));
  EXPECT_TRUE(answer.done());
  EXPECT_TRUE(out.ends_with(kSseDone));
  std::vector<std::string> texts(3);
  std::vector<int> scored(3);
  for (const bj::value& chunk : chunks_of(out)) {
    for (const auto& choice : chunk.at("choices").as_array()) {
      const auto index = choice.at("index").to_number<size_t>();
      texts[index] += choice.at("text").as_string();
      const auto* logprobs = choice.at("logprobs").if_object();
      if (logprobs != nullptr && logprobs->at("tokens") == bj::value({"宋", "a"})) ++scored[index];
    }
  }
  EXPECT_THAT(texts, ElementsAre("宋ax", "宋ay", "宋az!"));
  EXPECT_THAT(scored, ElementsAre(1, 1, 1));
}

TEST(Echo, OffsetsMarkStartsOfTokens) {
  const auto tokenizer = std::move(Tokenizer::load(TROUPE_SOURCE_DIR "/configs/demo-model")).value();
  const std::string text = "<|im_start|>user\nHé, 宋江!😀 end<|im_end|>";
  const auto ids = tokenizer->encode(text, false).value();
  const auto echo = echo_prompt(*tokenizer, &text, ids, true);
  EXPECT_EQ(echo.text, text);
  ASSERT_EQ(echo.offsets.size(), ids.size());
  std::string so_far;
  for (size_t i = 0; i < ids.size(); ++i) {
    // Counts the characters that are whole before the token begins.
    int64_t whole = 0;
    for (size_t at = 0, next = 0; at < so_far.size(); at = next, ++whole) {
      const auto lead = static_cast<unsigned char>(so_far[at]);
      next = at + (lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4);
      if (next > so_far.size()) break;
    }
    EXPECT_EQ(echo.offsets[i], whole) << i;
    so_far += tokenizer->token_bytes(ids[i], false);
  }
  EXPECT_EQ(so_far, text);
  const auto from_ids = echo_prompt(*tokenizer, nullptr, ids, true);
  EXPECT_EQ(from_ids.text, text);
  EXPECT_EQ(from_ids.offsets, echo.offsets);
  EXPECT_EQ(from_ids.char_count, echo.offsets.back() + 10);  // <|im_end|>
  EXPECT_TRUE(echo_prompt(*tokenizer, &text, ids, false).offsets.empty());
}

// SentencePiece puts a space before a text, and Transformers one before each stretch between special tokens.
TEST(Echo, SpaceBeforeATextTakesNoRoom) {
  std::ifstream file(TROUPE_SOURCE_DIR "/tests/fixtures/tokenizers/bpe.model", std::ios::binary);
  const std::string model{std::istreambuf_iterator<char>(file), {}};
  const bj::object config{{"bos_token", "<s>"}, {"add_bos_token", true}, {"eos_token", "</s>"}};
  const auto loaded = Tokenizer::from_sentencepiece(model, config, "bpe.model");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const Tokenizer& tokenizer = **loaded;
  for (const std::string text :
       {"The clock maker", " with a space", "   with three", "é宋江 is here", "<0x41> "}) {
    const auto ids = tokenizer.encode(text, true).value();
    ASSERT_TRUE(tokenizer.is_special(ids.front()));
    const auto offsets = echo_prompt(tokenizer, &text, ids, true).offsets;
    ASSERT_EQ(offsets.size(), ids.size());
    EXPECT_EQ(offsets[0], 0);
    std::string before;
    for (size_t i = 1; i < ids.size(); ++i) {
      // Counts whole characters before the token, less the one that is not in the text.
      int64_t chars = 0;
      for (size_t at = 0; at < before.size(); ++chars) {
        const auto lead = static_cast<unsigned char>(before[at]);
        at += lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
        if (at > before.size()) break;
      }
      EXPECT_EQ(offsets[i], std::max<int64_t>(chars - 1, 0)) << text << ", token " << i;
      before += tokenizer.token_bytes(ids[i], false);
    }
    EXPECT_EQ(before, " " + text);
  }
  const std::string text = "a clock</s>the maker";
  const auto ids = tokenizer.encode(text, true).value();
  const auto offsets = echo_prompt(tokenizer, &text, ids, true).offsets;
  const size_t end = static_cast<size_t>(
      std::find(ids.begin(), ids.end(), tokenizer.token_to_id("</s>").value()) - ids.begin());
  ASSERT_LT(end + 1, ids.size());
  EXPECT_EQ(offsets[end], 7);
  EXPECT_EQ(offsets[end + 1], 11);
  ASSERT_TRUE(tokenizer.token_bytes(ids[end + 1], false).starts_with(' '));
}

TEST(Echo, InsertedTokensTakeNoRoom) {
  const auto tokenizer = std::move(Tokenizer::load(TROUPE_SOURCE_DIR "/configs/demo-model")).value();
  const std::string text = "abc";
  std::vector<TokenId> ids = tokenizer->encode(text, false).value();
  const size_t count = ids.size();
  ids.insert(ids.begin(), tokenizer->token_to_id("<|im_start|>").value());
  const auto echo = echo_prompt(*tokenizer, &text, ids, true);
  EXPECT_EQ(echo.text, "abc");
  ASSERT_EQ(echo.offsets.size(), count + 1);
  EXPECT_EQ(echo.offsets[0], 0);
  EXPECT_EQ(echo.offsets[1], 0);
}

}  // namespace troupe::answer_test

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/api/api.h"
#include "common/api/cache_report.h"
#include "common/json/json.h"

namespace troupe::api_write_test {

using ::testing::EndsWith;
using ::testing::HasSubstr;

static const AnswerHeader kChat = {GenerateRequest::Kind::kChat, "chatcmpl-1", "m\"x", 17};
static const AnswerHeader kCompletion = {GenerateRequest::Kind::kCompletion, "cmpl-1", "m", 17};

static Choice choice_of(std::string_view text, FinishReason finish) {
  Choice choice;
  choice.text = text;
  choice.finish = finish;
  return choice;
}
static std::string whole_of(const AnswerHeader& header, const Choice& choice, const Usage& usage) {
  return answer_json(header, {&choice, 1}, usage);
}

TEST(ApiWrite, WritesWholeChatAnswer) {
  EXPECT_EQ(
      whole_of(kChat, choice_of("宋\n", FinishReason::kStop), {10, 2, 8}),
      R"({"id":"chatcmpl-1","object":"chat.completion","created":17,"model":"m\"x","choices":[{"index":0,)"
      R"("message":{"role":"assistant","content":"宋\n"},"logprobs":null,"stop_reason":null,"finish_reason":"stop"}],)"
      R"("usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12,)"
      R"("prompt_tokens_details":{"cached_tokens":8}}})");
}

TEST(ApiWrite, WritesWholeCompletion) {
  EXPECT_EQ(
      whole_of(kCompletion, choice_of("x", FinishReason::kLength), {1, 1, 0}),
      R"({"id":"cmpl-1","object":"text_completion","created":17,"model":"m","choices":[{"index":0,"text":"x",)"
      R"("logprobs":null,"stop_reason":null,"finish_reason":"length"}],"usage":{"prompt_tokens":1,"completion_tokens":1,)"
      R"("total_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}})");
}

TEST(ApiWrite, ChatChunksBeginWithRoleAndEndWithReason) {
  const std::string head =
      R"({"id":"chatcmpl-1","object":"chat.completion.chunk","created":17,"model":"m\"x",)";
  EXPECT_EQ(chunk_json(kChat, choice_of("", FinishReason::kNone), true),
            head + R"("choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,)"
                   R"("finish_reason":null}]})");
  EXPECT_EQ(chunk_json(kChat, choice_of("a", FinishReason::kNone), false, ChunkUsage::kNull),
            head + R"("choices":[{"index":0,"delta":{"content":"a"},"logprobs":null,"finish_reason":null}],)"
                   R"("usage":null})");
  EXPECT_EQ(
      chunk_json(kChat, choice_of("", FinishReason::kLength), false),
      head +
          R"("choices":[{"index":0,"delta":{},"logprobs":null,"stop_reason":null,"finish_reason":"length"}]})");
  EXPECT_EQ(usage_chunk_json(kChat, {3, 4, 1}),
            head + R"("choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,)"
                   R"("prompt_tokens_details":{"cached_tokens":1}}})");
}

TEST(ApiWrite, CompletionChunksCarryText) {
  EXPECT_THAT(
      chunk_json(kCompletion, choice_of("a", FinishReason::kNone), true),
      HasSubstr(R"("object":"text_completion","created":17,"model":"m","choices":[{"index":0,"text":"a",)"
                R"("logprobs":null,"finish_reason":null}]})"));
}

TEST(ApiWrite, ChunksEndWithIdsAndSeed) {
  const std::vector<int32_t> ids = {5, 17}, none;
  Choice piece = choice_of("a", FinishReason::kNone);
  piece.ids = &ids;
  EXPECT_THAT(chunk_json(kChat, piece, false, ChunkUsage::kNull),
              EndsWith(R"(}],"usage":null,"troupe":{"ids":[5,17]}})"));
  piece.seed = ~uint64_t{0};
  EXPECT_THAT(chunk_json(kCompletion, piece, true),
              EndsWith(R"(}],"troupe":{"ids":[5,17],"seed":18446744073709551615}})"));
  piece = choice_of("", FinishReason::kStop);
  piece.ids = &none;
  EXPECT_THAT(chunk_json(kChat, piece, false), EndsWith(R"("stop"}],"troupe":{"ids":[]}})"));
}

TEST(ApiWrite, WritersEmitStrictJsonOnOneLineForAnyText) {
  std::string text;
  for (int c = 0; c < 128; ++c) text += static_cast<char>(c);
  text += "\u2028é😀";
  const AnswerHeader hostile = {GenerateRequest::Kind::kChat, "a\"\n", text, -5};
  for (const std::string& json :
       {whole_of(hostile, choice_of(text, FinishReason::kStop), {}), usage_chunk_json(hostile, {}),
        chunk_json(hostile, choice_of(text, FinishReason::kNone), true, ChunkUsage::kNull),
        models_json({{text, 1, text, 5}}), load_report_json({.epoch = text})}) {
    EXPECT_TRUE(parse_json(json).ok()) << json;
    EXPECT_EQ(json.find_first_of("\r\n"), std::string::npos);
  }
}

// A gateway looks for the finish reason at a chunk's end, so what may be long comes before it.
TEST(ApiWrite, SaysWhatAnAnswerEndedAt) {
  Choice choice = choice_of("a", FinishReason::kStop);
  const StopReason text = std::string("\nAnna\":"), token = 17;
  choice.stop = &text;
  EXPECT_THAT(chunk_json(kChat, choice, false),
              EndsWith(R"("stop_reason":"\nAnna\":","finish_reason":"stop"}]})"));
  choice.stop = &token;
  EXPECT_THAT(whole_of(kCompletion, choice, {}), HasSubstr(R"("stop_reason":17,"finish_reason":"stop"}])"));
  choice.finish = FinishReason::kNone;
  EXPECT_THAT(chunk_json(kChat, choice, false), EndsWith(R"("logprobs":null,"finish_reason":null}]})"));
}

TEST(ApiWrite, NumbersChoicesAndSumsTheirUsage) {
  const std::vector<Choice> choices = {{.index = 0, .text = "a", .finish = FinishReason::kStop},
                                       {.index = 1, .text = "b", .finish = FinishReason::kLength}};
  EXPECT_THAT(
      answer_json(kChat, choices, {3, 9, 0}),
      HasSubstr(
          R"("choices":[{"index":0,"message":{"role":"assistant","content":"a"},"logprobs":null,)"
          R"("stop_reason":null,"finish_reason":"stop"},{"index":1,"message":{"role":"assistant","content":"b"},)"
          R"("logprobs":null,"stop_reason":null,"finish_reason":"length"}],"usage":{"prompt_tokens":3,)"
          R"("completion_tokens":9,"total_tokens":12)"));
  EXPECT_THAT(chunk_json(kChat, choices[1], true),
              HasSubstr(R"("choices":[{"index":1,"delta":{"role":"assistant","content":"b"})"));
}

// Three tokens: plain text, half a character, and one missing from its alternatives.
static std::vector<TokenLogprob> some_logprobs() {
  return {{"宋", -0.5f, {{"宋", -0.5f}, {"\xe4\xbd", -1.25f}}, 0},
          {"\xe4\xbd", std::nullopt, {}, 1},
          {"\"", -1e30f, {{"a", -0.25f}}, 2}};
}

TEST(ApiWrite, ChatLogprobsHoldBytesAndAlternatives) {
  const auto logprobs = some_logprobs();
  Choice choice = choice_of("宋", FinishReason::kNone);
  choice.logprobs = &logprobs;
  EXPECT_THAT(
      chunk_json(kChat, choice, false),
      HasSubstr(
          R"("delta":{"content":"宋"},"logprobs":{"content":[{"token":"宋","logprob":-0.5,"bytes":[229,174,139],)"
          R"("top_logprobs":[{"token":"宋","logprob":-0.5,"bytes":[229,174,139]},)"
          R"({"token":"bytes:\\xe4\\xbd","logprob":-1.25,"bytes":[228,189]}]},)"
          R"({"token":"bytes:\\xe4\\xbd","logprob":null,"bytes":[228,189],"top_logprobs":[]},)"
          R"({"token":"\"","logprob":-9999,"bytes":[34],"top_logprobs":[{"token":"a","logprob":-0.25,"bytes":[97]}]}],)"
          R"("refusal":null},"finish_reason":null}]})"));
  const std::vector<TokenLogprob> none;
  choice.logprobs = &none;
  EXPECT_THAT(whole_of(kChat, choice, {}), HasSubstr(R"("logprobs":{"content":[],"refusal":null})"));
}

TEST(ApiWrite, CompletionLogprobsAreFourListsWithTheTokenInTop) {
  const auto logprobs = some_logprobs();
  Choice choice = choice_of("宋", FinishReason::kStop);
  choice.logprobs = &logprobs;
  EXPECT_THAT(
      whole_of(kCompletion, choice, {}),
      HasSubstr(R"("logprobs":{"tokens":["宋","bytes:\\xe4\\xbd","\""],"token_logprobs":[-0.5,null,-9999],)"
                R"("top_logprobs":[{"宋":-0.5,"bytes:\\xe4\\xbd":-1.25},null,{"a":-0.25,"\"":-9999}],)"
                R"("text_offset":[0,1,2]})"));
}

TEST(ApiWrite, CompletionTopLogprobsHaveUniqueKeys) {
  const std::vector<TokenLogprob> logprobs = {{"a", -2.0f, {{"a", -0.5f}, {"b", -1.0f}, {"a", -2.0f}}, 0}};
  Choice choice = choice_of("a", FinishReason::kStop);
  choice.logprobs = &logprobs;
  const std::string json = whole_of(kCompletion, choice, {});
  EXPECT_TRUE(parse_json(json).ok()) << json;
  EXPECT_THAT(json, HasSubstr(R"("top_logprobs":[{"a":-0.5,"b":-1}])"));
}

TEST(ApiPeer, ContextsAreReadByWhateverNameAServerHas) {
  const auto models = parse_models(
      R"({"data":[{"id":"vllm","max_model_len":4096,"context_length":9},)"
      R"({"id":"llama.cpp","meta":{"n_vocab":5,"n_ctx_train":131072}},)"
      R"({"id":"slots","meta":{"n_ctx":8192,"n_ctx_train":131072}},{"id":"router","context_length":32768},)"
      R"({"id":"cloud","context_window":1000},{"id":"odd","meta":7,"context_length":"long"},)"
      R"({"id":"less","context_length":-5}]})");
  ASSERT_TRUE(models.ok());
  std::vector<int64_t> contexts;
  for (const ModelCard& card : models.value()) contexts.push_back(card.max_model_len);
  EXPECT_EQ(contexts, (std::vector<int64_t>{4096, 0, 8192, 32768, 1000, 0, 0}));
}

TEST(ApiPeer, UsageBeyondAnyAnswersIsNotTaken) {
  const auto most = parse_usage(R"({"prompt_tokens":2147483647,"completion_tokens":2147483647})");
  ASSERT_TRUE(most.has_value());
  EXPECT_EQ(most->prompt_tokens, 2147483647);
  EXPECT_EQ(most->completion_tokens, 2147483647);
  EXPECT_FALSE(parse_usage(R"({"prompt_tokens":2147483648,"completion_tokens":1})").has_value());
  const auto odd = parse_usage(R"({"prompt_tokens":5,"completion_tokens":9223372036854775807})");
  ASSERT_TRUE(odd.has_value());
  EXPECT_EQ(odd->completion_tokens, 0);
}

TEST(ApiPeer, UsageOfOtherApisIsReadInTheirNames) {
  const auto responses = parse_usage(
      R"({"input_tokens":330,"input_tokens_details":{"cached_tokens":5},"output_tokens":77,"total_tokens":407})");
  ASSERT_TRUE(responses.has_value());
  EXPECT_EQ(responses->prompt_tokens, 330);
  EXPECT_EQ(responses->completion_tokens, 77);
  EXPECT_EQ(responses->cached_tokens, 5);
  const auto messages = parse_usage(
      R"({"input_tokens":3,"cache_read_input_tokens":20,"cache_creation_input_tokens":4,"output_tokens":1})");
  ASSERT_TRUE(messages.has_value());
  EXPECT_EQ(messages->prompt_tokens, 27);
  EXPECT_EQ(messages->cached_tokens, 20);
  EXPECT_FALSE(messages->answer_only);
  const auto no_cache = parse_usage(R"({"input_tokens":3,"cache_read_input_tokens":null,"output_tokens":1})");
  ASSERT_TRUE(no_cache.has_value());
  EXPECT_EQ(no_cache->prompt_tokens, 3);
  EXPECT_FALSE(no_cache->cached_tokens.has_value());
  const auto later = parse_usage(R"({"output_tokens":77})");
  ASSERT_TRUE(later.has_value());
  EXPECT_TRUE(later->answer_only);
  EXPECT_EQ(later->completion_tokens, 77);
  EXPECT_FALSE(parse_usage(R"({"type":"duration","seconds":3})").has_value());
  EXPECT_FALSE(parse_usage(R"({"input_tokens":2147483647,"cache_read_input_tokens":1})").has_value());
}

TEST(ApiPeer, CountsOfALoadReportAreBounded) {
  const std::string body =
      R"({"epoch":"e","ready":true,"running":9223372036854775807,"kv_blocks_total":9223372036854775807,)"
      R"("block_size":9223372036854775807,"kv_blocks_cached":9223372036854775807})";
  CacheReport cache;
  const auto report = parse_load_report(body, cache);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report.value().running, 100'000'000'000'000);
  EXPECT_EQ(report.value().block_size, 65'536);
  int64_t tokens = 0;
  EXPECT_FALSE(__builtin_mul_overflow(report.value().kv_blocks_total, report.value().block_size, &tokens));
  EXPECT_FALSE(__builtin_mul_overflow(cache.kv_blocks_cached, 65'536, &tokens));
}

TEST(ApiPeer, ModelsRoundTrip) {
  const auto models = parse_models(models_json({{"a", 5, "troupe", 2048}, {"b", 6, "x", 0}}));
  ASSERT_TRUE(models.ok()) << models.error().message;
  ASSERT_EQ(models.value().size(), 2u);
  EXPECT_EQ(models.value()[0].id, "a");
  EXPECT_EQ(models.value()[0].created_s, 5);
  EXPECT_EQ(models.value()[0].max_model_len, 2048);
  EXPECT_EQ(models.value()[1].owned_by, "x");
  EXPECT_EQ(models.value()[1].max_model_len, 0);
  EXPECT_EQ(models_json({}), R"({"object":"list","data":[]})");
}

TEST(ApiPeer, ReadsVllmsModelList) {
  const auto models = parse_models(
      R"({"object":"list","data":[{"id":"Qwen/Qwen2.5","object":"model","created":1700000000,"owned_by":"vllm",)"
      R"("root":"/m","parent":null,"max_model_len":32768,"permission":[{"id":"p"}]},{"id":"bare","max_model_len":null}]})");
  ASSERT_TRUE(models.ok()) << models.error().message;
  EXPECT_EQ(models.value()[0].max_model_len, 32768);
  EXPECT_EQ(models.value()[1].id, "bare");
  EXPECT_EQ(models.value()[1].created_s, 0);
}

TEST(ApiPeer, RefusesInvalidModelLists) {
  for (const std::string_view body :
       {"", "[]", "{}", R"({"data":{}})", R"({"data":[5]})", R"({"data":[{}]})", R"({"data":[{"id":""}]})",
        R"({"data":[{"id":5}]})", R"({"data":[{"id":"a","id":"b"}]})"}) {
    EXPECT_FALSE(parse_models(body).ok()) << body;
  }
  EXPECT_EQ(parse_models(R"({"data":[7,{"id":5}]})").error().param, "data[0].id");
}

// One odd entry says nothing about the others.
TEST(ApiPeer, OddEntriesOfAModelListAreLeftOut) {
  const auto models = parse_models(
      R"({"data":[{"id":"a"},5,null,{"id":7},{"object":"model"},{"id":""},)"
      R"({"id":"b","max_model_len":"4096","created":1.5,"owned_by":["x"]},)"
      R"({"id":"c","max_model_len":-1,"created":"2024-01-01"},{"id":"d","max_model_len":"4k","context_length":9}]})");
  ASSERT_TRUE(models.ok()) << models.error().message;
  std::string all;
  for (const ModelCard& card : models.value()) all += card.id + std::to_string(card.max_model_len) + " ";
  EXPECT_EQ(all, "a0 b4096 c0 d9 ");
  EXPECT_EQ(models.value()[1].owned_by, "");
  EXPECT_EQ(models.value()[2].created_s, 0);
}

TEST(ApiPeer, LoadReportsRoundTrip) {
  const LoadReport::SetWork work = {hash_bytes("Song Jiang"), 8, 9};
  const LoadReport report = {"e1", true, 1, 2, 3, 4, 5, 6, 2, 16, 7, {work, {hash_bytes("Newton"), 0, 0}}};
  const auto back = parse_load_report(load_report_json(report));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back.value().epoch, "e1");
  EXPECT_TRUE(back.value().ready);
  EXPECT_EQ(back.value().running, 1);
  EXPECT_EQ(back.value().waiting, 2);
  EXPECT_EQ(back.value().pending_prefill_tokens, 3);
  EXPECT_EQ(back.value().work_tokens_total, 4);
  EXPECT_EQ(back.value().kv_blocks_total, 5);
  EXPECT_EQ(back.value().kv_blocks_free, 6);
  EXPECT_EQ(back.value().kv_blocks_pinned, 2);
  EXPECT_EQ(back.value().block_size, 16);
  EXPECT_EQ(back.value().max_num_seqs, 7);
  EXPECT_EQ(back.value().sets, report.sets);
  CacheReport cache{4};
  EXPECT_EQ(parse_load_report(load_report_json(report, cache), cache).value().sets, report.sets);
  EXPECT_EQ(cache.kv_blocks_cached, 4);
  EXPECT_TRUE(parse_load_report(load_report_json(report), cache).ok());
  EXPECT_EQ(cache.kv_blocks_cached, -1) << "an older worker";
}

TEST(ApiPeer, ModelOfAPathMayHaveSlashes) {
  EXPECT_EQ(model_of_path("/v1/models/demo-model"), "demo-model");
  EXPECT_EQ(model_of_path("/v1/models/Qwen/Qwen2.5-7B"), "Qwen/Qwen2.5-7B");
  EXPECT_EQ(model_of_path("/v1/models/Qwen%2fQwen2.5-7B%20x"), "Qwen/Qwen2.5-7B x");
  EXPECT_EQ(model_of_path("/v1/models/100%"), "100%");
  EXPECT_EQ(model_of_path("/v1/models/a%2"), "a%2");
  EXPECT_EQ(model_of_path("/v1/models/a%+2b"), "a%+2b");
  EXPECT_EQ(model_of_path("/v1/models/"), "");
  EXPECT_EQ(model_of_path("/v1/models"), "");
  EXPECT_EQ(model_of_path("/v1/modelsx"), "");
}

TEST(ApiPeer, RequiresEpochReadinessAndNonNegativeCountsInLoadReports) {
  EXPECT_TRUE(parse_load_report(R"({"epoch":"e","ready":false,"later_addition":[1]})").ok());
  EXPECT_EQ(parse_load_report(R"({"ready":true})").error().param, "epoch");
  EXPECT_EQ(parse_load_report(R"({"epoch":"e"})").error().param, "ready");
  EXPECT_EQ(parse_load_report(R"({"epoch":"e","ready":1})").error().param, "ready");
  EXPECT_EQ(parse_load_report(R"({"epoch":"e","ready":true,"running":-1})").error().param, "running");
  EXPECT_EQ(parse_load_report(R"({"epoch":"e","ready":true,"sets":"1"})").error().param, "sets");
  const std::string begin = R"({"epoch":"e","ready":true,"sets":[)";
  EXPECT_EQ(parse_load_report(begin + R"({"set":"abc"}]})").error().param, "sets[0].set");
  EXPECT_EQ(parse_load_report(begin + R"(5]})").error().param, "sets[0]");
  EXPECT_FALSE(parse_load_report("[]").ok());
}

TEST(ApiWrite, CallsAndReasoningStandBesideTheText) {
  const std::vector<ToolCall> calls = {{0, "call_1", "f", "{\"a\":1}"}, {1, "call_2", "g", "{}"}};
  Choice choice = choice_of("", FinishReason::kStop);
  choice.reasoning = "h\"m";
  choice.calls = calls;
  choice.has_calls = true;
  const std::string whole = whole_of(kChat, choice, {3, 4, 1, 2});
  EXPECT_THAT(
      whole,
      HasSubstr(
          R"("message":{"role":"assistant","content":null,"reasoning":"h\"m","reasoning_content":"h\"m",)"
          R"("tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},)"
          R"({"id":"call_2","type":"function","function":{"name":"g","arguments":"{}"}}]},"logprobs":null,)"
          R"("stop_reason":null,"finish_reason":"tool_calls"})"));
  EXPECT_THAT(whole, HasSubstr(R"("prompt_tokens_details":{"cached_tokens":1},)"
                               R"("completion_tokens_details":{"reasoning_tokens":2}}})"));
  EXPECT_TRUE(parse_json(whole).ok());

  const std::vector<ToolCall> pieces = {{1, "", "", "{\"b"}};
  Choice piece = choice_of("t", FinishReason::kLength);
  piece.calls = pieces;
  piece.has_calls = true;
  EXPECT_THAT(
      chunk_json(kChat, piece, false),
      HasSubstr(R"("delta":{"content":"t","tool_calls":[{"index":1,"function":{"arguments":"{\"b"}}]},)"
                R"("logprobs":null,"stop_reason":null,"finish_reason":"length"}])"));
  piece.text = {};
  EXPECT_THAT(chunk_json(kChat, piece, true),
              HasSubstr(R"("delta":{"role":"assistant","tool_calls":[{"index":1,)"));
}

}  // namespace troupe::api_write_test

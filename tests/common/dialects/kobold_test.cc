// KoboldAI's, text-generation-webui's, tabbyAPI's and llama.cpp's forms, without sockets.

#include "common/dialects/kobold/kobold.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/dialects/speak.h"

namespace troupe {
namespace {

using dialects_test::core_request;
using dialects_test::refusal;
using dialects_test::said;
using dialects_test::translate;
using ::testing::ElementsAre;

constexpr std::string_view kGenerate = "/api/v1/generate";

constexpr std::string_view kStream =
    "data: "
    "{\"id\":\"cmpl-1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\"Ha\",\"finish_reason\":null}]}"
    "\n\n"
    "data: {\"id\":\"cmpl-1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\"! "
    "é\",\"finish_reason\":\"length\"}]}\n\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";

TEST(KoboldRequest, HasKoboldcppsNames) {
  const GenerateRequest request = core_request(kGenerate, R"({
    "prompt": " Hi", "memory": "Card.", "max_length": 20, "max_context_length": 100,
        "temperature": 0.7, "top_k": 5,
    "top_a": 0.1, "typical": 0.9, "tfs": 0.95, "min_p": 0.05, "rep_pen": 1.1, "rep_pen_range": 64,
        "rep_pen_slope": 1,
    "sampler_order": [6, 0, 1, 3, 4, 2, 5], "stop_sequence": ["\nYou:"], "trim_stop": true, "genkey": "KCPP1",
    "use_default_badwordsids": true, "sampler_seed": 7, "quiet": true, "n": 1, "banned_tokens": ["shiver"],
    "dry_multiplier": 0, "dry_sequence_breakers": [], "mirostat": 0, "render_special": false,
        "images": []})");
  EXPECT_EQ(std::get<std::string>(request.prompt), "Card. Hi");
  EXPECT_EQ(request.kept_prompt_bytes, 5);
  EXPECT_EQ(request.max_tokens, 20);
  EXPECT_EQ(request.context_tokens_max, 100);
  EXPECT_EQ(request.repetition_penalty, 1.1);
  EXPECT_EQ(request.seed, 7u);
  EXPECT_THAT(request.stop, ElementsAre("\nYou:"));
  EXPECT_THAT(request.banned_strings, ElementsAre("shiver"));
  EXPECT_TRUE(request.stream);  // collected, so that it can be looked at
}

TEST(KoboldRequest, HasItsOwnDefaults) {
  const GenerateRequest request = core_request(kGenerate, R"({"prompt": "Hi"})");
  EXPECT_EQ(request.max_tokens, dialect::kobold::kAnswerTokens);
  EXPECT_GT(request.context_tokens_max, 1 << 30);
}

TEST(KoboldRequest, AFlagThatSaysTheOppositeIsRefusedInItsOwnWords) {
  const AnswerError error = refusal(kGenerate, R"({"prompt": "x", "trim_stop": false})");
  EXPECT_EQ(error.message, "'trim_stop' is not supported here; leave it out or set it to true.");
}

TEST(Dialects, APersonaIsRefusedWhereTokensAreCounted) {
  const std::pair<std::string_view, std::string> cases[] = {
      {"/v1/messages/count_tokens", R"({"messages": [{"role": "user", "content": "x"}], "persona": "mira"})"},
      {"/v1/token/encode", R"({"text": "x", "persona": "mira"})"},
      {"/api/extra/tokencount", R"({"prompt": "x", "persona": "mira"})"},
  };
  for (const auto& [path, body] : cases) {
    const AnswerError error = refusal(path, body);
    EXPECT_EQ(error.status, 400) << path;
    EXPECT_EQ(error.param, "persona") << path;
  }
}

TEST(KoboldRequest, ErrorsNameTheClientsField) {
  const std::pair<std::string, std::string> cases[] = {
      {"{}", "prompt"},
      {R"({"prompt": 3})", "prompt"},
      {R"({"prompt": "x", "memory": 3})", "memory"},
      {R"({"prompt": "x", "genkey": 3})", "genkey"},
      {R"({"prompt": "x", "max_length": -1})", "max_length"},
      {R"({"prompt": "x", "max_context_length": "x"})", "max_context_length"},
      {R"({"prompt": "x", "trim_stop": false})", "trim_stop"},
      {R"({"prompt": "x", "images": ["data"]})", "images"},
      {R"({"prompt": "x", "stop_sequence": [3]})", "stop_sequence"},
      {R"({"prompt": "x", "temperature": "hot"})", "temperature"},
      {R"({"prompt": "x", "top_a": 4})", "top_a"},
  };
  for (const auto& [body, param] : cases) {
    const AnswerError error = refusal(kGenerate, body);
    EXPECT_EQ(error.status, 400) << body;
    EXPECT_EQ(error.param, param) << body << ": " << error.message;
  }
}

TEST(KoboldAnswer, AStreamIsCollectedOrPassedOn) {
  for (size_t step = 1; step < 30; ++step) {
    auto collected = translate(kGenerate, R"({"prompt": "x"})");
    EXPECT_EQ(said(*collected->answer, kStream, step),
              R"({"results":[{"text":"Ha! é","finish_reason":"length","logprobs":null,)"
              R"("prompt_tokens":4,"completion_tokens":2}]})");
    auto streamed = translate("/api/extra/generate/stream", R"({"prompt": "x"})");
    EXPECT_EQ(said(*streamed->answer, kStream, step),
              "event: message\ndata: {\"token\":\"Ha\",\"finish_reason\":null}\n\n"
              "event: message\ndata: {\"token\":\"! é\",\"finish_reason\":\"length\"}\n\n");
    EXPECT_EQ(streamed->answer->text_so_far(), "Ha! é");
  }
}

TEST(KoboldAnswer, QuestionsAreAnsweredByTheListOfModels) {
  const bj::object models =
      parse_json(R"({"data": [{"id": "m", "object": "model", "max_model_len": 2048}]})")->get_object();
  const auto ask = [&](std::string_view path) {
    auto asked = find_dialect("GET", path)->translate(path, "");
    EXPECT_EQ(asked->path, "/v1/models");
    return asked->answer->whole(models);
  };
  EXPECT_EQ(ask("/api/v1/model"), R"({"result":"koboldcpp/m"})");
  EXPECT_EQ(ask("/api/extra/true_max_context_length"), R"({"value":2048})");
  EXPECT_EQ(ask("/api/v1/config/max_context_length"), R"({"value":2048})");
  EXPECT_EQ(ask("/api/v1/config/max_length"), R"({"value":512})");
  EXPECT_EQ(ask("/v1/internal/model/info"), R"({"model_name":"m","lora_names":[],"loader":"troupe"})");
  EXPECT_EQ(ask("/v1/auth/permission"), R"({"permission":"api"})");
  EXPECT_EQ(parse_json(ask("/props"))->at("default_generation_settings").at("n_ctx"), 2048);
  EXPECT_EQ(parse_json(ask("/props"))->at("chat_template"), "");
  EXPECT_EQ(parse_json(ask("/v1/model"))->at("parameters").at("max_seq_len"), 2048);
}

TEST(ProbeForms, TextsAndTokens) {
  auto encode = translate("/v1/token/encode", R"({"text": "Hi", "add_bos_token": false})");
  EXPECT_EQ(encode->body, R"({"prompt":"Hi","add_special_tokens":false})");
  EXPECT_EQ(encode->answer->whole(parse_json(R"({"count": 2, "tokens": [4, 5]})")->get_object()),
            R"({"length":2,"tokens":[4,5]})");
  auto count = translate("/v1/internal/token-count", R"({"text": "Hi"})");
  EXPECT_EQ(count->answer->whole(parse_json(R"({"count": 2, "tokens": [4, 5]})")->get_object()),
            R"({"length":2})");
  auto decode = translate("/v1/internal/decode", R"({"tokens": [4]})");
  EXPECT_EQ(decode->path, "/detokenize");
  EXPECT_EQ(decode->answer->whole(parse_json(R"({"prompt": "Hi"})")->get_object()), R"({"text":"Hi"})");
  EXPECT_EQ(translate("/v1/token/encode", "{}").error().param, "text");
  auto same = translate("/v1/tokenize", R"({"prompt": "Hi"})");
  EXPECT_EQ(same->path, "/tokenize");
  EXPECT_EQ(same->body, R"({"prompt": "Hi"})");
  EXPECT_EQ(same->answer->whole(parse_json(R"({"count":1,"tokens":[4]})")->get_object()),
            R"({"count":1,"tokens":[4]})");
}

TEST(ProbeForms, LlamaCppsProbabilities) {
  const char* const kChoice =
      R"({"index":0,"text":"Ha","finish_reason":null,"logprobs":{"tokens":["Ha"],"token_logprobs":[-0.5],)"
      R"("top_logprobs":[{"Ha":-0.5,"Ho":-2.5}],"text_offset":[0]}})";
  const bj::object body = parse_json(absl::StrCat(R"({"choices":[)", kChoice, "]}"))->get_object();
  const char* const kList =
      R"([{"token":"Ha","logprob":-5E-1,"top_logprobs":[{"token":"Ha","logprob":-5E-1},)"
      R"({"token":"Ho","logprob":-2.5E0}]}])";
  auto whole = translate("/completion", R"({"prompt": "x", "n_probs": 2})");
  EXPECT_EQ(to_json(parse_json(whole->answer->whole(body))->at("completion_probabilities")), kList);
  std::string events;
  whole->answer->chunk(read_answer(body), events);
  const bj::array data = dialects_test::data_of(events);
  ASSERT_EQ(data.size(), 1u);
  EXPECT_EQ(to_json(data[0].at("completion_probabilities")), kList);
  EXPECT_FALSE(parse_json(translate("/completion", R"({"prompt": "x"})")->answer->whole({}))
                   ->as_object()
                   .contains("completion_probabilities"));
}

TEST(ProbeForms, LlamaCppsCompletion) {
  EXPECT_EQ(
      core_request("/completion", R"({"prompt": "x", "n_predict": 7, "cache_prompt": true})").max_tokens, 7);
  EXPECT_FALSE(core_request("/completion", R"({"prompt": "x", "n_predict": -1})").max_tokens);
  EXPECT_EQ(refusal("/completion", R"({"prompt": "x", "n_predict": "many"})").param, "n_predict");
  auto streamed = translate("/completion", R"({"prompt": "x", "stream": true})");
  const bj::array data = dialects_test::data_of(said(*streamed->answer, kStream, 3));
  ASSERT_EQ(data.size(), 3u);
  EXPECT_EQ(data[0].at("content"), "Ha");
  EXPECT_EQ(data[2].at("stop_type"), "limit");
  EXPECT_EQ(data[2].at("tokens_evaluated"), 4);
  auto stopped = translate("/completion", R"({"prompt": "x", "stop": ["You:"]})");
  const auto said_last = parse_json(stopped->answer->whole(
      parse_json(R"({"choices":[{"index":0,"text":"a","stop_reason":"You:","finish_reason":"stop"}]})")
          ->get_object()));
  EXPECT_EQ(said_last->at("stop_type"), "word");
  EXPECT_EQ(said_last->at("stopping_word"), "You:");
}

TEST(DialectRenames, TheLongestNameCounts) {
  AnswerError error{400, "'messages[1].content' must be a string", "", "messages[1].content", ""};
  rename_fields({{"messages", "m"}, {"messages[1]", "messages[0].content[0]"}, {"messages[10]", "x"}}, error);
  EXPECT_EQ(error.param, "messages[0].content[0].content");
  EXPECT_EQ(error.message, "'messages[0].content[0].content' must be a string");
}

}  // namespace
}  // namespace troupe

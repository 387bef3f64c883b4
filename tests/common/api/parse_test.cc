#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/api/api.h"
#include "common/json/json.h"

namespace troupe::api_parse_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

static const std::string kChatStart = R"({"model":"m","messages":[{"role":"user","content":"hi"}])";

// A chat request with `fields` added ("" or ",\"n\":1").
static ApiResult<GenerateRequest> chat_with(const std::string& fields) {
  return parse_chat_request(kChatStart + fields + "}");
}
static ApiResult<GenerateRequest> chat_of(const std::string& messages) {
  return parse_chat_request(R"({"model":"m","messages":)" + messages + "}");
}
static ApiResult<GenerateRequest> completion_with(const std::string& fields) {
  return parse_completion_request(R"({"model":"m")" + fields + "}");
}

// "param: message" of the error; "accepted" without one.
static std::string fault_of(const ApiResult<GenerateRequest>& result) {
  if (result.ok()) return "accepted";
  EXPECT_EQ(result.error().http_status, 400);
  EXPECT_TRUE(is_valid_utf8(result.error().to_json()));
  return result.error().param + ": " + result.error().message;
}

TEST(ApiParse, ReadsEveryFieldOfAChatRequest) {
  const auto request = chat_with(
      R"(,"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,"seed":-2,"max_tokens":7,"stop":["a","宋"],)"
      R"("stop_token_ids":[1,2],"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true},)"
      R"("user":"u","prompt_cache_key":"k","cache_salt":"s","priority":-3,"tools":[{"type":"function","x":1.0}],)"
      R"("documents":[{"title":"t","text":"x"}],)"
      R"("chat_template_kwargs":{"enable_thinking":false},"unheard_of":{"a":[1]})");
  ASSERT_TRUE(request.ok()) << request.error().message;
  const GenerateRequest& q = request.value();
  EXPECT_EQ(q.kind, GenerateRequest::Kind::kChat);
  EXPECT_EQ(q.model, "m");
  ASSERT_EQ(q.messages.size(), 1u);
  EXPECT_EQ(q.messages[0].role, Role::kUser);
  EXPECT_EQ(q.messages[0].content, "hi");
  EXPECT_EQ(q.messages[0].extra_json, "");
  EXPECT_EQ(q.temperature, 0.5);
  EXPECT_EQ(q.top_p, 0.9);
  EXPECT_EQ(q.top_k, 40);
  EXPECT_EQ(q.min_p, 0.1);
  EXPECT_EQ(q.seed, ~uint64_t{1});
  EXPECT_EQ(q.max_tokens, 7);
  EXPECT_THAT(q.stop, ElementsAre("a", "宋"));
  EXPECT_THAT(q.stop_token_ids, ElementsAre(1, 2));
  EXPECT_TRUE(q.ignore_eos && q.stream && q.include_usage);
  EXPECT_EQ(q.user + q.prompt_cache_key + q.cache_salt, "uks");
  EXPECT_EQ(q.priority, -3);
  EXPECT_EQ(q.tools_json, R"([{"type":"function","x":1.0}])");
  EXPECT_EQ(q.documents_json, R"([{"title":"t","text":"x"}])");
  EXPECT_EQ(q.chat_template_kwargs_json, R"({"enable_thinking":false})");
}

TEST(ApiParse, TreatsNullFieldsAsAbsent) {
  const auto request = chat_with(
      R"(,"temperature":null,"top_p":null,"top_k":null,"min_p":null,"seed":null,"max_tokens":null,"stop":null,)"
      R"("stop_token_ids":null,"stream":null,"stream_options":null,"n":null,"tools":null,"user":null,"documents":null,)"
      R"("logprobs":null,"response_format":null,"audio":null,"logit_bias":null,"chat_template_kwargs":null)");
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_FALSE(request.value().temperature || request.value().top_k || request.value().seed ||
               request.value().max_tokens || request.value().stream);
  EXPECT_THAT(request.value().stop, IsEmpty());
  EXPECT_EQ(request.value().documents_json, "");
}

TEST(ApiParse, PrefersMaxCompletionTokensInEitherOrder) {
  EXPECT_EQ(chat_with(R"(,"max_tokens":5,"max_completion_tokens":9)").value().max_tokens, 9);
  EXPECT_EQ(chat_with(R"(,"max_completion_tokens":9,"max_tokens":5)").value().max_tokens, 9);
  EXPECT_EQ(completion_with(R"(,"prompt":"x","max_completion_tokens":9)").value().max_tokens, 9);
  EXPECT_EQ(chat_with(R"(,"max_tokens":5)").value().max_tokens, 5);
}

TEST(ApiParse, NamesFieldAndRightValueOnWrongTypesAndRanges) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("temperature":2.1)", "temperature: 'temperature' must be a number from 0 to 2, not 2.1."},
      {R"("temperature":-0.1)", "temperature: 'temperature' must be a number from 0 to 2, not -0.1."},
      {R"("temperature":"hot")", "temperature: 'temperature' must be a number from 0 to 2, not \"hot\"."},
      {R"("temperature":true)", "temperature: 'temperature' must be a number from 0 to 2, not true."},
      {R"("top_p":-0.5)", "top_p: 'top_p' must be a number from 0 to 1, not -0.5."},
      {R"("top_p":1.5)", "top_p: 'top_p' must be a number from 0 to 1, not 1.5."},
      {R"("min_p":2)", "min_p: 'min_p' must be a number from 0 to 1, not 2."},
      {R"("top_k":-2)", "top_k: 'top_k' must be an integer of at least -1, not -2."},
      {R"("top_k":3.5)", "top_k: 'top_k' must be an integer of at least -1, not 3.5."},
      {R"("max_tokens":0)", "max_tokens: 'max_tokens' must be an integer of at least 1, not 0."},
      {R"("max_tokens":-5)", "max_tokens: 'max_tokens' must be an integer of at least 1, not -5."},
      {R"("max_tokens":3.5)", "max_tokens: 'max_tokens' must be an integer of at least 1, not 3.5."},
      {R"("max_tokens":1e300)", "max_tokens: 'max_tokens' must be an integer of at least 1, not 1e+300."},
      {R"("max_tokens":true)", "max_tokens: 'max_tokens' must be an integer of at least 1, not true."},
      {R"("max_tokens":18446744073709551615)",
       "max_tokens: 'max_tokens' must be an integer of at least 1, not 18446744073709551615."},
      {R"("max_completion_tokens":"9")",
       "max_completion_tokens: 'max_completion_tokens' must be an integer of at least 1, not \"9\"."},
      {R"("n":0)", "n: 'n' must be an integer from 1 to 16, not 0."},
      {R"("n":17)", "n: 'n' must be an integer from 1 to 16, not 17."},
      {R"("n":2.5)", "n: 'n' must be an integer from 1 to 16, not 2.5."},
      {R"("repetition_penalty":0)",
       "repetition_penalty: 'repetition_penalty' must be a number from 0.01 to 10, not 0."},
      {R"("presence_penalty":2.5)",
       "presence_penalty: 'presence_penalty' must be a number from -2 to 2, not 2.5."},
      {R"("frequency_penalty":"x")",
       "frequency_penalty: 'frequency_penalty' must be a number from -2 to 2, not \"x\"."},
      {R"("logit_bias":[1])",
       "logit_bias[0]: 'logit_bias[0]' must be a pair of a token id and a bias, not 1."},
      {R"("logit_bias":7)",
       "logit_bias: 'logit_bias' must be an object of at most 4096 token ids, each with a bias from -100 to "
       "100, not 7."},
      {R"("logit_bias":{"7":101})",
       "logit_bias.7: 'logit_bias.7' must be a number from -100 to 100, not 101."},
      {R"("logit_bias":{"07":1})",
       "logit_bias.07: 'logit_bias.07' must be named by a token id, such as \"50256\"."},
      {R"("logit_bias":{"-7":1})",
       "logit_bias.-7: 'logit_bias.-7' must be named by a token id, such as \"50256\"."},
      {R"("logit_bias":{"2147483648":1})",
       "logit_bias.2147483648: 'logit_bias.2147483648' must be named by a token id, such as \"50256\"."},
      {R"("logprobs":5)", "logprobs: 'logprobs' must be true or false, not 5."},
      {R"("logprobs":true,"top_logprobs":21)",
       "top_logprobs: 'top_logprobs' must be an integer from 0 to 20, not 21."},
      {R"("top_logprobs":2)", "top_logprobs: 'top_logprobs' is only allowed when 'logprobs' is true."},
      {R"("priority":"high")",
       "priority: 'priority' must be an integer from -1000000000 to 1000000000, not \"high\"."},
      {R"("seed":1.5)", "seed: 'seed' must be an integer of at most 64 bits, not 1.5."},
      {R"("stream":1)", "stream: 'stream' must be true or false, not 1."},
      {R"("ignore_eos":"yes")", "ignore_eos: 'ignore_eos' must be true or false, not \"yes\"."},
      {R"("user":5)", "user: 'user' must be a string, not 5."},
      {R"("stop":"")", "stop: 'stop' must be a string or a list of strings, none empty, not \"\"."},
      {R"("stop":["a",""])", "stop[1]: 'stop[1]' must be a string that is not empty, not \"\"."},
      {R"("stop":["a",3])", "stop[1]: 'stop[1]' must be a string that is not empty, not 3."},
      {R"("stop_token_ids":[1,-1])",
       "stop_token_ids[1]: 'stop_token_ids[1]' must be an integer from 0 to 2147483647, not -1."},
      {R"("stop_token_ids":[2147483648])",
       "stop_token_ids[0]: 'stop_token_ids[0]' must be an integer from 0 to 2147483647, not 2147483648."},
      {R"("tools":{})", "tools: 'tools' must be an array of tools, not an object."},
      {R"("tools":[1])", "tools[0]: 'tools[0]' must be an object, not 1."},
      {R"("documents":{})", "documents: 'documents' must be an array of documents, not an object."},
      {R"("documents":[{},"x"])", "documents[1]: 'documents[1]' must be an object, not \"x\"."},
      {R"("chat_template_kwargs":[])",
       "chat_template_kwargs: 'chat_template_kwargs' must be an object, not an array."},
      {R"("stream_options":{})", "stream_options: 'stream_options' is only allowed when 'stream' is true."},
      {R"("stream":true,"stream_options":{"include_usage":1})",
       "stream_options.include_usage: 'stream_options.include_usage' must be true or false, not 1."},
      {R"("stream":true,"stream_options":[])",
       "stream_options: 'stream_options' must be an object, not an array."},
  };
  for (const auto& [field, fault] : cases) EXPECT_EQ(fault_of(chat_with("," + field)), fault) << field;
}

TEST(ApiParse, AcceptsBoundsOfEveryRange) {
  for (const std::string field : {R"("temperature":0)",
                                  R"("temperature":2)",
                                  R"("top_p":1)",
                                  R"("top_p":0.0001)",
                                  R"("top_k":-1)",
                                  R"("top_k":0)",
                                  R"("min_p":0)",
                                  R"("min_p":1)",
                                  R"("max_tokens":1)",
                                  R"("max_tokens":9223372036854775807)",
                                  R"("seed":18446744073709551615)",
                                  R"("seed":-9223372036854775808)",
                                  R"("stop":[])",
                                  R"("tools":[])",
                                  R"("stop_token_ids":[0,2147483647])",
                                  R"("n":16)",
                                  R"("repetition_penalty":10)",
                                  R"("presence_penalty":-2)",
                                  R"("frequency_penalty":2)",
                                  R"("logit_bias":{"0":-100,"2147483647":100})",
                                  R"("logprobs":true,"top_logprobs":20)",
                                  R"("logprobs":false,"top_logprobs":0)",
                                  R"("stream":true,"stream_options":{"x":1})"}) {
    EXPECT_EQ(fault_of(chat_with("," + field)), "accepted") << field;
  }
  EXPECT_EQ(chat_with(R"(,"tools":[])").value().tools_json, "");
  EXPECT_EQ(chat_with(R"(,"documents":[])").value().documents_json, "[]");
}

TEST(ApiParse, AcceptsStopAsStringOrStringsOfSixteenKilobytesInAll) {
  EXPECT_THAT(chat_with(R"(,"stop":"\n")").value().stop, ElementsAre("\n"));
  std::string list = R"("a")";
  for (int i = 1; i < 16 * 1024; ++i) list += R"(,"a")";
  EXPECT_EQ(chat_with(",\"stop\":[" + list + "]").value().stop.size(), 16u * 1024);
  EXPECT_EQ(fault_of(chat_with(",\"stop\":[" + list + ",\"a\"]")),
            "stop: 'stop' must be at most 16384 bytes long, not 16385.");
}

TEST(ApiParse, GoesOnWithTheLastMessageThreeWays) {
  const auto chat = [](const std::string& last, const std::string& fields) {
    return parse_chat_request(R"({"model":"m","messages":[{"role":"user","content":"Who?"},)" + last + "]" +
                              fields + "}");
  };
  const std::string mine = R"({"role":"assistant","content":"My name is"})";
  const std::string marked = R"({"role":"assistant","content":"My name is","prefix":true})";
  for (const auto& request :
       {chat(mine, R"(,"continue_final_message":true)"), chat(marked, ""),
        chat(mine, R"(,"continue_final_message":true,"add_generation_prompt":false)"),
        parse_chat_request(
            R"({"assistant_prefill":"My name is","messages":[{"role":"user","content":"Who?"}]})")}) {
    ASSERT_TRUE(request.ok()) << request.error().message;
    EXPECT_TRUE(request.value().continue_final_message);
    EXPECT_FALSE(request.value().add_generation_prompt);
    ASSERT_EQ(request.value().messages.size(), 2u);
    EXPECT_EQ(request.value().messages[1].content, "My name is");
    EXPECT_EQ(request.value().messages[1].extra_json, "");
  }
  // "auto": where the last message is an assistant's, and says something.
  EXPECT_TRUE(chat(mine, R"(,"continue_final_message":"auto")").value().continue_final_message);
  for (const char* last : {R"({"role":"user","content":"x"})", R"({"role":"assistant","content":" "})"}) {
    const auto answered = chat(last, R"(,"continue_final_message":"auto")");
    ASSERT_TRUE(answered.ok()) << answered.error().message;
    EXPECT_TRUE(answered.value().add_generation_prompt && !answered.value().continue_final_message);
  }
  EXPECT_THAT(fault_of(chat(mine, R"(,"continue_final_message":"yes")")), HasSubstr("\"auto\""));
  const auto plain = chat(mine, "");
  EXPECT_TRUE(plain.value().add_generation_prompt && !plain.value().continue_final_message);
  EXPECT_FALSE(chat(mine, R"(,"add_generation_prompt":false)").value().add_generation_prompt);
  EXPECT_THAT(fault_of(chat(mine, R"(,"continue_final_message":true,"add_generation_prompt":true)")),
              HasSubstr("add_generation_prompt: "));
  EXPECT_THAT(fault_of(chat(R"({"role":"user","content":"x"})", R"(,"continue_final_message":true)")),
              HasSubstr("continue_final_message: "));
  EXPECT_THAT(fault_of(chat(R"({"role":"assistant","content":" \n"})", R"(,"continue_final_message":true)")),
              HasSubstr("with some text"));
  EXPECT_THAT(fault_of(chat(marked + "," + mine, "")), HasSubstr("messages[1].prefix"));
}

TEST(ApiParse, AcceptsWhatOtherLanguagesWrite) {
  EXPECT_EQ(chat_with(R"(,"max_tokens":8.0,"top_k":4e1,"n":2.0)").value().max_tokens, 8);
  EXPECT_EQ(chat_with(R"(,"top_k":4e1)").value().top_k, 40);
  EXPECT_TRUE(chat_with(R"(,"logit_bias":[])").value().logit_bias.empty());
  EXPECT_FALSE(chat_with(R"(,"seed":-1)").value().seed.has_value()) << "draw one";
  const double greedy = chat_with(R"(,"top_p":0)").value().top_p.value();
  EXPECT_TRUE(greedy > 0 && greedy < 1e-6);
}

TEST(ApiParse, RefusesUnsupportedFieldsUnlessNeutral) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> refused = {
      {"best_of", {"2"}},
      {"echo", {"true"}},
      {"functions", {"[{}]"}},
      {"function_call", {R"({"name":"f"})"}},
      {"audio", {"{}"}},
      {"modalities", {R"(["text","audio"])", "[]"}},
      {"include_stop_str_in_output", {"true"}},
      {"skip_special_tokens", {"false"}},
      {"add_special_tokens", {"true"}},
      {"truncate_prompt_tokens", {"5"}},
      {"prompt_embeds", {"\"x\""}},
      {"return_token_ids", {"true"}},
  };
  for (const auto& [name, values] : refused) {
    for (const std::string& value : values) {
      const auto result = chat_with(",\"" + name + "\":" + value);
      ASSERT_FALSE(result.ok()) << name << value;
      EXPECT_EQ(result.error().http_status, 400);
      EXPECT_EQ(result.error().code, "unsupported_parameter");
      EXPECT_EQ(result.error().param, name);
    }
  }
  for (const std::string field : {R"("n":1)",
                                  R"("best_of":1)",
                                  R"("logprobs":false)",
                                  R"("top_logprobs":0)",
                                  R"("echo":false)",
                                  R"("presence_penalty":0)",
                                  R"("frequency_penalty":0.0)",
                                  R"("repetition_penalty":1.0)",
                                  R"("logit_bias":{})",
                                  R"("response_format":{"type":"text"})",
                                  R"("tool_choice":"none")",
                                  R"("tool_choice":"auto")",
                                  R"("modalities":["text"])",
                                  R"("suffix":"only completions have it")",
                                  R"("functions":[])",
                                  R"("skip_special_tokens":true)",
                                  R"("add_special_tokens":false)",
                                  R"("guidance_scale":1.0,"cfg_scale":0,"negative_prompt":"x")",
                                  R"("banned_strings":[],"json_schema":{},"grammar":"")",
                                  R"("truncate_prompt_tokens":null)"}) {
    EXPECT_EQ(fault_of(chat_with("," + field)), "accepted") << field;
  }
  EXPECT_EQ(completion_with(R"(,"prompt":"x","thinking_token_budget":64)").error().code,
            "unsupported_parameter");
  EXPECT_EQ(completion_with(R"(,"prompt":"x","suffix":"y")").error().code, "unsupported_parameter");
  EXPECT_EQ(fault_of(completion_with(R"(,"prompt":"x","suffix":"","echo":false)")), "accepted");
  EXPECT_EQ(fault_of(completion_with(R"(,"prompt":"x","add_special_tokens":true)")), "accepted");
  EXPECT_EQ(completion_with(R"(,"prompt":"x","add_special_tokens":false)").error().param,
            "add_special_tokens");
}

TEST(ApiParse, APersonaIsForGatewaysChatsAndRefusedElsewhere) {
  ApiLimits gateway;
  gateway.takes_personas = true;
  const std::string chat = kChatStart + R"(,"persona":{"name": "mora"}})";
  EXPECT_EQ(parse_chat_request(chat, gateway)->persona_json, R"({"name":"mora"})");
  EXPECT_EQ(parse_chat_request(kChatStart + R"(,"persona":"mora"})", gateway)->persona_json, "\"mora\"");
  EXPECT_EQ(parse_chat_request(kChatStart + R"(,"persona":null})")->persona_json, "");
  EXPECT_EQ(parse_chat_request(kChatStart + R"(,"persona":3})", gateway).error().param, "persona");
  EXPECT_EQ(parse_chat_request(chat).error().code, "unsupported_parameter");
  const std::string completion = R"({"model":"m","prompt":"x","persona":"mora"})";
  EXPECT_EQ(parse_completion_request(completion, gateway).error().code, "unsupported_parameter");
}

TEST(ApiParse, ReadsWhatIsAskedOfCallsAndThoughts) {
  auto plain = chat_with("");
  ASSERT_TRUE(plain.ok());
  EXPECT_TRUE(plain->tool_choice == ToolChoice::kAuto && plain->parallel_tool_calls &&
              plain->include_reasoning);
  auto asked = chat_with(
      R"(,"tool_choice":"none","parallel_tool_calls":false,"include_reasoning":false,"reasoning_effort":"low")");
  ASSERT_TRUE(asked.ok()) << asked.error().message;
  EXPECT_EQ(asked->tool_choice, ToolChoice::kNone);
  EXPECT_FALSE(asked->parallel_tool_calls || asked->include_reasoning);
  EXPECT_EQ(asked->reasoning_effort, "low");
  EXPECT_EQ(chat_with(R"(,"tool_choice":"any")").error().param, "tool_choice");
}

TEST(ApiParse, ForOthersOnlyWhatDecidesTheWayIsJudged) {
  ApiLimits limits;
  limits.for_others = true;
  ApiParser parser(limits);
  const auto with = [&](const std::string& fields) {
    return parser.parse_chat(kChatStart + "," + fields + "}");
  };
  for (const std::string fields : {R"("tool_choice":"required")", R"("temperature":9)", R"("n":64)",
                                   R"("logit_bias":7)", R"("continue_final_message":true)"})
    EXPECT_TRUE(with(fields).ok()) << fields << with(fields).error().message;
  EXPECT_EQ(with(R"("max_tokens":8,"max_completion_tokens":9)").value().max_tokens, 9);
  EXPECT_EQ(with(R"("stream":7)").error().param, "stream");
  EXPECT_EQ(parser.parse_chat(R"({"messages":7})").error().param, "messages");
  const auto pictured = parser.parse_chat(
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"u"}}]},)"
      R"({"role":"function","name":"f","content":"b"}]})");
  ASSERT_TRUE(pictured.ok()) << pictured.error().message;
  EXPECT_THAT(pictured.value().messages[0].content, HasSubstr("image_url"));
}

TEST(ApiParse, ContinuousUsageNeedsUsage) {
  const auto options = [](const std::string& fields) {
    return chat_with(R"(,"stream":true,"stream_options":{)" + fields + "}").value();
  };
  EXPECT_TRUE(options(R"("continuous_usage_stats":true,"include_usage":true)").continuous_usage);
  EXPECT_FALSE(options(R"("continuous_usage_stats":true)").continuous_usage);
  EXPECT_FALSE(options(R"("include_usage":true)").continuous_usage);
}

TEST(ApiParse, ReadsSamplingFields) {
  const auto request =
      chat_with(R"(,"n":3,"presence_penalty":0.5,"frequency_penalty":-1,"repetition_penalty":1.5,)"
                R"("logit_bias":{"50256":-100,"7":1.5},"top_logprobs":4,"logprobs":true)");
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request.value().n, 3);
  EXPECT_EQ(request.value().presence_penalty, 0.5);
  EXPECT_EQ(request.value().frequency_penalty, -1);
  EXPECT_EQ(request.value().repetition_penalty, 1.5);
  EXPECT_EQ(request.value().logprobs, 4);
  using Bias = std::pair<int32_t, float>;
  EXPECT_THAT(request.value().logit_bias, ElementsAre(Bias(50256, -100.0f), Bias(7, 1.5f)));
  const auto plain = chat_with(R"(,"logprobs":false)");
  EXPECT_FALSE(plain.value().logprobs.has_value());
  EXPECT_EQ(chat_with(R"(,"logprobs":true)").value().logprobs, 0);
  EXPECT_EQ(plain.value().n, 1);
  EXPECT_FALSE(plain.value().repetition_penalty.has_value());
}

TEST(ApiParse, ReadsListsOfPrompts) {
  using Prompt = GenerateRequest::Prompt;
  const auto texts = completion_with(R"(,"prompt":["a","b","c"],"n":2)");
  ASSERT_TRUE(texts.ok()) << texts.error().message;
  EXPECT_EQ(texts.value().prompt, Prompt("a"));
  EXPECT_THAT(texts.value().more_prompts, ElementsAre(Prompt("b"), Prompt("c")));
  EXPECT_EQ(texts.value().choice_count(), 6);
  const auto ids = completion_with(R"(,"prompt":[[1,2],[3]])");
  ASSERT_TRUE(ids.ok()) << ids.error().message;
  EXPECT_THAT(ids.value().more_prompts, ElementsAre(Prompt(std::vector<int32_t>{3})));
  EXPECT_TRUE(completion_with(R"(,"prompt":[1,2])").value().more_prompts.empty());
  EXPECT_TRUE(completion_with(R"(,"prompt":["a"])").value().more_prompts.empty());
  EXPECT_THAT(fault_of(completion_with(R"(,"prompt":["a",""])")), StartsWith("prompt[1]: "));
  EXPECT_THAT(fault_of(completion_with(R"(,"prompt":["a",7])")), StartsWith("prompt[1]: "));
  EXPECT_THAT(fault_of(completion_with(R"(,"prompt":[[1],[-1]])")), StartsWith("prompt[1][0]: "));
  std::string many = "\"a\"";
  for (size_t i = 1; i <= kPromptsMax; ++i) many += ",\"a\"";
  EXPECT_EQ(fault_of(completion_with(",\"prompt\":[" + many + "]")),
            "prompt: 'prompt' must be a list of at most 256 prompts, not 257.");
}

TEST(ApiParse, ReadsLogprobsCountAndEchoOfCompletions) {
  const auto request = completion_with(R"(,"prompt":"x","logprobs":5,"echo":true,"max_tokens":0)");
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request.value().logprobs, 5);
  EXPECT_TRUE(request.value().echo);
  EXPECT_EQ(request.value().max_tokens, 0);
  EXPECT_FALSE(completion_with(R"(,"prompt":"x","logprobs":false)").value().logprobs.has_value());
  EXPECT_EQ(fault_of(completion_with(R"(,"prompt":"x","logprobs":21)")),
            "logprobs: 'logprobs' must be an integer from 0 to 20, not 21.");
  EXPECT_EQ(fault_of(completion_with(R"(,"prompt":"x","logprobs":true)")),
            "logprobs: 'logprobs' must be an integer from 0 to 20, not true.");
  EXPECT_EQ(fault_of(completion_with(R"(,"max_tokens":0,"prompt":"x")")),
            "max_tokens: 'max_tokens' must be an integer of at least 1 (0 only with 'echo'), not 0.");
}

TEST(ApiParse, AcceptsFiveRolesAndListsThemForOthers) {
  const auto all = chat_of(
      R"([{"role":"system","content":"a"},{"role":"developer","content":"b"},{"role":"user","content":"c"},)"
      R"({"role":"assistant","content":"d"},{"role":"tool","content":"e","tool_call_id":"t"}])");
  ASSERT_TRUE(all.ok());
  std::string names;
  for (const ChatMessage& message : all.value().messages) names += std::string(role_name(message.role)) + " ";
  EXPECT_EQ(names, "system developer user assistant tool ");
  EXPECT_EQ(chat_of(R"([{"role":"function","name":"f","content":"x"}])").value().messages[0].role,
            Role::kTool)
      << "its older name";
  for (const std::string role : {"\"ipython\"", "\"User\"", "\"\"", "5", "[]"}) {
    EXPECT_THAT(
        fault_of(chat_of("[{\"role\":" + role + ",\"content\":\"x\"}]")),
        HasSubstr(
            "messages[0].role: 'messages[0].role' must be one of system, developer, user, assistant, tool"));
  }
  EXPECT_THAT(fault_of(chat_of(R"([{"content":"x"}])")),
              HasSubstr("messages[0].role: 'messages[0].role' is required"));
}

TEST(ApiParse, AcceptsContentAsTextOrPartsOrNullForAssistant) {
  EXPECT_EQ(
      chat_of(R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b","x":1}]}])")
          .value()
          .messages[0]
          .content,
      "a\nb");
  EXPECT_EQ(fault_of(chat_of(R"([{"role":"user","content":""}])")), "accepted");
  EXPECT_EQ(fault_of(chat_of(R"([{"role":"assistant","content":null,"tool_calls":[]}])")), "accepted");
  EXPECT_EQ(fault_of(chat_of(R"([{"role":"assistant"}])")), "accepted");
  const std::string ok = R"({"role":"user","content":"a"},)";
  EXPECT_THAT(fault_of(chat_of("[" + ok + R"({"role":"user","content":null}])")),
              HasSubstr("messages[1].content: 'messages[1].content' is required"));
  EXPECT_THAT(
      fault_of(chat_of("[" + ok + R"({"role":"user","content":5}])")),
      HasSubstr(
          "messages[1].content: 'messages[1].content' must be a string or a list of text parts, not 5"));
  EXPECT_THAT(fault_of(chat_of(R"([{"role":"user","content":[]}])")), HasSubstr("at least one part"));
  EXPECT_THAT(fault_of(chat_of(R"([{"role":"user","content":["a",5]}])")),
              HasSubstr("messages[0].content[1]: "));
  EXPECT_THAT(
      fault_of(chat_of(R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text"}]}])")),
      HasSubstr("messages[0].content[1].text: "));
  const auto image = chat_of(R"([{"role":"user","content":[{"type":"image_url","image_url":{}}]}])");
  EXPECT_EQ(image.error().code, "unsupported_parameter");
  EXPECT_EQ(image.error().param, "messages[0].content[0].type");
  EXPECT_THAT(image.error().message, HasSubstr("image_url"));
}

// As vLLM takes them, whether the workers are ours or another's.
TEST(ApiParse, TakesTextInTheFormsOfOtherApisAsText) {
  const std::string parts =
      R"(["a",{"type":"input_text","text":"b"},{"type":"output_text","text":"c","annotations":[]},)"
      R"({"type":"refusal","refusal":"d"},{"type":"thinking","thinking":"e","signature":"s"},"f"])";
  const std::string body = R"({"model":"m","messages":[{"role":"assistant","content":)" + parts +
                           R"(},{"role":"user","content":["g"]}]})";
  for (const bool for_others : {false, true}) {
    ApiLimits limits;
    limits.for_others = for_others;
    auto request = parse_chat_request(body, limits);
    ASSERT_TRUE(request.ok()) << request.error().message;
    EXPECT_EQ(request->messages[0].content, "a\nb\nc\nd\ne\nf");
    EXPECT_THAT(request->messages[0].part_bytes, ElementsAre(1, 1, 1, 1, 1, 1));
    EXPECT_EQ(request->messages[1].content, "g");
    EXPECT_THAT(request->messages[1].part_bytes, IsEmpty());
  }
  EXPECT_THAT(fault_of(chat_of(R"([{"role":"assistant","content":[{"type":"refusal","text":"a"}]}])")),
              HasSubstr("messages[0].content[0].refusal: "));
  EXPECT_THAT(fault_of(chat_of(R"([{"role":"assistant","content":[{"type":"thinking","thinking":5}]}])")),
              HasSubstr("messages[0].content[0].thinking: "));
}

TEST(ApiParse, KeepsOtherMessageFieldsAsCompactJsonWithoutNulls) {
  const auto request = chat_of(
      "[{\"name\" : \"宋\", \"role\":\"assistant\", \"refusal\":null, \"tool_calls\": [ {\"a\" : 5.0, \"b\": "
      "5, "
      "\"c\": 1e30, \"d\": \"\\u0001\\n\"} , null , true ] }]");
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request.value().messages[0].extra_json,
            R"({"name":"宋","tool_calls":[{"a":5.0,"b":5,"c":1e+30,"d":"\u0001\n"},null,true]})");
  EXPECT_THAT(fault_of(chat_of(R"([{"role":"user","content":"a","name":5}])")),
              HasSubstr("messages[0].name: "));
  EXPECT_THAT(fault_of(chat_of(R"([{"role":"assistant","tool_calls":"x"}])")),
              HasSubstr("messages[0].tool_calls: "));
}

TEST(ApiParse, RequiresMessagesAndNoModel) {
  EXPECT_THAT(fault_of(chat_of("[]")), HasSubstr("messages: 'messages' must hold at least one message"));
  EXPECT_THAT(fault_of(chat_of("null")), HasSubstr("messages: 'messages' is required"));
  EXPECT_THAT(fault_of(chat_of("\"hi\"")), HasSubstr("messages: 'messages' must be an array"));
  EXPECT_THAT(fault_of(chat_of("[5]")), HasSubstr("messages[0]: 'messages[0]' must be an object"));
  EXPECT_EQ(parse_chat_request(R"({"messages":[{"role":"user","content":"x"}]})").value().model, "")
      << "where one model is served, it is that";
  EXPECT_THAT(fault_of(parse_chat_request(R"({"model":"","messages":[{"role":"user","content":"x"}]})")),
              HasSubstr("model: 'model' must be the name of a model"));
  EXPECT_THAT(fault_of(parse_chat_request(R"({"model":"m"})")),
              HasSubstr("messages: 'messages' is required"));
}

TEST(ApiParse, LimitsBodyMessagesAndNames) {
  const std::string body = kChatStart + "}";
  const auto large = parse_chat_request(body, {.body_bytes_max = body.size() - 1});
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().http_status, 413);
  EXPECT_TRUE(parse_chat_request(body, {.body_bytes_max = body.size()}).ok());
  const std::string two =
      R"({"model":"m","messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]})";
  EXPECT_TRUE(parse_chat_request(two, {.messages_max = 2}).ok());
  EXPECT_THAT(fault_of(parse_chat_request(two, {.messages_max = 1})), HasSubstr("at most 1 messages, not 2"));
  EXPECT_EQ(fault_of(chat_with(",\"user\":\"" + std::string(1024, 'u') + "\"")), "accepted");
  EXPECT_THAT(fault_of(chat_with(",\"user\":\"" + std::string(1025, 'u') + "\"")),
              HasSubstr("at most 1024 bytes"));
}

TEST(ApiParse, IntegersBeyond64BitsAreTakenWhereTheirDigitsMatterAlone) {
  const std::string wide = "123456789012345678901234567890";
  const auto parsed = chat_with(R"(,"tools":[{"type":"function","n":)" + wide + "}]");
  ASSERT_TRUE(parsed.ok()) << fault_of(parsed);
  EXPECT_THAT(parsed.value().tools_json, HasSubstr(wide));
  EXPECT_THAT(fault_of(chat_with(R"(,"max_tokens":)" + wide)), HasSubstr("'max_tokens' must be"));
  EXPECT_THAT(fault_of(chat_with(R"(,"tools":[{"n":)" + wide + R"(}],"n":1,"n":2)")),
              HasSubstr("duplicate key 'n'"));
}

TEST(ApiParse, IntegersOfAnySizeAreNoTexts) {
  const std::string wide = "123456789012345678901234567890";
  for (const char* name : {"user", "stop", "cache_salt", "assistant_prefill"}) {
    const std::string fault = fault_of(chat_with(",\"" + std::string(name) + "\":" + wide));
    EXPECT_THAT(fault, HasSubstr("'" + std::string(name) + "' must be")) << name;
    EXPECT_THAT(fault, HasSubstr("not " + wide + ".")) << name;
  }
  EXPECT_THAT(fault_of(chat_with(",\"max_tokens\":" + wide)), HasSubstr("not " + wide + "."));
  EXPECT_THAT(fault_of(chat_with(",\"stop\":[" + wide + "]")), HasSubstr("'stop[0]' must be"));
  EXPECT_FALSE(parse_completion_request("{\"model\":\"m\",\"prompt\":" + wide + "}").ok());
  EXPECT_FALSE(parse_completion_request("{\"model\":\"m\",\"prompt\":[" + wide + "]}").ok());
  const std::string contents[] = {wide, "[{\"type\":\"text\",\"text\":" + wide + "}]",
                                  "[{\"type\":" + wide + "}]"};
  for (const std::string& content : contents) {
    const std::string messages = R"([{"role":"user","content":)" + content + "}]";
    EXPECT_THAT(fault_of(parse_chat_request(R"({"model":"m","messages":)" + messages + "}")),
                HasSubstr(wide));
  }
}

TEST(ApiParse, WideIntegersLeaveTheOtherFieldsAsTheyAre) {
  const auto parsed = chat_with(R"(,"tools":[{"n":123456789012345678901}],"seed":-1234567890123456789)");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed.value().seed, static_cast<uint64_t>(-1234567890123456789));
  EXPECT_EQ(parsed.value().tools_json, "[{\"n\":123456789012345678901}]");
}

TEST(ApiParse, ReportsPositionInMalformedBodies) {
  EXPECT_THAT(fault_of(parse_chat_request("")), HasSubstr("empty"));
  EXPECT_THAT(fault_of(parse_chat_request("[]")), HasSubstr("must be a JSON object, not an array"));
  EXPECT_THAT(fault_of(parse_chat_request("5")), HasSubstr("must be a JSON object"));
  EXPECT_THAT(fault_of(parse_chat_request(R"({"model": "m", )")), HasSubstr("at byte"));
  EXPECT_THAT(fault_of(chat_with(R"(,"model":"m2")")), HasSubstr("duplicate key 'model'"));
  EXPECT_THAT(fault_of(chat_of(R"([{"role":"user","content":"a","role":"system"}])")),
              HasSubstr("duplicate key 'messages[0].role'"));
  EXPECT_THAT(fault_of(chat_with(R"(,"metadata":{"a":{"k":1,"k":2}})")), HasSubstr("'metadata.a.k'"));
  EXPECT_THAT(fault_of(chat_with(R"(,"temperature":1e999)")), HasSubstr("out of range"));
  EXPECT_THAT(fault_of(chat_with(R"(,"temperature":NaN)")), HasSubstr("invalid JSON"));
}

TEST(ApiParse, AcceptsPromptAsTextOrIdsOrListOfOne) {
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(std::get<std::string>(completion_with(R"(,"prompt":"x")").value().prompt), "x");
  EXPECT_EQ(std::get<std::string>(completion_with(R"(,"prompt":["x"])").value().prompt), "x");
  EXPECT_EQ(std::get<Ids>(completion_with(R"(,"prompt":[1,2])").value().prompt), (Ids{1, 2}));
  EXPECT_EQ(std::get<Ids>(completion_with(R"(,"prompt":[[3]])").value().prompt), (Ids{3}));
  EXPECT_EQ(completion_with(R"(,"prompt":"x")").value().kind, GenerateRequest::Kind::kCompletion);
  for (const std::string prompt : {R"("")", "[]", R"([""])", "[[]]", "5", "{}", "true"}) {
    EXPECT_THAT(fault_of(completion_with(",\"prompt\":" + prompt)), HasSubstr("not empty")) << prompt;
  }
  EXPECT_THAT(fault_of(completion_with("")), HasSubstr("prompt: 'prompt' is required"));
  EXPECT_THAT(fault_of(completion_with(R"(,"prompt":null)")), HasSubstr("prompt: 'prompt' is required"));
  EXPECT_THAT(fault_of(completion_with(R"(,"prompt":[1,-1])")), HasSubstr("prompt[1]: "));
  EXPECT_THAT(fault_of(completion_with(R"(,"prompt":[1,"a"])")), HasSubstr("prompt[1]: "));
  EXPECT_THAT(fault_of(completion_with(R"(,"prompt":[[1,2.5]])")), HasSubstr("prompt[0][1]: "));
}

// A text with spare capacity is parsed in place: leftovers of a longer one are not part of it.
TEST(ApiParse, ReadsNothingPastTheEndOfTextWithCapacity) {
  ApiParser parser;
  const std::string whole = kChatStart + R"(,"user":"somebody with a name","n":1})";
  for (size_t size = 0; size <= whole.size(); ++size) {
    std::string body;
    body.reserve(whole.size() + kJsonPaddingBytes);
    body = whole;
    body.resize(size);  // leaves the remaining bytes in place
    ASSERT_TRUE(JsonText(body).is_padded());
    ASSERT_FALSE(JsonText(std::string_view(body)).is_padded());
    const auto there = parser.parse_chat(body), copied = parser.parse_chat(std::string_view(body));
    ASSERT_EQ(there.ok(), size == whole.size()) << body;
    ASSERT_EQ(copied.ok(), there.ok()) << body;
    if (!there.ok()) {
      EXPECT_EQ(there.error().message, copied.error().message);
    }
  }
}

TEST(ApiParse, ParserIsReusableAfterErrorsAndLargeBodies) {
  ApiParser parser;
  EXPECT_FALSE(parser.parse_chat("{").ok());
  EXPECT_TRUE(parser.parse_chat(kChatStart + "}").ok());
  const std::string large(3u << 20, 'x');
  const auto first =
      parser.parse_chat(R"({"model":"m","messages":[{"role":"user","content":")" + large + "\"}]}");
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(parser.parse_completion(R"({"model":"m","prompt":"x"})").ok());
  EXPECT_EQ(first.value().messages[0].content, large);
  ApiParser moved = std::move(parser);
  EXPECT_EQ(moved.parse_chat(kChatStart + "}").value().messages[0].content, "hi");
}

}  // namespace troupe::api_parse_test

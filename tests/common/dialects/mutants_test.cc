// Bodies with one field made wrong, of every dialect: each is answered, by a request that the core reads or
// by an error that names a field of the body; and answers of workers that are none of ours.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/dialects/speak.h"

namespace troupe {
namespace {

using ::testing::HasSubstr;

const std::pair<std::string, std::string> kBodies[] = {
    {"/v1/messages",
     R"({"model": "m", "max_tokens": 9, "system": [{"type": "text", "text": "S"}], "stream": true,
      "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "n", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "r"}]}],
      "tools": [{"name": "n", "description": "d", "input_schema": {"type": "object"}}],
      "tool_choice": {"type": "auto"}, "thinking": {"type": "adaptive"}, "metadata": {"user_id": "u"},
      "stop_sequences": ["x"], "temperature": 1, "output_config": {"effort": "low"}})"},
    {"/v1/responses", R"({"model": "m", "instructions": "S", "stream": true, "max_output_tokens": 9,
      "input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}], "summary": []},
        {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "r"}],
      "tools": [{"type": "function", "name": "n", "parameters": {}}], "tool_choice": "auto",
      "text": {"format": {"type": "text"}}, "reasoning": {"effort": "low"}, "include": [], "user": "u",
      "temperature": 1, "store": false, "truncation": "disabled"})"},
    {"/api/v1/generate", R"({"prompt": "a", "memory": "b", "max_length": 9, "max_context_length": 99,
      "genkey": "k", "trim_stop": true, "stop_sequence": ["x"], "banned_tokens": ["y"], "rep_pen": 1.1,
      "sampler_order": [6, 0, 1, 3, 4, 2, 5], "images": [], "bypass_eos": false, "logit_bias": {}})"},
    {"/completion", R"({"prompt": "a", "n_predict": 9, "stream": false, "stop": ["x"], "temperature": 1,
      "model": "m", "samplers": ["top_k"], "logit_bias": [[3, 1.5]]})"},
};

// Every value of the tree, one after another, replaced by `wrong`.
size_t replace(bj::value& value, size_t at, const bj::value& wrong) {
  if (at == 0) {
    value = wrong;
    return 1;
  }
  size_t seen = 1;
  const auto visit = [&](bj::value& child) {
    if (seen > at) return;
    seen += replace(child, at - seen, wrong);
  };
  if (value.is_object())
    for (auto& field : value.get_object()) visit(field.value());
  if (value.is_array())
    for (bj::value& item : value.get_array()) visit(item);
  return seen;
}

TEST(DialectMutants, AreAnsweredOrRefusedByName) {
  const bj::value wrongs[] = {nullptr,           true, -7, "", "word", 1e300, bj::array(), bj::object(),
                              bj::array{nullptr}};
  size_t refused = 0, accepted = 0;
  for (const auto& [path, body] : kBodies) {
    const bj::value whole = *parse_json(body);
    bj::value counted = whole;
    const size_t count = replace(counted, SIZE_MAX, nullptr);
    for (size_t at = 0; at < count; ++at) {
      for (const bj::value& wrong : wrongs) {
        bj::value mutant = whole;
        replace(mutant, at, wrong);
        const std::string text = to_json(mutant);
        auto translated = dialects_test::translate(path, text);
        AnswerError error;
        if (translated.ok()) {
          auto parsed = translated->path == "/v1/completions" ? parse_completion_request(translated->body)
                                                              : parse_chat_request(translated->body);
          if (parsed.ok()) {
            ++accepted;
            continue;
          }
          error = {parsed.error().http_status, parsed.error().message, "", parsed.error().param, ""};
          rename_fields(translated->renames, error);
        } else {
          error = {translated.error().http_status, translated.error().message, "", translated.error().param,
                   ""};
        }
        ++refused;
        EXPECT_EQ(error.status, 400) << text;
        EXPECT_FALSE(error.message.empty()) << text;
        const std::string root = error.param.substr(0, error.param.find_first_of(".["));
        const bj::object* fields = whole.if_object();
        EXPECT_TRUE(root.empty() || fields->contains(root)) << error.param << ": " << text;
        EXPECT_TRUE(root.empty() == !mutant.is_object()) << error.message << ": " << text;
      }
    }
  }
  EXPECT_GT(refused, 300u);
  EXPECT_GT(accepted, 100u);
}

TEST(DialectAnswers, OfWorkersThatAreNoneOfOurs) {
  const auto say = [](std::string_view path, int status, std::string_view body) {
    auto answer = find_dialect("POST", path)->refuse();
    const Renames none;
    return AnswerTranslator(*answer, none).whole(status, body);
  };
  EXPECT_THAT(say("/v1/messages", 500, "<html>"), HasSubstr(R"("type":"api_error","message":"<html>")"));
  EXPECT_THAT(say("/v1/messages", 502, ""), HasSubstr("the worker answered 502"));
  EXPECT_THAT(say("/v1/messages", 404, R"({"error": "no such model"})"), HasSubstr("no such model"));
  EXPECT_THAT(say("/v1/messages", 200, "null"), HasSubstr("not understood"));
  EXPECT_THAT(say("/v1/responses", 429, R"({"object": "error", "message": "slow down"})"),
              HasSubstr("slow down"));
  EXPECT_THAT(say("/api/v1/generate", 400, R"({"error": {"message": "m", "param": "p"}})"),
              HasSubstr(R"("detail")"));
}

}  // namespace
}  // namespace troupe

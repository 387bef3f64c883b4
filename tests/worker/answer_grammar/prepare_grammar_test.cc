// Requests' formats and forced calls as grammars: random answers under them are what was asked for, read as
// clients get them.

#include "worker/input/prepare_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/worker/input/chat_server.h"
#include "worker/text/answer/answer_parser.h"
#include "worker/text/tokenizer/detokenizer.h"

namespace troupe::prepare_grammar_test {

using chat_server::bytes_with_line_breaks;
using chat_server::ChatServer;
using ::testing::HasSubstr;

constexpr const char* kTemplate =
    "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}{{ tools | tojson if tools }}"
    "{% if add_generation_prompt %}<|im_start|>{% if thinks is defined %}<think>\n{% endif %}{% endif %}";
// The first two are a turn's.
const std::vector<std::string> kSpecial = {"<|im_start|>",
                                           "<|im_end|>",
                                           "<tool_call>",
                                           "[TOOL_CALLS]",
                                           "<｜tool▁calls▁begin｜>",
                                           "<｜tool▁call▁begin｜>",
                                           "<｜tool▁sep｜>",
                                           "<｜tool▁call▁end｜>",
                                           "<｜tool▁calls▁end｜>",
                                           "<|tool_calls_section_begin|>",
                                           "<|tool_call_begin|>",
                                           "<|tool_call_argument_begin|>",
                                           "<|tool_call_end|>",
                                           "<|tool_calls_section_end|>",
                                           "</think>"};
const std::string kTools =
    R"(,"tools":[{"type":"function","function":{"name":"roll","strict":true,"parameters":{"type":"object","properties":)"
    R"({"sides":{"type":"integer","minimum":2,"maximum":20}},"required":["sides"],"additionalProperties":false}}},)"
    R"({"type":"function","function":{"name":"look-at","parameters":{"properties":{"what":{"type":"string","maxLength":4},)"
    R"("how":{"$ref":"#/$defs/h"}},"required":["what"],"additionalProperties":false,"$defs":{"h":{"enum":["up","down"]}}}}},)"
    R"({"type":"function","function":{"name":"wait"}}])";

struct Prepared {
  explicit Prepared(const std::string& fields, std::string_view tool_parser = "hermes",
                    std::string_view reasoning_parser = "none",
                    const std::vector<std::string>& special = kSpecial)
      : server(bytes_with_line_breaks(special), kTemplate) {
    server.model.config.eos_token_ids = {*server.tokenizer->token_to_id("<|im_end|>")};
    server.model.config.vocab_size = server.tokenizer->vocab_size();
    server.model.forms =
        model_forms(*server.tokenizer, server.chat_template.get(), nullptr, tool_parser, reasoning_parser);
    cache = std::make_unique<GrammarCache>(server.tokenizer.get(), server.model.config.vocab_size,
                                           server.model.config.eos_token_ids);
    server.model.grammar_cache = cache.get();
    auto made = prepare_request(server.model, GenerateRequest::Kind::kChat,
                                R"({"messages":[{"role":"user","content":"go"}])" + fields + "}", 1);
    if (made.ok()) {
      request = *std::move(made);
    } else {
      error = made.error();
    }
  }

  // A random answer that ends as soon as it may, parsed as a client gets it; false: it did not end.
  bool answer(uint32_t seed, AnswerDelta& delta, std::string& text) const {
    std::mt19937 random(seed);
    grammar::GrammarMatcher matcher(request.engine.grammar.compiled);
    const grammar::Vocabulary& vocabulary = request.engine.grammar.compiled->vocabulary();
    std::vector<uint32_t> bits(vocabulary.mask_words());
    Detokenizer detokenizer(server.tokenizer.get(), {}, {.shown_special = request.engine.shown_special});
    for (int i = 0; i < 2000; ++i) {
      EXPECT_TRUE(matcher.fill_mask(bits).ok());
      std::vector<TokenId> tokens;
      for (size_t id = 0; id < vocabulary.size(); ++id) {
        if ((bits[id / 32] >> (id % 32) & 1) != 0) tokens.push_back(static_cast<TokenId>(id));
      }
      const TokenId end = server.model.config.eos_token_ids[0];
      const bool may_end = std::find(tokens.begin(), tokens.end(), end) != tokens.end();
      if (tokens.empty()) return ADD_FAILURE() << "nothing may follow " << text, false;
      if (may_end && i > 40) break;
      // The marks that calls are made of are rare in free text.
      TokenId token = tokens[random() % tokens.size()];
      if (random() % 4 == 0) token = tokens.back();
      const bool may_open = std::find(tokens.begin(), tokens.end(), '{') != tokens.end();
      if (i == 0 && may_open && seed % 4 == 0) token = '{';
      if (token == end) break;
      EXPECT_TRUE(matcher.accept(token).value_or(false));
      text += detokenizer.push(token);
      if (matcher.is_finished()) break;
    }
    if (!matcher.is_accepting()) return false;
    text += detokenizer.finish();
    if (!request.syntax.parses()) {
      delta.content = text;
      return true;
    }
    AnswerParser parser(request.syntax, "chatcmpl-1", 0);
    for (const char byte : text) parser.push({&byte, 1}, 0, delta);
    parser.finish(delta);
    return true;
  }

  ChatServer server;
  std::unique_ptr<GrammarCache> cache;
  PreparedRequest request;
  std::optional<ApiError> error;
};

// The calls' pieces, put together.
std::vector<ToolCall> calls_of(const AnswerDelta& delta) {
  std::vector<ToolCall> calls;
  for (const ToolCall& piece : delta.calls) {
    const auto index = static_cast<size_t>(piece.index);
    if (index >= calls.size()) calls.resize(index + 1);
    calls[index].name += piece.name;
    calls[index].arguments += piece.arguments;
  }
  return calls;
}

// Written anew by hand: what kTools' schemas say.
bool passes(const ToolCall& call, bool is_held_to_all) {
  const auto parsed = parse_json(call.arguments);
  if (!parsed.ok() || !parsed->is_object()) return false;
  const bj::object& arguments = parsed->get_object();
  if (call.name == "roll") {
    const bj::value* sides = arguments.if_contains("sides");
    return arguments.size() == 1 && sides != nullptr && sides->is_int64() && sides->get_int64() >= 2 &&
           sides->get_int64() <= 20;
  }
  if (call.name != "look-at" && call.name != "wait") return false;
  if (!is_held_to_all) return true;
  if (call.name == "wait") return arguments.empty();
  const bj::value* how = arguments.if_contains("how");
  const bool how_passes =
      how == nullptr || (how->is_string() && (how->get_string() == "up" || how->get_string() == "down"));
  return arguments.contains("what") && arguments.at("what").is_string() && how_passes &&
         arguments.size() == (how == nullptr ? 1u : 2u);
}

class ForcedCalls : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Forms, ForcedCalls,
                         ::testing::Values("hermes", "llama3_json", "mistral", "deepseek_v31", "deepseek_v3",
                                           "kimi_k2"));

TEST_P(ForcedCalls, ComeAsTheyWereAskedFor) {
  const Prepared required(kTools + R"(,"tool_choice":"required")", GetParam());
  const Prepared single(kTools + R"(,"tool_choice":"required","parallel_tool_calls":false)", GetParam());
  const Prepared named(
      kTools +
          R"(,"tool_choice":{"type":"function","function":{"name":"look-at"}},"parallel_tool_calls":false)",
      GetParam());
  std::set<std::string> names;
  size_t most = 0, ended = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    for (const Prepared* prepared : {&required, &single, &named}) {
      ASSERT_FALSE(prepared->error) << prepared->error->message;
      AnswerDelta delta;
      std::string text;
      if (!prepared->answer(seed, delta, text)) continue;
      ++ended;
      const std::vector<ToolCall> calls = calls_of(delta);
      ASSERT_FALSE(calls.empty()) << text;
      EXPECT_TRUE(delta.content.find_first_not_of(" \n") == std::string::npos) << text;
      EXPECT_TRUE(prepared == &required || calls.size() == 1) << text;
      most = std::max(most, calls.size());
      for (const ToolCall& call : calls) {
        EXPECT_TRUE(passes(call, /*is_held_to_all=*/true)) << call.name << call.arguments << " in " << text;
        EXPECT_TRUE(prepared != &named || call.name == "look-at") << text;
        names.insert(call.name);
      }
    }
  }
  EXPECT_GT(ended, 100u);
  EXPECT_GT(most, 1u);
  EXPECT_EQ(names.size(), 3u);
}

TEST_P(ForcedCalls, OfStrictFunctionsPassWhereTheModelCalls) {
  const Prepared prepared(kTools, GetParam());
  ASSERT_FALSE(prepared.error) << prepared.error->message;
  size_t with = 0, without = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    AnswerDelta delta;
    std::string text;
    if (!prepared.answer(seed, delta, text)) continue;
    const std::vector<ToolCall> calls = calls_of(delta);
    (calls.empty() ? without : with) += 1;
    for (const ToolCall& call : calls)
      EXPECT_TRUE(passes(call, /*is_held_to_all=*/false)) << call.name << call.arguments << " in " << text;
  }
  EXPECT_GT(with, 5u);
  EXPECT_GT(without, 5u);
}

TEST(PrepareGrammar, CallsOfOlderMistralModelsAreAList) {
  auto special = kSpecial;
  const Prepared old(kTools + R"(,"tool_choice":"required")", "mistral", "none", special);
  special.push_back("[ARGS]");
  const Prepared newer(kTools + R"(,"tool_choice":"required")", "mistral", "none", special);
  AnswerDelta delta;
  std::string text;
  ASSERT_TRUE(old.answer(2, delta, text));
  EXPECT_TRUE(text.starts_with("[TOOL_CALLS][{\"name\":") || text.starts_with("[TOOL_CALLS] [{\"name\":"))
      << text;
  text.clear();
  AnswerDelta other;
  ASSERT_TRUE(newer.answer(2, other, text));
  EXPECT_THAT(text, HasSubstr("[ARGS]{"));
  for (const ToolCall& call : calls_of(other)) EXPECT_TRUE(passes(call, true)) << text;
}

TEST(PrepareGrammar, ThoughtsStandBeforeTheContentAndAreFree) {
  const std::string format = R"(,"structured_outputs":{"regex":"[0-9]{4}"})";
  const Prepared opened(format + R"(,"chat_template_kwargs":{"thinks":true})", "none", "qwen3");
  const Prepared closed(format, "none", "qwen3");
  ASSERT_FALSE(opened.error || closed.error);
  EXPECT_TRUE(opened.request.syntax.in_thought);
  size_t thoughts = 0, without = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    for (const Prepared* prepared : {&opened, &closed}) {
      AnswerDelta delta;
      std::string text;
      if (!prepared->answer(seed, delta, text)) continue;
      EXPECT_EQ(delta.content.size(), 4u) << text;
      EXPECT_EQ(delta.content.find_first_not_of("0123456789"), std::string::npos) << text;
      (delta.reasoning.empty() ? without : thoughts) += 1;
    }
  }
  EXPECT_GT(thoughts, 10u);
  EXPECT_GT(without, 10u);
}

TEST(PrepareGrammar, AFormatMayGiveWayToCalls) {
  const Prepared prepared(
      kTools +
      R"(,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"const":7}}})");
  ASSERT_FALSE(prepared.error) << prepared.error->message;
  size_t calls = 0, contents = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    AnswerDelta delta;
    std::string text;
    if (!prepared.answer(seed, delta, text)) continue;
    EXPECT_TRUE(!delta.calls.empty() || delta.content == "7") << text;
    (delta.calls.empty() ? contents : calls) += 1;
  }
  EXPECT_GT(calls, 0u);
  EXPECT_GT(contents, 0u);
}

TEST(PrepareGrammar, SpecialTokensAreNoTextOfAnAnswer) {
  const Prepared prepared(R"(,"guided_json":{"type":"string"})");
  grammar::GrammarMatcher matcher(prepared.request.engine.grammar.compiled);
  ASSERT_TRUE(matcher.accept_text("\"a").value());
  EXPECT_FALSE(matcher.accept(*prepared.server.tokenizer->token_to_id("<tool_call>")).value());
  EXPECT_TRUE(matcher.accept_text("<tool_call>\"").value()) << "its spelling is text";
}

TEST(PrepareGrammar, WhatCannotBeIsNamed) {
  const auto fault = [](const std::string& fields, std::string_view tool_parser = "hermes") {
    const Prepared prepared(fields, tool_parser);
    return prepared.error ? prepared.error->param + ": " + prepared.error->message : std::string("accepted");
  };
  EXPECT_THAT(fault(kTools + R"(,"tool_choice":"required")", "none"),
              HasSubstr("tool_choice: 'tool_choice' is not supported"));
  EXPECT_THAT(fault(kTools + R"(,"tool_choice":"required")", "pythonic"), HasSubstr("pythonic"));
  EXPECT_THAT(fault(kTools, "pythonic"), HasSubstr("strict"));
  EXPECT_EQ(fault(kTools, "none"), "accepted");
  EXPECT_THAT(fault(R"(,"tool_choice":"required")"), HasSubstr("tool_choice: "));
  EXPECT_THAT(fault(kTools + R"(,"tool_choice":{"type":"function","function":{"name":"fly"}})"),
              HasSubstr("fly"));
  EXPECT_THAT(
      fault(
          R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"a":{"not":{"format":"x"}}}}}}],)"
          R"("tool_choice":"required")"),
      HasSubstr("tools[0].function.parameters"));
  EXPECT_THAT(
      fault(
          R"(,"structured_outputs":{"structural_tag":{"structures":[{"begin":"<a","schema":{},"end":">"}],"triggers":["<b"]}})"),
      HasSubstr("structures[0].begin"));
  EXPECT_THAT(fault(R"(,"structured_outputs":{"structural_tag":{"format":{"type":"dance"}}})"),
              HasSubstr("format.type \"dance\""));
}

TEST(PrepareGrammar, AResumedAnswerIsHeldToItsGrammar) {
  const std::string fields = R"(,"stream":true,"guided_regex":"ab|abc?d","troupe_resume":{"seed":1,"ids":)";
  EXPECT_EQ(Prepared(fields + "[97]}").request.ended, FinishReason::kNone);
  EXPECT_EQ(Prepared(fields + "[97,98]}").request.ended, FinishReason::kNone);
  EXPECT_EQ(Prepared(fields + "[97,98,99,100]}").request.ended, FinishReason::kStop) << "nothing may follow";
  const Prepared other(fields + "[97,120]}");
  ASSERT_TRUE(other.error);
  EXPECT_EQ(other.error->param, "troupe_resume.ids[1]");
}

// A mark is in each part that may end with another, so the parts grow with the marks' square.
TEST(PrepareGrammar, RefusesTagsWhoseMarksComeToTooMuch) {
  std::string ends, tags, triggers;
  for (int i = 0; i < 400; ++i) {
    const std::string comma = i == 0 ? "" : ",";
    const std::string mark = "\"<" + std::to_string(i) + ">\"";
    ends += comma + mark;
    triggers += comma + mark;
    tags += comma + R"({"begin":)" + mark + R"(,"schema":true,"end":"."})";
  }
  const Prepared tag(
      R"(,"structured_outputs":{"structural_tag":{"format":{"type":"tag","begin":"<","content":)"
      R"({"type":"any_text"},"end":[)" +
      ends + "]}}}");
  ASSERT_TRUE(tag.error);
  EXPECT_THAT(tag.error->message, HasSubstr("format.end has too many texts"));
  const Prepared structures(R"(,"response_format":{"type":"structural_tag","structures":[)" + tags +
                            R"(],"triggers":[)" + triggers + "]}");
  ASSERT_TRUE(structures.error);
  EXPECT_THAT(structures.error->message, HasSubstr("triggers has too many texts"));
}

// The first mask is filled while the request is prepared: one that cannot be is refused before its prompt is
// computed.
TEST(PrepareGrammar, RefusesAGrammarOfTooManyFirstTokens) {
  const auto tokenizer = Tokenizer::load(TROUPE_SOURCE_DIR "/configs/demo-model").value();
  GrammarCache tokens(tokenizer.get(), tokenizer->vocab_size(), {});
  // Any text may be in any of the parts of each way, so the parser keeps all of them behind every token.
  const auto any_of = [](int count) {
    std::vector<grammar::Format> ways;
    for (int i = 0; i < count; ++i) {
      const std::string mark = absl::StrCat("<", i, ">"), other = absl::StrCat("<", i + 1, ">");
      ways.push_back(grammar::Format::sequence(
          {grammar::Format::free({mark}), grammar::Format::repeat(grammar::Format::free({other}), 0, count),
           grammar::Format::literal(mark)}));
    }
    return grammar::Format::either(ways);
  };
  EXPECT_TRUE(tokens.find(any_of(10)).ok());
  const auto all = tokens.find(any_of(50));
  ASSERT_FALSE(all.ok());
  EXPECT_THAT(to_std(all.status().message()), HasSubstr("too complex"));
}

}  // namespace troupe::prepare_grammar_test

// Requests' formats as grammars: random answers under them are what was asked for, read as clients get them.

#include "worker/input/prepare_grammar.h"

#include <gmock/gmock.h>

#include "tests/worker/answer_grammar/prepared_answers.h"

namespace troupe::prepare_grammar_test {

using ::testing::HasSubstr;

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
  EXPECT_THAT(fault(kTools + R"(,"tool_choice":"required")", "gemma4"), HasSubstr("gemma4"));
  EXPECT_THAT(fault(kTools, "gemma4"), HasSubstr("strict"));
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

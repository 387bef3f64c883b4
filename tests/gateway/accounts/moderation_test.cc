#include "gateway/access/moderation.h"

#include <gtest/gtest.h>

#include <random>

#include "common/json/json.h"
#include "gateway/access/moderated_prompt.h"

namespace troupe {
namespace {

using Kind = ModerationVerdict::Kind;

constexpr std::string_view kText =
    "One. Two? Three!\nFour 3.5 is no end... Five \u4f60\u597d\u3002\u4e16\u754c\uff01 And this one goes on "
    "and on without any "
    "end until it is cut at a space somewhere \xf0\x9f\x98\x80\xf0\x9f\x98\x80\xf0\x9f\x98\x80 yes. z";

std::vector<std::string> windows_of(const std::vector<std::string>& pieces, size_t least) {
  SentenceWindows windows(least);
  std::vector<std::string> out;
  for (const std::string& piece : pieces) {
    windows.feed(piece);
    while (auto window = windows.next()) out.push_back(*window);
  }
  if (std::string rest = windows.rest(); !rest.empty()) out.push_back(rest);
  return out;
}

TEST(SentenceWindows, EndWithSentencesAtOrAfterTheLeastSize) {
  const auto windows = windows_of({"One. Two? Three!\nFour 3.5 is no end yet. Tail"}, 5);
  EXPECT_EQ(windows,
            (std::vector<std::string>{"One. Two? ", "Three!\n", "Four 3.5 is no end ", "yet. Tail"}));
}

TEST(SentenceWindows, EveryCutOfTheTextGivesTheSameWindows) {
  for (const size_t least : {1, 2, 3, 5, 8, 20, 60}) {
    const auto whole = windows_of({std::string(kText)}, least);
    std::string joined;
    for (const std::string& window : whole) joined += window;
    EXPECT_EQ(joined, kText);
    for (size_t cut = 0; cut <= kText.size(); ++cut)
      ASSERT_EQ(windows_of({std::string(kText.substr(0, cut)), std::string(kText.substr(cut))}, least), whole)
          << least << " cut at " << cut;
    std::vector<std::string> bytes;
    for (const char c : kText) bytes.emplace_back(1, c);
    ASSERT_EQ(windows_of(bytes, least), whole) << least;
    for (const std::string& window : whole) EXPECT_LE(window.size(), 4 * least + 4);
  }
}

TEST(SentenceWindows, ALongTextWithoutEndsIsCutBetweenCharacters) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += "\xf0\x9f\x98\x80";
  for (const std::string& window : windows_of({text}, 10)) EXPECT_TRUE(is_valid_utf8(window));
}

std::string event(std::string_view text, int64_t choice = 0, const char* finish = nullptr) {
  bj::object delta, one;
  delta["content"] = bj::string(text);
  one["index"] = choice;
  one["delta"] = delta;
  one["finish_reason"] = finish == nullptr ? bj::value(nullptr) : bj::value(finish);
  bj::object chunk;
  chunk["id"] = "chat-1";
  chunk["object"] = "chat.completion.chunk";
  chunk["choices"] = bj::array{one};
  return "data: " + to_json(chunk) + "\n\n";
}

std::string text_of(std::string_view events) {
  std::string text;
  while (!events.empty()) {
    const size_t end = events.find("\n\n") + 2;
    text += text_of_event(events.substr(0, end)).text;
    events.remove_prefix(end);
  }
  return text;
}

TEST(HeldEvents, WaitForTheVerdictOfTheirLastWindow) {
  HeldEvents held(5, false);
  held.take(event("Hello th"));
  EXPECT_FALSE(held.next_window());
  EXPECT_EQ(held.release(), "");
  held.take(event("ere. And"));
  const auto window = held.next_window();
  ASSERT_TRUE(window);
  EXPECT_EQ(window->text, "Hello there. ");
  EXPECT_EQ(held.release(), "") << "no verdict yet";
  held.verdict({});
  EXPECT_EQ(held.release(), event("Hello th")) << "the other has text of a later window, too";
  held.take(event("", 0, "stop"));
  EXPECT_EQ(held.next_window()->text, "And");
  held.verdict({});
  EXPECT_EQ(held.release(), event("ere. And") + event("", 0, "stop"));
  EXPECT_EQ(held.held_bytes(), 0u);
}

TEST(HeldEvents, ARedactedWindowsTextIsReplacedWhereItBegan) {
  HeldEvents held(4, false);
  for (const char* piece : {"Good. B", "ad on", "e. Fine", "."}) held.take(event(piece));
  held.take(event("", 0, "stop"));
  std::string sent;
  while (const auto window = held.next_window()) {
    ModerationVerdict verdict;
    if (window->text.find("Bad") != std::string::npos) verdict = {Kind::kRedact, "[removed] ", ""};
    held.verdict(verdict);
    sent += held.release();
  }
  EXPECT_EQ(text_of(sent), "Good. [removed] Fine.");
  EXPECT_NE(sent.find("\"finish_reason\":\"stop\""), std::string::npos);
}

TEST(HeldEvents, ChoicesHaveWindowsOfTheirOwnAndEventsTheirOrder) {
  HeldEvents held(4, false);
  held.take(event("a", 0));
  held.take(event("Whole one. ", 1));
  const auto window = held.next_window();
  ASSERT_TRUE(window);
  EXPECT_EQ(window->choice, 1);
  held.verdict({});
  EXPECT_EQ(held.release(), "") << "the first choice's event is before it";
  held.end();
  EXPECT_EQ(held.next_window()->choice, 0);
  held.verdict({});
  EXPECT_EQ(held.release(), event("a", 0) + event("Whole one. ", 1));
}

TEST(HeldEvents, WithoutTextNothingIsHeld) {
  HeldEvents held(4, false);
  held.take("data: {\"choices\":[],\"usage\":{}}\n\n");
  held.take("data: [DONE]\n\n");
  held.take(": comment\n\n");
  EXPECT_EQ(held.release(), "data: {\"choices\":[],\"usage\":{}}\n\ndata: [DONE]\n\n: comment\n\n");
}

TEST(HeldEvents, RandomCutsGiveTheSameTextAndWindows) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    HeldEvents held(1 + random() % 30, false);
    std::string sent, windows;
    const auto ask = [&] {
      while (const auto window = held.next_window()) {
        windows += window->text;
        held.verdict({});
      }
      sent += held.release();
    };
    for (size_t at = 0; at < kText.size();) {
      size_t bytes = 1 + random() % 9;
      while (at + bytes < kText.size() && (static_cast<unsigned char>(kText[at + bytes]) & 0xc0U) == 0x80)
        ++bytes;
      held.take(event(kText.substr(at, bytes)));
      at += bytes;
      ask();
    }
    held.end();
    ask();
    ASSERT_EQ(text_of(sent), kText);
    ASSERT_EQ(windows, kText);
  }
}

TEST(HeldEvents, NoTokensOfARedactedTextPass) {
  HeldEvents held(1, true);
  held.take(R"(data: {"choices":[{"index":0,"delta":{"content":"bad"},)"
            R"("logprobs":{"content":[{"token":"bad"}]},"token_ids":[7]}]})"
            "\n\n");
  held.end();
  ASSERT_TRUE(held.next_window());
  held.verdict({Kind::kRedact, "[gone]", "why"});
  const std::string sent = held.release();
  EXPECT_EQ(text_of(sent), "[gone]");
  EXPECT_EQ(sent.find("bad"), std::string::npos) << sent;
  EXPECT_EQ(sent.find("token_ids"), std::string::npos) << sent;
}

TEST(HeldEvents, CallsAreJudgedLikeText) {
  HeldEvents held(1000, false);
  const std::string begin =
      R"(data: {"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"name":"f","arguments":"{\"a"}}]}}]})"
      "\n\n";
  const std::string end =
      R"(data: {"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"arguments":"\":1}"}}]}}]})"
      "\n\n";
  held.take(begin);
  held.take(end);
  EXPECT_EQ(held.release(), "");
  held.end();
  const auto window = held.next_window();
  ASSERT_TRUE(window);
  EXPECT_EQ(window->text, "f\n{\"a\":1}");
  EXPECT_TRUE(window->has_calls);
  held.verdict({});
  EXPECT_EQ(held.release(), begin + end);
}

TEST(HeldEvents, ThoughtsUnderTwoNamesAreOneText) {
  const std::string both =
      R"(data: {"choices":[{"index":0,"delta":{"reasoning":"bad","reasoning_content":"bad"}}]})"
      "\n\n";
  EXPECT_EQ(text_of_event(both).text, "bad");
  EXPECT_EQ(with_event_text(both, "[gone]"),
            R"(data: {"choices":[{"index":0,"delta":{"reasoning":"[gone]","reasoning_content":"[gone]"}}]})"
            "\n\n");
  EXPECT_EQ(text_of_event(R"(data: {"choices":[{"delta":{"reasoning":"a","reasoning_content":"b"}}]})").text,
            "ab");
}

TEST(HeldEvents, NotesComeBeforeTheLastEvent) {
  HeldEvents held(1, true);
  held.take(event("Fine."));
  held.take("data: [DONE]\n\n");
  held.end();
  ASSERT_TRUE(held.next_window());
  held.verdict({Kind::kAnnotate, "", "why"});
  const std::string sent = held.release();
  EXPECT_TRUE(sent.ends_with("data: [DONE]\n\n")) << sent;
  EXPECT_NE(sent.find(": moderation "), std::string::npos);
}

TEST(Verdict, IsReadStrictly) {
  EXPECT_EQ(parse_verdict(R"({"verdict":"allow"})")->kind, Kind::kAllow);
  EXPECT_EQ(parse_verdict(R"({"verdict":"redact","text":"x","note":"n"})")->text, "x");
  for (const char* bad :
       {"", "[]", "{}", R"({"verdict":"maybe"})", R"({"verdict":"redact"})", R"({"verdict":1})"})
    EXPECT_FALSE(parse_verdict(bad)) << bad;
  const char* flagged = R"({"results":[{"flagged":true,"categories":{"hate":true,"violence":false}}]})";
  EXPECT_EQ(parse_openai_moderation(flagged, Kind::kBlock)->kind, Kind::kBlock);
  EXPECT_EQ(parse_openai_moderation(flagged, Kind::kAnnotate)->note, "hate");
  EXPECT_EQ(parse_openai_moderation(R"({"results":[{"flagged":false}]})", Kind::kBlock)->kind, Kind::kAllow);
  EXPECT_FALSE(parse_openai_moderation(R"({"results":[]})", Kind::kBlock));
  EXPECT_FALSE(parse_openai_moderation(R"({"results":[{}]})", Kind::kBlock));
}

TEST(Prompt, IsWhatCameAfterTheLastAnswer) {
  EXPECT_EQ(text_of_prompt(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},
    {"role":"user","content":[{"type":"text","text":"c"},{"type":"image_url"}]}]})"),
            "c");
  EXPECT_EQ(text_of_prompt(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},
    {"role":"user","content":"c"},{"role":"assistant","content":"Sure, "}]})"),
            "c")
      << "an answer's beginning that the client has put there answers nothing";
  EXPECT_EQ(text_of_prompt(R"({"prompt":"x"})"), "x");
  EXPECT_EQ(text_of_prompt(R"({"prompt":[1,2]})"), "");
  EXPECT_EQ(text_of_prompt(R"({"input":["x","y"]})"), "x\ny");
}

TEST(Prompt, IsEverythingThatTheClientSent) {
  const ModeratedPrompt prompt = whole_prompt(R"({"persona":{"name":"mira","user":"u","variables":{"k":"v"}},
    "tools":[{"type":"function","function":{"name":"f","description":"described"}}],
    "messages":[{"role":"user","content":"a"},{"role":"assistant","content":""},
    {"role":"user","content":[{"type":"text","text":"b"},{"type":"image_url","image_url":{"url":"no"}}]},
    {"role":"assistant","content":"Sure"}],"assistant_prefill":"and so"})");
  EXPECT_TRUE(prompt.text.ends_with("u\nv\na\nb\nSure\nand so")) << prompt.text;
  EXPECT_NE(prompt.text.find("described"), std::string::npos);
  EXPECT_EQ(prompt.text.find("mira"), std::string::npos);
  EXPECT_FALSE(prompt.token_ids);
}

TEST(Prompt, ByTokenIdsIsKnown) {
  EXPECT_TRUE(whole_prompt(R"({"prompt":[1,2]})").token_ids);
  EXPECT_TRUE(whole_prompt(R"({"prompt":["a",[1]]})").token_ids);
  EXPECT_FALSE(whole_prompt(R"({"prompt":["a"]})").token_ids);
}

TEST(Prompt, OfAPromptThatIsTooLongTheNewestIsJudged) {
  const ModeratedPrompt prompt = whole_prompt(R"({"prompt":")" + std::string(100'000, 'x') + R"(end"})");
  EXPECT_EQ(prompt.text.size(), size_t{64} << 10);
  EXPECT_TRUE(prompt.text.ends_with("xend"));
}

TEST(WholeAnswer, HasOtherTextsWhereTheyWereJudged) {
  const char* body =
      R"({"choices":[{"index":0,"message":{"content":"bad"},"finish_reason":"stop"},{"index":1,"message":{"content":"worse"},"finish_reason":"stop"}]})";
  EXPECT_EQ(texts_of_answer(body), (std::vector<std::string>{"bad", "worse"}));
  const std::string out = with_answer_texts(body, {{"good", false}, {std::nullopt, true}});
  EXPECT_EQ(texts_of_answer(out), (std::vector<std::string>{"good", ""}));
  EXPECT_NE(out.find("content_filter"), std::string::npos);
}

TEST(WholeAnswer, NeitherTokensNorCallsOfAChangedTextPass) {
  const char* body =
      R"({"choices":[{"message":{"content":"bad"},"logprobs":{"content":[{"token":"bad"}]}},
      {"message":{"content":null,"tool_calls":[{"function":{"name":"f","arguments":"bad"}}]}}]})";
  EXPECT_EQ(texts_of_answer(body), (std::vector<std::string>{"bad", "f\nbad"}));
  const std::string out = with_answer_texts(body, {{"good", false}, {"good", false}});
  EXPECT_EQ(out.find("bad"), std::string::npos) << out;
  EXPECT_NE(out.find("content_filter"), std::string::npos) << out;
}

TEST(BlockedStream, EndsWithAReason) {
  const std::string events = blocked_events(R"({"id":"x","object":"chat.completion.chunk","choices":[]})", 0);
  EXPECT_NE(events.find(R"("finish_reason":"content_filter")"), std::string::npos);
  EXPECT_NE(events.find(R"("id":"x")"), std::string::npos);
  EXPECT_TRUE(events.ends_with("data: [DONE]\n\n"));
}

}  // namespace
}  // namespace troupe

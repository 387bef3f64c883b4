// Expected cached tokens of prompts that part from what their conversation had before.

#include "gateway/route/key/prompt_history.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/gateway/route/cluster.h"

namespace troupe::route {
namespace prompt_history_test {

using namespace testing_cluster;

constexpr int64_t kBytesPerToken = 4;

std::string words(const std::string& name, size_t bytes) {
  std::string text = name + ":";
  while (text.size() < bytes) text += " " + std::to_string(text.size() * 7919 % 1009);
  return text.substr(0, bytes);
}

using Texts = std::vector<std::string>;

// Roles alternate behind the card.
GenerateRequest chat(const Texts& texts) {
  GenerateRequest request;
  request.kind = GenerateRequest::Kind::kChat;
  request.model = "demo";
  for (size_t i = 0; i < texts.size(); ++i) {
    const Role role = i == 0 ? Role::kSystem : i % 2 == 1 ? Role::kUser : Role::kAssistant;
    request.messages.push_back(ChatMessage{role, texts[i], {}});
  }
  return request;
}

GenerateRequest plain(const std::string& prompt) {
  GenerateRequest request;
  request.kind = GenerateRequest::Kind::kCompletion;
  request.model = "demo";
  request.prompt = prompt;
  return request;
}

// One gateway and one node that caches all it computed: its answers count what an earlier prompt had, too.
class World {
 public:
  World() : router_(router_over(cluster(1))) {
    // So that lengths are estimated as the node counts them.
    for (int i = 0; i < 20; ++i) ask(plain(words("other " + std::to_string(i), 3000)), "");
  }
  // Returns the error of the expectation, as a share of the prompt.
  double ask(const GenerateRequest& request, const std::string& session) {
    PrefixKey key = make_prefix_key(request, session);
    router_.refine(key);
    now_ += 1000;
    const Candidate candidate = router_.decide(key, "demo", at_ms(now_)).order[0];
    std::string text;
    for (const ChatMessage& m : request.messages) text += m.content;
    if (const auto* prompt = std::get_if<std::string>(&request.prompt); request.messages.empty())
      text = *prompt;
    size_t common = 0;
    for (const std::string& before : computed_) {
      const auto parts = std::mismatch(text.begin(), text.end(), before.begin(), before.end());
      common = std::max(common, static_cast<size_t>(parts.first - text.begin()));
    }
    const auto prompt_tokens = static_cast<int64_t>(text.size()) / kBytesPerToken;
    const auto cached = std::min(static_cast<int64_t>(common) / kBytesPerToken / 16 * 16, prompt_tokens - 1);
    InFlight sent = router_.on_sent(key, "demo", candidate, at_ms(now_));
    router_.first_byte(key, sent, at_ms(now_ + 10));
    router_.on_finished(key, sent, AnswerCounts{prompt_tokens, kAnswer, cached, true}, at_ms(now_ + 20));
    computed_.push_back(text + answer());
    asked_ += 1;
    return std::abs(static_cast<double>(candidate.expect_cached - cached)) /
           static_cast<double>(prompt_tokens);
  }
  // To the request asked next.
  std::string answer() const { return words("answer " + std::to_string(asked_), kAnswer * kBytesPerToken); }
  std::string last_answer() const {
    return words("answer " + std::to_string(asked_ - 1), kAnswer * kBytesPerToken);
  }

  static constexpr int64_t kAnswer = 60;

 private:
  Router router_;
  std::vector<std::string> computed_;
  int asked_ = 0;
  int64_t now_ = 0;
};

// A conversation of eight turns, asked one after the other; the next user turn is added.
Texts talk(World& world, const std::string& session, const std::string& name) {
  Texts texts{words("card of " + name, 2400), words(name + " asks", 300)};
  for (int turn = 0; turn < 8; ++turn) {
    EXPECT_LT(world.ask(chat(texts), session), 0.1) << "turn " << turn;
    texts.push_back(world.last_answer());
    texts.push_back(words(name + " goes on " + std::to_string(turn), 300));
  }
  return texts;
}

TEST(PromptHistory, ExpectsWhatIsCachedOfAnEditedConversation) {
  World world;
  for (const std::string session : {"named", ""}) {
    const std::string name = "Ruvo " + session;
    const Texts texts = talk(world, session, name);
    Texts edited = texts;
    edited[3] = words("edited", 300);
    EXPECT_LT(world.ask(chat(edited), session), 0.1) << "edited early";
    EXPECT_LT(world.ask(chat(edited), session), 0.1) << "edited, again";
    EXPECT_LT(world.ask(chat(texts), session), 0.1) << "as it was";
    Texts shorter(texts.begin(), texts.begin() + 8);
    shorter.back() = words("another way", 280);
    EXPECT_LT(world.ask(chat(shorter), session), 0.1) << "from the middle on";
    Texts other_first = texts;
    other_first[1] = words("another beginning", 300);
    EXPECT_LT(world.ask(chat(other_first), session), 0.1) << "the first user turn";
  }
}

// Lore stands some messages before the end, and moves with it.
TEST(PromptHistory, ExpectsWhatIsCachedBeforeLoreInTheMiddle) {
  World world;
  for (const std::string session : {"named", ""}) {
    Texts texts = talk(world, session, "Dazin " + session);
    for (int turn = 0; turn < 3; ++turn) {
      Texts with_lore = texts;
      const std::vector<std::string> lore{words("lore", 500), words("and more", 100)};
      with_lore.insert(with_lore.end() - 4, lore.begin(), lore.end());
      EXPECT_LT(world.ask(chat(with_lore), session), 0.1) << turn;
      texts.push_back(world.last_answer());
      texts.push_back(words("then " + std::to_string(turn), 300));
    }
    Texts early = texts;
    const std::vector<std::string> lore{words("old lore", 500), words("and older", 100)};
    early.insert(early.begin() + 3, lore.begin(), lore.end());
    EXPECT_LT(world.ask(chat(early), session), 0.1) << "far ahead";
  }
}

TEST(PromptHistory, ExpectsWhatIsCachedOfPlainTexts) {
  World world;
  for (const std::string session : {"named", ""}) {
    for (const size_t card : {1200u, 2400u, 9000u}) {
      const std::string name = std::to_string(card) + session;
      const std::string own = session.empty() ? "" : name;
      std::string prompt = words("text of " + name, card) + words("\nQ", 200);
      for (int turn = 0; turn < 8; ++turn) {
        EXPECT_LT(world.ask(plain(prompt), own), 0.1) << name << ", turn " << turn;
        prompt += world.last_answer() + words("\nQ" + std::to_string(turn), 150);
      }
      EXPECT_LT(world.ask(plain(prompt), own), 0.1) << name;
      const std::string edited = prompt.substr(0, card + 50) + "changed" + prompt.substr(card + 60);
      EXPECT_LT(world.ask(plain(edited), own), 0.1) << name << ", edited";
      for (int question = 0; question < 5; ++question) {
        const std::string other =
            words("text of " + name, card) + words("\nnew " + std::to_string(question), 200);
        const std::string new_own = session.empty() ? "" : "q" + std::to_string(question) + name;
        EXPECT_LT(world.ask(plain(other), new_own), 0.1) << name << ", question " << question;
      }
    }
  }
}

// Turns that another gateway saw are no edit: the node's own word counts.
TEST(PromptHistory, ConversationThatWentOnElsewhereIsHeldAsTheNodeSays) {
  PromptHistory history(1000);
  Texts texts{words("card", 2000), words("hello", 200)};
  RequestTokens tokens;
  tokens.prompt = 550;
  history.learn(make_prefix_key(chat(texts), "s"), tokens, 50);
  for (int i = 0; i < 6; ++i) texts.push_back(words("turn " + std::to_string(i), 200));
  EXPECT_FALSE(history.common(make_prefix_key(chat(texts), "s")).has_value());
  EXPECT_FALSE(history.common(make_prefix_key(chat(texts), "t")).has_value()) << "never seen";
  texts[1] = words("edited", 200);
  const auto common = history.common(make_prefix_key(chat(texts), "s"));
  ASSERT_TRUE(common.has_value());
  EXPECT_NEAR(static_cast<double>(common->tokens), 500, 5);
  EXPECT_TRUE(common->in_last_prompt);
}

TEST(PromptHistory, IsBounded) {
  PromptHistory history(500);
  RequestTokens tokens;
  tokens.prompt = 500;
  for (int i = 0; i < 300; ++i) {
    const std::string name = std::to_string(i);
    history.learn(make_prefix_key(chat({words("card " + name, 500), words("q", 50)}), name), tokens, 10);
  }
  EXPECT_EQ(history.links(), 500u);
  EXPECT_LT(history.bytes_max(), 100'000u);
}

}  // namespace prompt_history_test
}  // namespace troupe::route

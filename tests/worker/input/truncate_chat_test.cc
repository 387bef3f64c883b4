#include "worker/input/truncate_chat.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "worker/input/encode_chat.h"
#include "worker/input/encode_text.h"
#include "worker/input/prompt_pipeline.h"
#include "worker/text/tokenizer/tokenizer_config.h"

namespace troupe::truncate_chat_test {

constexpr const char* kModelDir = TROUPE_SOURCE_DIR "/configs/demo-model";
constexpr int32_t kWindow = 512;
const std::string kCard = "You are Song Jiang, who keeps his word, and speaks of the marsh.";

struct Demo {
  std::unique_ptr<Tokenizer> tokenizer = Tokenizer::load(kModelDir).value();
  std::unique_ptr<ChatTemplate> chat_template = ChatTemplate::load(kModelDir).value();
};

class TruncateChat : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { demo = std::make_unique<Demo>(); }
  static void TearDownTestSuite() { demo.reset(); }
  void SetUp() override {
    model.name = "demo-model";
    model.tokenizer = demo->tokenizer.get();
    model.chat_template = demo->chat_template.get();
    model.special_tokens = demo->tokenizer->config().variables();
    model.config = load_model_config(kModelDir).value();
    model.total_count_max = kWindow;
    model.prompt_bytes_max = prompt_bytes_bound(*demo->tokenizer, kWindow);
    request.max_tokens = 40;
    request.truncation.emplace();
    say(Role::kSystem, kCard);
  }

  void say(Role role, std::string text) {
    request.messages.emplace_back();
    request.messages.back().role = role;
    request.messages.back().content = std::move(text);
  }
  void turn(int number) {
    if (number > 0)
      say(Role::kAssistant, "Answer " + std::to_string(number) + ", as the marsh is wide and cold.");
    say(Role::kUser, "Turn " + std::to_string(number) + ": the lantern swings over the river tonight.");
  }
  std::string text_of(const std::vector<TokenId>& ids) const { return demo->tokenizer->decode(ids, false); }

  static std::unique_ptr<Demo> demo;
  ServedModel model;
  GenerateRequest request;
};
std::unique_ptr<Demo> TruncateChat::demo;

TEST_F(TruncateChat, LeavesAChatAloneThatFits) {
  turn(0);
  GenerateRequest asked = request;
  auto chat = truncate_chat(model, asked);
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  EXPECT_EQ(chat->places.left_out, 0);
  EXPECT_EQ(chat->prompt, *encode_chat(model, request, encoding_of(request)));
}

// The cached share of a conversation is that of equal beginnings: all but a few turns extend the prompt of
// the turn before them.
TEST_F(TruncateChat, AConversationThatGrowsKeepsItsBeginningForManyTurns) {
  std::vector<TokenId> last, beginning;
  int breaks = 0, cuts_ahead = 0;
  for (int number = 0; number < 80; ++number) {
    turn(number);
    GenerateRequest asked = request;
    auto chat = truncate_chat(model, asked);
    ASSERT_TRUE(chat.ok()) << chat.error().message;
    ASSERT_LE(chat->prompt.size() + 40, static_cast<size_t>(kWindow));
    ASSERT_NE(text_of(chat->prompt).find(kCard), std::string::npos);
    ASSERT_NE(text_of(chat->prompt).find("Turn " + std::to_string(number) + ":"), std::string::npos);
    ASSERT_EQ(asked.messages[1].role, Role::kUser);
    ASSERT_EQ(asked.messages.size() + static_cast<size_t>(chat->places.left_out), request.messages.size());
    const auto opened =
        static_cast<std::ptrdiff_t>(encode_text(model, "<|im_start|>assistant\n", false)->size());
    const bool extends = last.empty() || std::equal(last.begin(), last.end() - opened, chat->prompt.begin());
    if (!extends) {
      ++breaks;
      // The beginning that was to be computed ahead is that of what is asked then.
      cuts_ahead += !beginning.empty() && beginning.size() < chat->prompt.size() &&
                    std::equal(beginning.begin(), beginning.end(), chat->prompt.begin());
    }
    last = chat->prompt;
    beginning = chat->next_beginning;
  }
  EXPECT_GE(breaks, 3);
  EXPECT_LE(breaks, 20);
  EXPECT_EQ(cuts_ahead, breaks);
}

TEST_F(TruncateChat, KeepsWhatTheRequestNames) {
  say(Role::kUser, "An example question.");
  say(Role::kAssistant, "An example answer.");
  for (int number = 0; number < 40; ++number) turn(number);
  request.truncation->keep_messages = 3;
  request.truncation->max_prompt_tokens = 300;
  auto chat = truncate_chat(model, request);
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  EXPECT_LE(chat->prompt.size(), 300u);
  EXPECT_EQ(request.messages[2].content, "An example answer.");
  EXPECT_EQ(request.messages[3].role, Role::kUser);
  EXPECT_EQ(chat->places.fixed_count, 3);
}

TEST_F(TruncateChat, ALastMessageThatIsTooLongIsRefusedAsEver) {
  for (int number = 0; number < 40; ++number) turn(number);
  std::string words;
  for (int i = 0; i < 400; ++i) words += " lantern" + std::to_string(i);
  request.messages.back().content = words;
  std::string body =
      R"({"truncation":"auto","max_tokens":8,"messages":[{"role":"user","content":")" + words + "\"}]}";
  auto refused = prepare_request(model, GenerateRequest::Kind::kChat, body, 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, "context_length_exceeded");
  auto chat = truncate_chat(model, request);
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ(request.messages.size(), 2u);
}

TEST_F(TruncateChat, InstructionsBeforeAUsersMessageStayWithIt) {
  for (int number = 0; number < 40; ++number) {
    if (number > 0) say(Role::kAssistant, "As you say.");
    say(Role::kSystem, "Scene " + std::to_string(number) + " begins.");
    say(Role::kUser, "I look around, and wait for what comes of it.");
  }
  auto chat = truncate_chat(model, request);
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  ASSERT_GT(chat->places.left_out, 0);
  EXPECT_EQ(chat->places.fixed_count, 2);
  EXPECT_EQ(request.messages[2].role, Role::kSystem);
  EXPECT_EQ(request.messages[3].role, Role::kUser);
}

TEST_F(TruncateChat, SeveralInstructionsBeforeAUsersMessageStayWithIt) {
  for (int number = 0; number < 40; ++number) {
    if (number > 0) say(Role::kAssistant, "As you say.");
    for (const char* what : {"Scene ", "Weather ", "Mood "})
      say(Role::kSystem, what + std::to_string(number) + " begins.");
    say(Role::kUser, "I look around, and wait for what comes of it.");
  }
  for (int64_t room = 120; room < 400; room += 8) {
    GenerateRequest asked = request;
    asked.truncation->max_prompt_tokens = room;
    auto chat = truncate_chat(model, asked);
    ASSERT_TRUE(chat.ok()) << chat.error().message;
    ASSERT_GT(chat->places.left_out, 0);
    const auto first = static_cast<size_t>(chat->places.fixed_count);
    EXPECT_TRUE(asked.messages[first].content.starts_with("Scene ")) << room;
  }
}

// Tools take room in the prompt, too: a step is of the room that is left beside them.
TEST_F(TruncateChat, AStepIsOfTheRoomBesideTheTools) {
  std::string tools;
  for (int i = 0; i < 4; ++i) {
    tools += tools.empty() ? "[" : ",";
    tools += R"({"type":"function","function":{"name":"look_)" + std::to_string(i) +
             R"(","description":"Looks around in the marsh and says what is there to be seen."}})";
  }
  request.tools_json = tools + "]";
  const auto with_tools = ChatTemplate::parse(
      "{% for t in tools %}{{ t | tojson }}\n{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
      "{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
      "{% endif %}");
  ASSERT_TRUE(with_tools.ok()) << with_tools.status();
  model.chat_template = with_tools->get();
  auto bare = encode_chat(model, request, encoding_of(request));
  ASSERT_TRUE(bare.ok());
  model.total_count_max = static_cast<int32_t>(bare->size()) + 40 + 300;
  constexpr size_t kTurnMax = 60;
  for (int number = 0; number < 40; ++number) {
    turn(number);
    GenerateRequest asked = request;
    auto chat = truncate_chat(model, asked);
    ASSERT_TRUE(chat.ok()) << chat.error().message;
    ASSERT_LE(chat->prompt.size(), bare->size() + 300);
    if (chat->places.left_out == 0) continue;
    EXPECT_GE(chat->prompt.size() + kTurnMax, bare->size() + 150) << number;
  }
}

TEST_F(TruncateChat, AnOldMessageThatNoPromptHasRoomForIsLeftOut) {
  turn(0);
  request.messages.back().content.assign(static_cast<size_t>(model.prompt_bytes_max) + 1, 'x');
  for (int number = 1; number < 4; ++number) turn(number);
  auto chat = truncate_chat(model, request);
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  EXPECT_EQ(chat->places.left_out, 2);
}

TEST_F(TruncateChat, PlacesAreThoseOfTheBody) {
  for (int number = 0; number < 40; ++number) turn(number);
  const size_t count = request.messages.size();
  auto chat = truncate_chat(model, request);
  ASSERT_TRUE(chat.ok());
  const PromptPlaces& places = chat->places;
  EXPECT_EQ(places.break_at(0).message, 0);
  EXPECT_EQ(places.break_at(places.message_ends[0]).message, 1 + places.left_out);
  EXPECT_EQ(places.break_at(static_cast<int64_t>(chat->prompt.size()) - 1).message,
            static_cast<int32_t>(count) - 1);
  const std::vector<TokenId> to_last(chat->prompt.begin(),
                                     chat->prompt.begin() + *(places.message_ends.end() - 2));
  EXPECT_TRUE(text_of(to_last).ends_with("as the marsh is wide and cold.")) << text_of(to_last);
}

}  // namespace troupe::truncate_chat_test

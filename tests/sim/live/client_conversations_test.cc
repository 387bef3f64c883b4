// Clients of a driven trace: a turn quotes the answer to the one before.

#include "sim/live/client_conversations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "sim/workload/workload.h"

namespace troupe::sim {
namespace conversations_test {

int64_t words(const std::string& text) {
  return std::count(text.begin(), text.end(), ' ');
}

int64_t words(const std::vector<Message>& messages) {
  int64_t count = 0;
  for (const Message& message : messages) count += words(message.text);
  return count;
}

bool begins_with(const std::vector<Message>& all, const std::vector<Message>& part) {
  return all.size() >= part.size() &&
         std::equal(part.begin(), part.end(), all.begin(),
                    [](const auto& a, const auto& b) { return a.role == b.role && a.text == b.text; });
}

// A whole workload with every answer in time: where ids agree the text does, too.
TEST(Conversations, QuoteTheActualAnswer) {
  PersonaWorkload workload;
  workload.personas = 10;
  workload.rate = 5;
  workload.duration_s = 300;
  workload.swipe = 0.1;
  workload.card_tokens = 500;
  workload.card_tokens_max = 1000;
  workload.context_tokens = 2500;
  auto source = PersonaSource::make(workload, 3);
  ASSERT_TRUE(source.ok()) << source.status();
  Conversations conversations;
  std::map<uint64_t, std::pair<TraceRequest, std::vector<Message>>> before;  // by session
  std::map<uint64_t, std::string> answers;
  TraceRequest request;
  int64_t turns = 0, continued = 0, again = 0;
  for (uint64_t number = 1; *(*source)->next(request); ++number) {
    const std::vector<Message> messages = conversations.messages(request, number);
    EXPECT_EQ(words(messages), request.input_tokens) << number;
    turns += 1;
    if (const auto it = before.find(request.session); it != before.end()) {
      const auto& [last, sent] = it->second;
      const bool same = request.blocks == last.blocks;
      again += same ? 1 : 0;
      if (begins_with(messages, sent)) {
        ASSERT_EQ(messages.size(), sent.size() + (same ? 0 : 2));
        if (!same) {
          continued += 1;
          EXPECT_EQ(messages[sent.size()].role, "assistant");
          EXPECT_EQ(messages[sent.size()].text, answers[request.session]);
        }
      }
    }
    std::string answer;
    for (int32_t i = 0; i < request.output_tokens; ++i) answer += " a" + std::to_string(number);
    conversations.answered(request, number, answer);
    answers[request.session] = answer;
    before[request.session] = {request, messages};
  }
  EXPECT_EQ(conversations.made_up_count(), 0);
  EXPECT_GT(again, turns / 20);
  EXPECT_GT(continued, turns / 2) << "of " << turns;
}

TraceRequest turn(int32_t tokens, std::vector<uint64_t> blocks, int32_t output,
                  std::vector<uint64_t> output_blocks) {
  TraceRequest r;
  r.session = 9;
  r.block_tokens = 16;
  r.input_tokens = tokens;
  r.output_tokens = output;
  r.prefix_tokens = 16;
  r.blocks = std::move(blocks);
  r.output_blocks = std::move(output_blocks);
  return r;
}

TEST(Conversations, LateAnswerIsSynthesised) {
  Conversations conversations;
  const auto first = conversations.messages(turn(40, {1, 2}, 20, {3}), 1);
  ASSERT_EQ(first.size(), 2u);
  const auto second = conversations.messages(turn(70, {1, 2, 3, 4}, 10, {5}), 2);
  EXPECT_EQ(conversations.made_up_count(), 1);
  ASSERT_EQ(second.size(), 4u);
  EXPECT_TRUE(begins_with(second, first));
  EXPECT_EQ(words(second[2].text), 20);
  conversations.answered(turn(40, {1, 2}, 20, {3}), 1, " too late");
  conversations.answered(turn(70, {1, 2, 3, 4}, 10, {5}), 2, " in time");
  const auto third = conversations.messages(turn(90, {1, 2, 3, 4, 5}, 10, {}), 3);
  ASSERT_EQ(third.size(), 6u);
  EXPECT_EQ(third[4].text, " in time");
  EXPECT_EQ(words(third[5].text), 10);
}

TEST(Conversations, ChangedHistoryStartsNewConversation) {
  Conversations conversations;
  const auto first = conversations.messages(turn(40, {1, 2}, 20, {3}), 1);
  conversations.answered(turn(40, {1, 2}, 20, {3}), 1, " x");
  const auto cut = conversations.messages(turn(70, {1, 8, 9, 10}, 10, {}), 2);
  ASSERT_EQ(cut.size(), 2u);
  EXPECT_EQ(cut[0].text, first[0].text);
  EXPECT_NE(cut[1].text.substr(0, 20), first[1].text.substr(0, 20));
  // Without a session there is no memory.
  TraceRequest alone = turn(40, {1, 2}, 20, {3});
  alone.session = 0;
  conversations.answered(alone, 3, " x");
  EXPECT_TRUE(begins_with(first, {conversations.messages(alone, 4)[0]}));
}

}  // namespace conversations_test
}  // namespace troupe::sim

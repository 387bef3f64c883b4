#include "common/api/sse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace troupe::sse_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Seen {
  std::vector<std::string> log;  // "event|data|id" or ":comment"
  Status status;
};

static Seen feed_pieces(const std::vector<std::string>& pieces, size_t event_bytes_max = 1u << 20) {
  Seen seen;
  SseParser parser(event_bytes_max);
  for (const std::string& piece : pieces) {
    seen.status = parser.feed(
        piece, [&seen](const SseEvent& e) { seen.log.push_back(e.event + "|" + e.data + "|" + e.id); },
        [&seen](std::string_view comment) { seen.log.push_back(":" + std::string(comment)); });
    if (!seen.status.ok()) break;
  }
  return seen;
}

static std::vector<std::string> log_of(const std::string& text) {
  return feed_pieces({text}).log;
}

TEST(Sse, ReadsDataEventsUntilDone) {
  EXPECT_THAT(log_of("data: {\"a\":1}\n\ndata: [DONE]\n\n"), ElementsAre("|{\"a\":1}|", "|[DONE]|"));
}

TEST(Sse, AcceptsCrOrLfOrBothAsLineEnd) {
  for (const std::string text : {"data: a\ndata: b\n\n", "data: a\r\ndata: b\r\n\r\n", "data: a\rdata: b\r\r",
                                 "data: a\r\ndata: b\n\r"}) {
    EXPECT_THAT(log_of(text), ElementsAre("|a\nb|")) << testing::PrintToString(text);
  }
}

TEST(Sse, DropsOneSpaceAfterTheColon) {
  EXPECT_THAT(log_of("data:a\n\ndata:  b\n\ndata: c: d\n\n"), ElementsAre("|a|", "| b|", "|c: d|"));
}

TEST(Sse, EventNameAppliesOnceAndIdPersists) {
  EXPECT_THAT(log_of("event: x\nid: 7\ndata: a\n\ndata: b\n\nid\ndata: c\n\n"),
              ElementsAre("x|a|7", "|b|7", "|c|"));
  EXPECT_THAT(log_of("event: x\n\ndata: b\n\n"), ElementsAre("|b|"));
}

TEST(Sse, IgnoresIdWithNul) {
  EXPECT_THAT(log_of(std::string("id: 5\nid: a\0b\ndata: x\n\n", 24)), ElementsAre("|x|5"));
}

TEST(Sse, EmptyDataMakesAnEventMissingDataNone) {
  EXPECT_THAT(log_of("data\n\n"), ElementsAre("||"));
  EXPECT_THAT(log_of("data:\ndata:\n\n"), ElementsAre("|\n|"));
  EXPECT_THAT(log_of("event: x\n\n\n\n"), IsEmpty());
}

TEST(Sse, CommentsAndUnknownFieldsLeaveEventUnchanged) {
  EXPECT_THAT(log_of("data: a\n: hb\nretry: 5\nfoo: bar\nDATA: no\ndata: b\n\n"),
              ElementsAre(": hb", "|a\nb|"));
}

TEST(Sse, SkipsByteOrderMarkOnlyAtTheStart) {
  EXPECT_THAT(log_of("\xEF\xBB\xBF"
                     "data: a\n\n\xEF\xBB\xBF"
                     "data: b\n\n"),
              ElementsAre("|a|"));
}

TEST(Sse, DropsUnfinishedEvent) {
  EXPECT_THAT(log_of("data: a\n\ndata: b\n"), ElementsAre("|a|"));
}

TEST(Sse, AnySplitGivesTheSameEvents) {
  const std::vector<std::string> tokens = {
      "\r",     "\n",           "\r\n", "data: x", "data:", "event: e", "id: 1",
      ": note", "\xEF\xBB\xBF", "宋江", ":",       " ",     "data",     "\n\n"};
  std::mt19937 random(20260102);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (int i = 0; i < 24; ++i) text += tokens[random() % tokens.size()];
    std::vector<std::string> pieces, bytes;
    for (size_t at = 0; at < text.size();) {
      const size_t size = random() % 5;
      pieces.push_back(text.substr(at, size));
      at += pieces.back().size();
    }
    for (const char c : text) bytes.push_back(std::string(1, c));
    const std::vector<std::string> whole = log_of(text);
    ASSERT_EQ(feed_pieces(pieces).log, whole) << testing::PrintToString(text);
    ASSERT_EQ(feed_pieces(bytes).log, whole) << testing::PrintToString(text);
  }
}

TEST(Sse, StaysFailedAfterEventOverTheBound) {
  SseParser parser(16);
  int events = 0;
  const auto count = [&events](const SseEvent&) { ++events; };
  EXPECT_TRUE(parser.feed("data: 0123456789\n\n", count).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(parser.feed("data: 0123456789a", count)));
  EXPECT_FALSE(parser.feed("\n\ndata: x\n\n", count).ok());
  EXPECT_EQ(events, 1);
}

TEST(Sse, BoundsEventOfManySmallLines) {
  SseParser parser(1000);
  Status status;
  int lines = 0;
  while (status.ok() && lines < 10'000) {
    status = parser.feed("data: 0123456789\n", [](const SseEvent&) {});
    ++lines;
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_LT(lines, 100);
}

TEST(Sse, ReadsBackAppendedData) {
  std::string out;
  append_sse_data(out, "{\"a\":\"宋\"}");
  out += kSseDone;
  EXPECT_EQ(out, "data: {\"a\":\"宋\"}\n\ndata: [DONE]\n\n");
  EXPECT_THAT(log_of(out), ElementsAre("|{\"a\":\"宋\"}|", "|[DONE]|"));
}

}  // namespace troupe::sse_test

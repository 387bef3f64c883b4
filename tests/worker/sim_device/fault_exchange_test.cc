// A computation that fails in the middle of a stream, as the client sees it: the server over an engine whose
// runner fails on demand.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/api/sse.h"
#include "common/json/json.h"
#include "tests/worker/harness_server.h"

namespace troupe::broken_stream_test {

using testing::HarnessServer;

// The step that computes a request's tenth token fails.
Status break_at_tenth(const Batch& batch) {
  for (const BatchItem& item : batch.items) {
    if (item.sample_position == 10) return absl::InternalError("the abacus fell over");
  }
  return absl::OkStatus();
}

TEST(BrokenStream, EndsWithAnErrorEventAndWithoutDone) {
  const HarnessServer server(break_at_tenth);
  const auto reply = server.complete(HarnessServer::body(20, /*stream=*/true));
  ASSERT_EQ(reply.status, 200) << reply.body;
  std::vector<std::string> events;
  SseParser parser;
  ASSERT_TRUE(parser.feed(reply.body, [&events](const SseEvent& e) { events.push_back(e.data); }).ok());
  ASSERT_GE(events.size(), 2u);
  const auto last = parse_json(events.back());
  ASSERT_TRUE(last.ok()) << events.back();
  ASSERT_TRUE(last->as_object().contains("error")) << events.back();
  EXPECT_NE(events.back().find("the abacus fell over"), std::string::npos) << events.back();
  EXPECT_EQ(reply.body.find("[DONE]"), std::string::npos) << "the answer is not whole";
}

TEST(BrokenStream, WholeAnswerIs500AndNextRequestSucceeds) {
  const HarnessServer server(break_at_tenth);
  EXPECT_EQ(server.complete(HarnessServer::body(20, /*stream=*/false)).status, 500);
  const auto reply = server.complete(HarnessServer::body(5, /*stream=*/true));
  EXPECT_EQ(reply.status, 200);
  EXPECT_TRUE(reply.body.ends_with(kSseDone)) << reply.body;
}

}  // namespace troupe::broken_stream_test

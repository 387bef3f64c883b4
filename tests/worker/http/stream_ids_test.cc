// A stream that carries its ids (x-troupe-ids), and sends heartbeats while there is nothing else to send.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/api/sse.h"
#include "common/json/json.h"
#include "tests/worker/fixture.h"
#include "tests/worker/harness_server.h"
#include "tests/worker/step_gate.h"

namespace troupe::stream_ids_test {

using raw_http::Connection;
using raw_http::request_bytes;
using std::chrono::milliseconds;
using testing::HarnessServer;
using testing::StepGate;

constexpr const char* kTellIds = "x-troupe-ids: 1";
constexpr const char* kPath = "/v1/completions";

size_t count_of(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

std::vector<bj::value> chunks_of(const std::string& body) {
  std::vector<bj::value> chunks;
  SseParser parser;
  const auto status = parser.feed(body, [&chunks](const SseEvent& event) {
    if (event.data != "[DONE]") chunks.push_back(parse_json(event.data).value());
  });
  EXPECT_TRUE(status.ok()) << status;
  return chunks;
}

std::vector<TokenId> ids_of(const bj::value& chunk) {
  std::vector<TokenId> ids;
  for (const auto& id : chunk.at_pointer("/troupe/ids").as_array()) ids.push_back(id.to_number<TokenId>());
  return ids;
}

bool wait_readable(Connection& connection) {
  return connection.readable_within(std::chrono::seconds(20));
}

TEST(StreamIds, EveryChunkHasIdsAndTheFirstTheSeed) {
  const HarnessServer server;
  const std::string body =
      HarnessServer::body(20, true, R"(,"seed":-2,"stream_options":{"include_usage":true})");
  const auto reply = server.complete(body, {kTellIds});
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_TRUE(reply.body.starts_with(kSseHeartbeat)) << reply.body;
  auto chunks = chunks_of(reply.body);
  ASSERT_GT(chunks.size(), 2u);
  EXPECT_FALSE(chunks.back().as_object().contains("troupe")) << "of the usage chunk";
  EXPECT_EQ(chunks.back().at_pointer("/usage/completion_tokens"), 20);
  const bj::value usage = std::move(chunks.back());
  chunks.pop_back();
  size_t id_count = 0;
  for (const char* count : {"prompt_tokens", "completion_tokens", "cached_tokens"}) {
    const bool cached = std::string_view(count).starts_with("cached");
    const std::string at = cached ? "/usage/prompt_tokens_details/" : "/usage/";
    EXPECT_EQ(chunks.back().at("troupe").at(count), usage.at_pointer(at + count)) << count;
  }
  for (size_t i = 0; i < chunks.size(); ++i) {
    EXPECT_EQ(chunks[i].at("troupe").as_object().contains("prompt_tokens"), i + 1 == chunks.size());
    id_count += ids_of(chunks[i]).size();
    EXPECT_EQ(chunks[i].at("troupe").as_object().contains("seed"), i == 0);
  }
  EXPECT_EQ(id_count, 20u);
  EXPECT_EQ(chunks[0].at_pointer("/troupe/seed").to_number<uint64_t>(), ~uint64_t{1});
}

// The text sent so far equals the decoded ids sent so far, except for held-back text.
TEST(StreamIds, TextIsAFunctionOfTheIds) {
  const HarnessServer server;
  const auto reply = server.complete(HarnessServer::body(60, true, R"(,"seed":7)"), {kTellIds});
  const auto tokenizer = testing::EngineHarness::load_tokenizer();
  auto detokenizer = tokenizer->stream(/*skip_special=*/true, /*at_start=*/false);
  size_t chunks_of_several = 0;
  for (const auto& chunk : chunks_of(reply.body)) {
    const auto ids = ids_of(chunk);
    chunks_of_several += ids.size() > 1;
    std::string text;
    for (const TokenId id : ids) text += detokenizer->push(id);
    if (chunk.at_pointer("/choices/0/finish_reason").is_string())
      text += detokenizer->finish(/*keeps_cut_character=*/false);
    EXPECT_EQ(text, std::string(chunk.at_pointer("/choices/0/text").as_string()));
  }
  EXPECT_GT(chunks_of_several, 0u) << "no token of this answer is part of a character";
}

TEST(StreamIds, AreSentOnlyOnRequest) {
  const HarnessServer server;
  const auto reply = server.complete(HarnessServer::body(5, true));
  EXPECT_EQ(reply.body.find("troupe"), std::string::npos) << reply.body;
  EXPECT_EQ(reply.body.find(": hb"), std::string::npos) << reply.body;
  const auto whole = server.complete(HarnessServer::body(5, false), {kTellIds});
  EXPECT_EQ(whole.status, 200);
  EXPECT_EQ(whole.body.find("troupe"), std::string::npos) << whole.body;
}

TEST(Heartbeats, ContinueDuringALongStep) {
  StepGate gate;
  const HarnessServer server(gate.hook());
  Connection connection(server.port());
  connection.send(request_bytes("POST", kPath, HarnessServer::body(5, true), {kTellIds}));
  while (count_of(connection.buffer(), kSseHeartbeat) < 5) ASSERT_TRUE(connection.fill());
  EXPECT_TRUE(connection.buffer().starts_with("HTTP/1.1 200 "));
  EXPECT_EQ(connection.buffer().find("data:"), std::string::npos);
  gate.open();
  const auto reply = connection.read_reply();
  EXPECT_TRUE(reply.body.ends_with(kSseDone)) << reply.body;
  EXPECT_GE(count_of(reply.body, kSseHeartbeat), 5u);
}

TEST(Heartbeats, AreSentOnlyOnRequest) {
  StepGate gate;
  const HarnessServer server(gate.hook());
  Connection connection(server.port());
  connection.send(request_bytes("POST", kPath, HarnessServer::body(5, true)));
  EXPECT_FALSE(connection.readable_within(milliseconds(400)));
  gate.open();
  EXPECT_TRUE(connection.read_reply().body.ends_with(kSseDone));
}

TEST(Heartbeats, StopWhenAStepNeverEnds) {
  StepGate gate;
  Generator::Options options;
  options.stuck_after = milliseconds(1500);  // a busy machine's first heartbeat comes late
  HarnessServer server(gate.hook(), options);
  Connection connection(server.port());
  connection.send(request_bytes("POST", kPath, HarnessServer::body(5, true), {kTellIds}));
  while (count_of(connection.buffer(), kSseHeartbeat) < 1) ASSERT_TRUE(connection.fill());
  while (server.engine().turn_age() < milliseconds(3500)) std::this_thread::sleep_for(milliseconds(10));
  while (connection.readable_within(milliseconds(0))) ASSERT_TRUE(connection.fill());
  EXPECT_FALSE(connection.readable_within(milliseconds(500)));
  gate.open();
  EXPECT_TRUE(connection.read_reply().body.ends_with(kSseDone));
}

TEST(Heartbeats, ErrorAfterTheHeadIsAnEvent) {
  StepGate gate;
  const HarnessServer server(gate.hook());
  Connection connection(server.port());
  connection.send(
      request_bytes("POST", kPath, HarnessServer::body(5, true), {kTellIds, "x-troupe-timeout-ms: 2000"}));
  ASSERT_TRUE(wait_readable(connection));
  const auto reply = connection.read_reply();
  gate.open();
  EXPECT_EQ(reply.status, 200);
  const auto chunks = chunks_of(reply.body);
  ASSERT_EQ(chunks.size(), 1u) << reply.body;
  EXPECT_TRUE(chunks[0].as_object().contains("error")) << reply.body;
  EXPECT_EQ(reply.body.find("[DONE]"), std::string::npos);
}

TEST(Heartbeats, EngineRefusalHasAStatusOfItsOwn) {
  const HarnessServer server;
  const auto reply = server.complete(HarnessServer::body(4000, true), {kTellIds});
  EXPECT_EQ(reply.status, 400) << reply.body;
}

TEST(Heartbeats, IdleEngineIsNotStuck) {
  HarnessServer server;
  EXPECT_EQ(server.complete(HarnessServer::body(5, true)).status, 200);
  const auto begin = std::chrono::steady_clock::now();
  while (server.engine().turn_age() != Duration::zero()) {
    ASSERT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  }
}

// A connection to be dropped by a write of its answer is not dropped by a heartbeat before it.
TEST(Heartbeats, DoNotCountAsWritesOfAnAnswer) {
  WorkerSettings settings;
  settings.device = "sim";
  settings.server.http.port = 0;
  settings.log_level = LogLevel::kError;
  ASSERT_TRUE(resolve_worker_settings(settings).ok());
  const worker_fixture::Worker worker(settings);
  for (int seed = 0; seed < 3; ++seed) {
    const std::string faults = R"({"stall_s":2,"drop_rate":1,"seed":)" + std::to_string(seed) + "}";
    ASSERT_EQ(raw_http::ask(worker.port(), "POST", "/sim/faults", faults).status, 200);
    Connection connection(worker.port());
    const std::string body = R"({"model":"study","prompt":"Once","max_tokens":30,"stream":true})";
    connection.send(request_bytes("POST", kPath, body, {kTellIds}));
    while (connection.fill()) {
    }
    EXPECT_GE(count_of(connection.buffer(), kSseHeartbeat), 3u);
    EXPECT_EQ(connection.buffer().find("[DONE]"), std::string::npos);
  }
}

}  // namespace troupe::stream_ids_test

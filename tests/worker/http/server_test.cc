#include "worker/http/server.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "common/api/sse.h"
#include "common/json/json.h"
#include "tests/common/sanitized.h"
#include "tests/worker/fixture.h"
#include "tests/worker/raw_http.h"

namespace troupe::server_test {

using raw_http::ask;
using raw_http::Connection;
using raw_http::Reply;
using raw_http::request_bytes;
using std::chrono::milliseconds;

// Time limit from the client's disconnect until the engine is free. A sanitizer slows the step under way down
// by far more.
constexpr milliseconds kFreedWithin{kSanitized ? 2000 : 50};

constexpr const char* kCard =
    R"(You are playing Ruvo Tamek.\nName: Ruvo Tamek\nRole: clock maker\nAge: 47\nHome: Lipora\n)"
    R"(Character: shy, brave\nLikes: plum wine\nDislikes: wet boots\nBest friend: Dazin\n)"
    R"(Companion: a tame fox\nDream: to open a small inn\nLife: won the harvest race; )"
    R"(spent three years in prison; saved a child from a fire.\nFavourite saying: Ha!\n)"
    R"(Always answer the user in character.)";

std::string chat_body(const std::string& question, const std::string& fields = R"(,"temperature":0)") {
  return R"({"model":"demo-model","messages":[{"role":"system","content":")" + std::string(kCard) +
         R"("},{"role":"user","content":")" + question + "\"}]" + fields + "}";
}

// A request that continues for as long as the model has positions.
std::string endless_body(const std::string& fields = R"(,"stream":true)") {
  return chat_body("Tell me a story.", R"(,"ignore_eos":true,"temperature":0)" + fields);
}

bj::value json_of(const std::string& text) {
  auto value = parse_json(text);
  EXPECT_TRUE(value.ok()) << value.status() << "\n" << text;
  return value.ok() ? *value : bj::value();
}

std::vector<std::string> events_of(const std::string& body) {
  std::vector<std::string> events;
  SseParser parser;
  EXPECT_TRUE(parser.feed(body, [&events](const SseEvent& event) { events.push_back(event.data); }).ok());
  return events;
}

std::string text_of(const Reply& reply) {
  return std::string(json_of(reply.body).at_pointer("/choices/0/message/content").as_string());
}

template <typename Predicate>
milliseconds time_until(Predicate predicate) {
  const auto begin = std::chrono::steady_clock::now();
  while (!predicate() && std::chrono::steady_clock::now() - begin < std::chrono::seconds(10)) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin);
}

class WorkerServerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { worker = std::make_unique<worker_fixture::Worker>(); }
  static void TearDownTestSuite() { worker.reset(); }
  void TearDown() override {
    EXPECT_LT(time_until([] { return worker->engine().idle(); }), milliseconds(5000))
        << "a request is left behind";
  }
  static Reply chat(const std::string& body, const std::vector<std::string>& headers = {}) {
    return ask(worker->port(), "POST", "/v1/chat/completions", body, headers);
  }
  // Time from a client's disconnect to its request's end, the best of three: a busy machine may delay
  // one, not all.
  static milliseconds time_to_free(const std::string& body, bool is_answered) {
    milliseconds best{60000};
    for (int i = 0; i < 3; ++i) {
      Connection connection(worker->port());
      connection.send(request_bytes("POST", "/v1/chat/completions", body));
      EXPECT_TRUE(!is_answered || connection.read_until("data: "));
      time_until([] { return worker->engine().load().running == 1; });
      EXPECT_EQ(worker->engine().load().running, 1);
      connection.close();
      best = std::min(best, time_until([] { return worker->engine().load().running == 0; }));
    }
    return best;
  }
  static std::unique_ptr<worker_fixture::Worker> worker;
};
std::unique_ptr<worker_fixture::Worker> WorkerServerTest::worker;

TEST_F(WorkerServerTest, AnswersChatRequest) {
  const auto reply = chat(chat_body("Who is your best friend?"));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_NE(text_of(reply).find("Dazin"), std::string::npos) << reply.body;
  const auto answer = json_of(reply.body);
  EXPECT_EQ(answer.at_pointer("/choices/0/finish_reason"), "stop");
  EXPECT_EQ(answer.at_pointer("/model"), "demo-model");
  EXPECT_EQ(answer.at_pointer("/usage/total_tokens").as_int64(),
            answer.at_pointer("/usage/prompt_tokens").as_int64() +
                answer.at_pointer("/usage/completion_tokens").as_int64());
  EXPECT_FALSE(reply.header("x-request-id").empty());
}

TEST_F(WorkerServerTest, StreamCarriesTheSameAnswerInChunks) {
  const std::string question = "What do you like?";
  const auto whole = chat(chat_body(question));
  const auto stream =
      chat(chat_body(question, R"(,"temperature":0,"stream":true,"stream_options":{"include_usage":true})"));
  ASSERT_EQ(stream.status, 200);
  EXPECT_EQ(stream.header("content-type"), "text/event-stream");
  auto events = events_of(stream.body);
  ASSERT_GE(events.size(), 4u);
  EXPECT_EQ(events.back(), "[DONE]");
  events.pop_back();
  const auto usage = json_of(events.back());
  EXPECT_TRUE(usage.at("choices").as_array().empty());
  EXPECT_GT(usage.at_pointer("/usage/prompt_tokens_details/cached_tokens").as_int64(), 0);
  events.pop_back();

  std::string text;
  for (size_t i = 0; i < events.size(); ++i) {
    const auto chunk = json_of(events[i]);
    const auto& choice = chunk.at_pointer("/choices/0").as_object();
    const auto& delta = choice.at("delta").as_object();
    EXPECT_EQ(delta.contains("role"), i == 0);
    if (const auto* content = delta.if_contains("content")) text += content->as_string();
    EXPECT_EQ(choice.at("finish_reason").is_string(), i + 1 == events.size());
  }
  EXPECT_EQ(text, text_of(whole));
}

TEST_F(WorkerServerTest, RepeatedRequestReadsThePrefixCacheUnlessSalted) {
  const auto cached_tokens = [](const Reply& reply) {
    return json_of(reply.body).at_pointer("/usage/prompt_tokens_details/cached_tokens").as_int64();
  };
  chat(chat_body("Hello!"));
  const auto again = chat(chat_body("Hello!"));
  const auto prompt = json_of(again.body).at_pointer("/usage/prompt_tokens").as_int64();
  EXPECT_GE(cached_tokens(again), prompt - 16 - 1);
  EXPECT_LT(cached_tokens(again), prompt);
  const std::string salted = chat_body("Hello!", R"(,"temperature":0,"cache_salt":"tenant-7")");
  const auto first_salted = chat(salted);
  EXPECT_EQ(cached_tokens(first_salted), 0);
  EXPECT_GT(cached_tokens(chat(salted)), 0);
  EXPECT_EQ(text_of(first_salted), text_of(again));
}

TEST_F(WorkerServerTest, SeedDeterminesTheAnswer) {
  const auto drawn = [](const std::string& seed) {
    const auto reply = chat(chat_body(
        "Tell me a story.", R"(,"temperature":2,"top_p":1,"max_tokens":24,"ignore_eos":true)" + seed));
    EXPECT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(json_of(reply.body).at_pointer("/choices/0/finish_reason"), "length");
    return text_of(reply);
  };
  EXPECT_EQ(drawn(R"(,"seed":5)"), drawn(R"(,"seed":5)"));
  EXPECT_NE(drawn(R"(,"seed":5)"), drawn(R"(,"seed":6)"));
  EXPECT_NE(drawn(""), drawn(""));  // each gets a seed of its own
}

TEST_F(WorkerServerTest, CompletionContinuesItsPrompt) {
  const auto reply =
      ask(worker->port(), "POST", "/v1/completions",
          R"({"model":"demo-model","prompt":"<|im_start|>user\nHi","max_tokens":3,"temperature":0})");
  ASSERT_EQ(reply.status, 200) << reply.body;
  const auto answer = json_of(reply.body);
  EXPECT_EQ(answer.at("object"), "text_completion");
  EXPECT_TRUE(answer.at_pointer("/choices/0/text").is_string());
  EXPECT_LE(answer.at_pointer("/usage/completion_tokens").as_int64(), 3);
}

TEST_F(WorkerServerTest, BadInputGetsPreciseError) {
  struct Case {
    const char* body;
    int status;
    const char* named;  // in message, param or code
  };
  const std::string too_long = chat_body(std::string(12000, 'x'));
  const Case cases[] = {
      {"", 400, "JSON"},
      {"{", 400, "JSON"},
      {"[1]", 400, "object"},
      {R"({"model":"demo-model"})", 400, "messages"},
      {R"({"model":7,"messages":[{"role":"user","content":"x"}]})", 400, "model"},
      {R"({"model":"demo-model","messages":[]})", 400, "messages"},
      {R"({"model":"demo-model","messages":"x"})", 400, "messages"},
      {R"({"model":"demo-model","messages":[{"role":"wizard","content":"x"}]})", 400, "wizard"},
      {R"({"model":"demo-model","messages":[{"role":"user","content":7}]})", 400, "content"},
      {R"({"model":"demo-model","model":"demo-model","messages":[{"role":"user","content":"x"}]})", 400,
       "model"},
      {R"({"model":"demo-model","messages":[{"role":"user","content":"x"}],"max_tokens":-1})", 400,
       "max_tokens"},
      {R"({"model":"demo-model","messages":[{"role":"user","content":"x"}],"max_tokens":9999})", 400,
       "context_length_exceeded"},
      {R"({"model":"demo-model","messages":[{"role":"user","content":"x"}],"temperature":3})", 400,
       "temperature"},
      {R"({"model":"demo-model","messages":[{"role":"user","content":"x"}],"temperature":1e999})", 400, ""},
      {R"({"model":"demo-model","messages":[{"role":"user","content":"x"}],"n":17})", 400, "n"},
      {R"({"model":"demo-model","messages":[{"role":"user","content":"x"}],"logit_bias":{"4096":1}})", 400,
       "logit_bias.4096"},
      {R"({"model":"gpt-9","messages":[{"role":"user","content":"x"}]})", 404, "model_not_found"},
      {too_long.c_str(), 400, "context_length_exceeded"},
      {"{\"model\":\"demo-model\",\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}", 400, "UTF-8"},
  };
  for (const auto& c : cases) {
    const auto reply = chat(c.body);
    EXPECT_EQ(reply.status, c.status) << c.body;
    const auto error = json_of(reply.body).at("error").as_object();
    EXPECT_EQ(error.at("type"), "invalid_request_error") << c.body;
    EXPECT_FALSE(error.at("message").as_string().empty()) << c.body;
    EXPECT_NE(reply.body.find(c.named), std::string::npos) << c.body << "\n" << reply.body;
  }
}

TEST_F(WorkerServerTest, OverlongPromptNamesBothCounts) {
  const auto error = json_of(chat(chat_body(std::string(12000, 'x'))).body).at("error").as_object();
  const std::string message(error.at("message").as_string());
  EXPECT_NE(message.find("2048 tokens"), std::string::npos) << message;
  const std::string before_count = "prompt has ";
  const auto at = message.find(before_count);
  ASSERT_NE(at, std::string::npos) << message;
  EXPECT_GT(std::atoi(message.c_str() + at + before_count.size()), 2048) << message;
}

TEST_F(WorkerServerTest, RefusesUnknownPathAndWrongMethod) {
  const auto missing = ask(worker->port(), "GET", "/v1/nothing");
  EXPECT_EQ(missing.status, 404);
  EXPECT_NE(missing.body.find("/v1/nothing"), std::string::npos);
  const auto wrong = ask(worker->port(), "GET", "/v1/chat/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.header("allow"), "POST");
  EXPECT_EQ(ask(worker->port(), "POST", "/metrics").header("allow"), "GET, HEAD");
}

TEST_F(WorkerServerTest, EchoesRequestIdOnAnswersAndErrors) {
  EXPECT_EQ(chat(chat_body("Hello!"), {"X-Request-Id: abc-1"}).header("x-request-id"), "abc-1");
  EXPECT_EQ(chat("{", {"X-Request-Id: abc-2"}).header("x-request-id"), "abc-2");
  const auto made = chat("{", {"X-Request-Id: not plain"}).header("x-request-id");
  EXPECT_FALSE(made.empty());
  EXPECT_NE(made, "not plain");
}

TEST_F(WorkerServerTest, ReportsItsModelAndState) {
  const auto models = json_of(ask(worker->port(), "GET", "/v1/models").body);
  EXPECT_EQ(json_of(ask(worker->port(), "GET", "/v1/models/demo-model").body), models.at("data").at(0));
  EXPECT_EQ(ask(worker->port(), "GET", "/v1/models/other").status, 404);
  EXPECT_EQ(json_of(ask(worker->port(), "GET", "/v1/models/").body), models);
  EXPECT_EQ(models.at_pointer("/data/0/id"), "demo-model");
  EXPECT_EQ(models.at_pointer("/data/0/max_model_len"), 2048);
  for (const char* path : {"/livez", "/readyz", "/health"}) {
    EXPECT_EQ(ask(worker->port(), "GET", path).status, 200) << path;
  }
  const auto load = parse_load_report(ask(worker->port(), "GET", "/v1/load").body);
  ASSERT_TRUE(load.ok());
  EXPECT_TRUE(load.value().ready);
  EXPECT_EQ(load.value().kv_blocks_total, 16384 / 16);
  EXPECT_EQ(load.value().block_size, 16);
  EXPECT_FALSE(load.value().epoch.empty());
}

// One that closes at [DONE] has its answer.
TEST_F(WorkerServerTest, CountsRequestsBesideTheEnginesMetrics) {
  const auto metrics = [] { return ask(worker->port(), "GET", "/metrics").body; };
  const auto value_of = [](const std::string& text, const std::string& series) {
    const auto at = text.find(series + " ");
    return at == std::string::npos ? 0.0 : std::strtod(text.c_str() + at + series.size() + 1, nullptr);
  };
  const std::string requests = R"(troupe_http_requests_total{code="200",path="/v1/chat/completions"})";
  const std::string refused = R"(troupe_http_requests_total{code="400",path="/v1/chat/completions"})";
  const std::string ended =
      R"(vllm:request_success_total{engine="0",finished_reason="length",model_name="demo-model"})";
  const auto before = metrics();
  chat("{");
  chat(chat_body("Hello!"));
  Connection connection(worker->port());
  connection.send(
      request_bytes("POST", "/v1/chat/completions", endless_body(R"(,"stream":true,"max_tokens":4)")));
  ASSERT_TRUE(connection.read_until("data: [DONE]\n\n"));
  connection.close();
  time_until([&] { return value_of(metrics(), requests) == value_of(before, requests) + 2; });
  const auto text = metrics();
  EXPECT_EQ(value_of(text, requests), value_of(before, requests) + 2) << text;
  EXPECT_EQ(value_of(text, refused), value_of(before, refused) + 1) << text;
  EXPECT_EQ(value_of(text, ended), value_of(before, ended) + 1) << text;
  for (const char* name :
       {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
        "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total",
        "vllm:time_to_first_token_seconds_bucket", "vllm:inter_token_latency_seconds_bucket",
        "vllm:e2e_request_latency_seconds_bucket", "vllm:prompt_tokens_total", "vllm:generation_tokens_total",
        "vllm:num_preemptions_total", "vllm:request_success_total"}) {
    EXPECT_NE(text.find(name), std::string::npos) << name;
  }
}

TEST_F(WorkerServerTest, ClientDisconnectMidStreamFreesItsRequest) {
  EXPECT_LT(time_to_free(endless_body(), true), kFreedWithin);
}

TEST_F(WorkerServerTest, ClientDisconnectBeforeWholeAnswerFreesItsRequest) {
  EXPECT_LT(time_to_free(endless_body(""), false), kFreedWithin);
}

TEST_F(WorkerServerTest, DeadlineBeforeTheFirstByteIs504) {
  for (const char* fields : {R"(,"cache_salt":"d1")", R"(,"cache_salt":"d2","stream":true)"}) {
    const auto reply = chat(endless_body(fields), {"x-troupe-timeout-ms: 1"});
    EXPECT_EQ(reply.status, 504) << reply.body;
    EXPECT_EQ(json_of(reply.body).at_pointer("/error/type").is_string(), true);
  }
}

TEST_F(WorkerServerTest, DeadlineDuringAStreamIsAnErrorEvent) {
  milliseconds best{60000};  // of three, as in time_to_free()
  for (int i = 0; i < 3; ++i) {
    const auto reply = chat(endless_body(), {"x-request-timeout-ms: 500"});
    ASSERT_EQ(reply.status, 200);
    const auto events = events_of(reply.body);
    ASSERT_GE(events.size(), 3u);
    EXPECT_EQ(reply.body.find("[DONE]"), std::string::npos) << "the answer is not whole";
    EXPECT_TRUE(json_of(events.back()).as_object().contains("error")) << events.back();
    best = std::min(best, time_until([] { return worker->engine().load().running == 0; }));
  }
  EXPECT_LT(best, kFreedWithin);
}

TEST_F(WorkerServerTest, WholeAnswerBeyondItsDeadlineIs504) {
  EXPECT_EQ(chat(endless_body(""), {"x-request-timeout-ms: 300"}).status, 504);
}

TEST(WorkerServerQueue, RequestBeyondTheQueueGets429) {
  auto settings = worker_fixture::demo_settings();
  settings.scheduler.max_num_seqs = 1;
  settings.scheduler.max_waiting = 0;
  worker_fixture::Worker worker(settings);
  Connection first(worker.port());
  first.send(request_bytes("POST", "/v1/chat/completions", endless_body()));
  ASSERT_TRUE(first.read_until("data: "));
  const auto second = ask(worker.port(), "POST", "/v1/chat/completions", chat_body("Hello!"));
  EXPECT_EQ(second.status, 429) << second.body;
  EXPECT_EQ(second.header("retry-after"), "1");
}

TEST(WorkerServerDrain, RunningStreamEndsProperlyAndNewRequestsAreRefused) {
  WorkerSettings settings = worker_fixture::demo_settings();
  settings.server.notice = Duration{};
  worker_fixture::Worker worker(settings);
  Connection idle(worker.port());
  idle.send(request_bytes("GET", "/readyz", ""));
  EXPECT_EQ(idle.read_reply().status, 200);
  Connection stream(worker.port());
  stream.send(
      request_bytes("POST", "/v1/chat/completions", endless_body(R"(,"stream":true,"max_tokens":300)")));
  ASSERT_TRUE(stream.read_until("data: "));

  auto drained = worker.start_drain(std::chrono::seconds(120));
  EXPECT_LT(time_until([&] { return ask(worker.port(), "GET", "/readyz").status == 503; }),
            milliseconds(1000));
  idle.send(request_bytes("POST", "/v1/chat/completions", chat_body("Hello!")));
  const auto refused = idle.read_reply();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.header("connection"), "close");

  const auto events = events_of(stream.read_reply().body);
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_NE(events[events.size() - 2].find(R"("finish_reason":"length")"), std::string::npos);
  EXPECT_TRUE(drained.get());
  EXPECT_THROW(Connection again(worker.port()), std::runtime_error);
}

TEST(WorkerServerDrain, EndOfTheGraceEndsStreamsWithAnError) {
  worker_fixture::Worker worker;
  Connection stream(worker.port());
  stream.send(request_bytes("POST", "/v1/chat/completions", endless_body()));
  ASSERT_TRUE(stream.read_until("data: "));
  auto drained = worker.start_drain(std::chrono::seconds(60));
  worker.skip_grace_period();
  const std::string body = stream.read_reply().body;
  const auto events = events_of(body);
  EXPECT_FALSE(drained.get());
  ASSERT_GE(events.size(), 2u);
  EXPECT_NE(events.back().find("shutting down"), std::string::npos) << events.back();
  EXPECT_EQ(body.find("[DONE]"), std::string::npos) << "the answer is not whole";
}

}  // namespace troupe::server_test

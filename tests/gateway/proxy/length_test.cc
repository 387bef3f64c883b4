// Workers with contexts of different lengths behind one name: a request that one refuses for its length is
// answered by a longer one.

#include <gmock/gmock.h>

#include "common/api/error.h"
#include "common/json/json.h"
#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace length_test {

using ::testing::HasSubstr;

Task<void> refuse(std::string body, int status, Exchange& exchange) {
  HeaderList headers;
  headers.emplace_back("content-type", "application/json");
  co_await exchange.respond(status, headers, std::move(body));
}

StubAnswer refuses(std::string body, int status = 400) {
  return [body = std::move(body), status](StubWorker&, Exchange& exchange) {
    return refuse(body, status, exchange);
  };
}

std::string too_long(int64_t context) {
  return ApiError::context_length("messages", 2 * context, context).to_json();
}

Task<void> write_event(std::string event, Exchange& exchange) {
  co_await begin_stream(exchange);
  co_await exchange.write(event);
  co_await exchange.finish();
}

StubAnswer fails_with(std::string json) {
  return [event = "data: " + json + "\n\n"](StubWorker&, Exchange& exchange) {
    return write_event(event, exchange);
  };
}

Task<void> answer_either(StubWorker& stub, Exchange& exchange) {
  const bool stream = exchange.request().body.find("\"stream\":true") != std::string::npos;
  return stream ? answer_stream(stub, exchange) : answer_whole(stub, exchange);
}

const std::string kLlama =
    R"({"error":{"code":400,"message":"request (5000 tokens) exceeds the available context size (4096 tokens), )"
    R"(try increasing it","type":"exceed_context_size_error","n_prompt_tokens":5000,"n_ctx":4096}})";
const std::string kVllm =
    R"({"error":{"message":"This model's maximum context length is 4096 tokens. However, you requested 5010 )"
    R"(tokens","type":"BadRequestError","param":null,"code":400}})";

TEST(Length, ARequestThatIsTooLongForOneIsAnsweredByAnother) {
  const std::vector<std::pair<std::string, StubAnswer>> refusals{
      {"ours", refuses(too_long(4096))},
      {"vLLM", refuses(kVllm)},
      {"llama.cpp", refuses(kLlama)},
      {"llama.cpp, in a stream", fails_with(kLlama)},
      {"TGI",
       refuses(R"({"error":"Input validation error: `inputs` must have less than 4096 tokens. Given: 5000",)"
               R"("error_type":"validation"})",
               422)}};
  for (const auto& [name, answer] : refusals) {
    for (const bool stream : {false, true}) {
      if (name.ends_with("stream") && !stream) continue;
      Loop loop;
      StubWorker small(loop, answer);
      StubWorker large(loop,
                       [](StubWorker& stub, Exchange& exchange) { return answer_either(stub, exchange); });
      small.context = 4096;
      large.context = 131'072;
      TestGateway gateway(loop, {small.endpoint(), large.endpoint()});
      for (int i = 0; i < 20; ++i) {
        const Answer got = gateway.ask(chat_body("persona " + std::to_string(i), "x", stream));
        ASSERT_EQ(got.status, 200) << name << ": " << got.body;
      }
      EXPECT_GT(loop.call([&] { return small.seen.size(); }), 0u) << name << ": nothing was shown";
      EXPECT_EQ(loop.call([&] { return large.seen.size(); }), 20u) << name;
      EXPECT_EQ(gateway.worker_state(0), "ready") << name;
    }
  }
}

TEST(Length, WhereNoneIsLongerTheClientGetsTheLongestOnesRefusalAsItCame) {
  Loop loop;
  StubWorker small(loop, refuses(too_long(4096))), large(loop, refuses(too_long(32'768)));
  small.context = 4096;
  large.context = 32'768;
  TestGateway gateway(loop, {small.endpoint(), large.endpoint()});
  for (int i = 0; i < 20; ++i) {
    const Answer answer = gateway.ask(chat_body("persona " + std::to_string(i), "x"));
    ASSERT_EQ(answer.status, 400);
    EXPECT_EQ(answer.body, too_long(32'768));
    EXPECT_NE(answer.header("x-route-decision"), "");
  }
  EXPECT_GT(loop.call([&] { return small.seen.size(); }), 0u) << "nothing was shown";
  EXPECT_EQ(gateway.worker_state(0), "ready");
  EXPECT_EQ(gateway.worker_state(1), "ready");
}

TEST(Length, WorkerThatReportsNoContextIsAskedToo) {
  Loop loop;
  StubWorker silent(loop, answer_whole), small(loop, refuses(kVllm));
  TestGateway gateway(loop, {small.endpoint(), silent.endpoint()});
  for (int i = 0; i < 10; ++i) EXPECT_EQ(gateway.ask(chat_body("p" + std::to_string(i), "x")).status, 200);
  EXPECT_GT(loop.call([&] { return small.seen.size(); }), 0u) << "nothing was shown";
}

Task<void> make_prefix(Exchange& exchange) {
  HeaderList headers;
  headers.emplace_back("content-type", "application/json");
  co_await exchange.respond(200, headers,
                            R"({"id":"prefix-00000000000000000000000000000007","tokens":5000})");
}

TEST(Length, APrefixThatIsTooLongForSomeIsComputedByTheLongOne) {
  Loop loop;
  std::vector<std::unique_ptr<StubWorker>> workers;
  std::vector<Upstream> upstreams;
  for (int i = 0; i < 5; ++i) {
    const bool is_long = i == 2;
    workers.push_back(std::make_unique<StubWorker>(loop, refuses(too_long(4096))));
    if (is_long)
      workers.back()->answer = [](StubWorker&, Exchange& exchange) { return make_prefix(exchange); };
    workers.back()->context = is_long ? 131'072 : 4096;
    upstreams.emplace_back(workers.back()->endpoint());
  }
  TestGateway gateway(loop, upstreams);
  for (int i = 0; i < 10; ++i) {
    const std::string body = chat_body("persona " + std::to_string(i), "x");
    RawPeer peer = gateway.connect();
    peer.send(http_post("/v1/prefixes", body));
    const Answer made = read_answer(peer);
    ASSERT_EQ(made.status, 200) << made.body;
    EXPECT_THAT(made.body, HasSubstr("prefix-00000000000000000000000000000007"));
  }
  size_t refusals = 0;
  for (const auto& worker : workers) refusals += loop.call([&] { return worker->seen.size(); });
  EXPECT_GT(refusals, 10u) << "nothing was shown";
  EXPECT_LE(refusals, 20u) << "others that are as short are not asked";
  EXPECT_EQ(gateway.worker_state(0), "ready");
}

TEST(Length, AnyOther400IsTheClientsAtOnce) {
  Loop loop;
  StubWorker one(loop, answer_status(400)), other(loop, answer_status(400));
  one.context = 4096;
  other.context = 32'768;
  TestGateway gateway(loop, {one.endpoint(), other.endpoint()});
  EXPECT_EQ(gateway.ask(chat_body("card", "x")).status, 400);
  EXPECT_EQ(loop.call([&] { return one.seen.size() + other.seen.size(); }), 1u);
}

}  // namespace length_test
}  // namespace troupe::gateway_test

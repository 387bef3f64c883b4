// Whole answers on their way through moderation.

#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test::moderated_answer {
namespace {

Task<void> give(Exchange& exchange, std::string body) {
  const HeaderList json{{"content-type", "application/json"}};
  co_await exchange.respond(200, json, std::move(body));
}

TEST(ModeratedAnswer, IsJudgedHoweverLongItIs) {
  for (const size_t bytes : {size_t{1000}, size_t{3} << 20}) {
    Loop loop;
    const std::string body = R"({"choices":[{"index":0,"message":{"content":")" + std::string(bytes, 'x') +
                             R"("},"finish_reason":"stop"}]})";
    StubWorker worker(loop, [&body](StubWorker&, Exchange& exchange) { return give(exchange, body); });
    const auto redact = [](Exchange& exchange) {
      return give(exchange, R"({"verdict": "redact", "text": "[...]"})");
    };
    TestServer service(loop, redact, {});
    GatewayConfig config = TestGateway::quick_config();
    config.proxy.moderation.url = "http://" + service.endpoint().authority() + "/judge";
    config.proxy.moderation.answer = AnswerModeration::kWindow;
    config.proxy.moderation.before = false;
    TestGateway gateway(loop, {worker.endpoint()}, config);
    const Answer answer = gateway.ask(chat_body("persona", "x"));
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.header("x-troupe-moderation"), "redact");
    EXPECT_EQ(answer.body,
              R"({"choices":[{"index":0,"message":{"content":"[...]"},"finish_reason":"stop"}]})");
  }
}

}  // namespace
}  // namespace troupe::gateway_test::moderated_answer

// Gateways one behind the other: what goes round is ended, and none is taken for a worker.

#include <gmock/gmock.h>

#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace {

using ::testing::HasSubstr;

const std::string kLoopCard(1200, 'c');

TEST(Loops, WorkersGetTheNumberOfGatewaysARequestHasPassed) {
  Loop loop;
  StubWorker stub(loop, answer_whole);
  TestGateway gateway(loop, {stub.endpoint()});
  EXPECT_EQ(gateway.ask(chat_body(kLoopCard, "x")).status, 200);
  EXPECT_EQ(gateway.ask(chat_body(kLoopCard, "x"), "x-troupe-hops: 3\r\n").status, 200);
  loop.call([&] {
    EXPECT_EQ(stub.seen.at(0).header("x-troupe-hops"), "1");
    EXPECT_EQ(stub.seen.at(1).header("x-troupe-hops"), "4");
    return 0;
  });
}

TEST(Loops, RequestsThatGoRoundEndWith508) {
  Loop loop;
  StubWorker stub(loop, answer_whole);
  TestGateway gateway(loop, {stub.endpoint()});
  for (const std::string hops : {"4", "99999999999999999999"}) {
    const Answer answer = gateway.ask(chat_body(kLoopCard, "x"), "x-troupe-hops: " + hops + "\r\n");
    EXPECT_EQ(answer.status, 508) << hops;
    EXPECT_THAT(answer.body, HasSubstr("\"loop_detected\""));
  }
  EXPECT_EQ(gateway.ask(chat_body(kLoopCard, "x"), "x-troupe-hops: -1\r\n").status, 400);
  EXPECT_TRUE(loop.call([&] { return stub.seen.empty(); }));
}

// One more round for each retry would be as many as there are paths.
TEST(Loops, A508IsNotTriedElsewhere) {
  Loop loop;
  StubWorker a(loop, answer_status(508)), b(loop, answer_status(508));
  TestGateway gateway(loop, {a.endpoint(), b.endpoint()});
  EXPECT_EQ(gateway.ask(chat_body(kLoopCard, "x")).status, 508);
  EXPECT_EQ(loop.call([&] { return a.seen.size() + b.seen.size(); }), 1u);
}

TEST(Loops, AGatewayIsNoWorker) {
  Loop loop;
  StubWorker stub(loop, answer_whole);
  TestGateway inner(loop, {stub.endpoint()});
  Endpoint inner_port;
  inner_port.host = "127.0.0.1";
  inner_port.port = inner.gateway->port();
  TestGateway outer(loop, {inner_port, stub.endpoint()});
  EXPECT_TRUE(outer.becomes(0, "dead"));
  EXPECT_THAT(outer.admin("/admin/workers").body, HasSubstr("it is a gateway"));
  for (int i = 0; i < 8; ++i) {
    const Answer answer = outer.ask(chat_body(kLoopCard + std::to_string(i), "x"));
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.route("node"), stub.id());
  }
}

}  // namespace
}  // namespace troupe::gateway_test

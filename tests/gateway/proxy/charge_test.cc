// The charge to an API key for an answer that its client received in part: as many tokens as that part has,
// whichever side broke it off.

#include <fstream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gateway/access/secret.h"
#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace {

// Script of a worker's answer.
struct Pour {
  enum class Then { kHang, kBreak };
  int events = 20;
  size_t event_bytes = 150;  // of its text
  bool ours = false;         // each event has three ids, as our workers send them
  bool finishes = false;     // ends with its counts, short of [DONE]
  Then then = Then::kHang;
};

Task<void> pour(const Pour& how, Exchange& exchange) {
  if (how.events > 0) co_await begin_stream(exchange);
  for (int i = 0; i < how.events; ++i) {
    const std::string member =
        how.ours ? absl::StrCat(",\"troupe\":{\"ids\":[1,2,3]", i == 0 ? ",\"seed\":7" : "", "}") : "";
    const std::string event =
        absl::StrCat("data: {\"id\":\"c\",\"created\":5,\"choices\":[{\"delta\":{\"content\":\"",
                     std::string(how.event_bytes, 'x'), " ", i, "\"}}]", member, "}\n\n");
    co_await exchange.write(event);
  }
  if (how.finishes) {
    const std::string event = absl::StrCat(
        "data: {\"id\":\"c\",\"created\":5,\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}],\"",
        how.ours ? "troupe\":{\"ids\":[],\"prompt_tokens\":300,\"completion_tokens\":61,\"cached_tokens\":9}}"
                 : "usage\":{\"prompt_tokens\":300,\"completion_tokens\":61}}",
        "\n\n");
    co_await exchange.write(event);
  }
  if (how.then == Pour::Then::kBreak) co_return;
  Timer timer(exchange.executor());
  timer.expires_after(60s);
  co_await timer.async_wait(use_task);
}

class Charge : public testing::Test {
 protected:
  void begin(const Pour& how) {
    pour_ = how;
    const Sha256 digest = sha256("key-payer");
    const std::string_view bytes(reinterpret_cast<const char*>(digest.data()), digest.size());
    const std::string keys = testing::TempDir() + "/charge.yaml";
    std::ofstream(keys) << "payer:\n  sha256: \"" << absl::BytesToHexString(to_absl(bytes)) << "\"\n";
    GatewayConfig config = TestGateway::quick_config();
    config.api_keys = keys;
    if (how.ours) {
      stub_.load_status = 200;
      stub_.load.epoch = "a life";
    }
    gateway_ = std::make_unique<TestGateway>(loop_, std::vector<Upstream>{stub_.endpoint()}, config);
    EXPECT_TRUE(loop_.eventually([&] { return gateway_->gateway->fleet().is_troupe_worker(0) == how.ours; }));
  }
  RawPeer ask(const std::string& more = "", const std::string& headers = "") {
    std::string body = chat_body("A persona", "hello", true);
    body.insert(body.size() - 1, more);
    prompt_ = static_cast<double>(body.size() / 4);
    RawPeer peer = gateway_->connect();
    peer.send(http_post("/v1/chat/completions", body, "authorization: Bearer key-payer\r\n" + headers));
    return peer;
  }
  // Tokens charged, once no worker is asked any more.
  double charged() {
    EXPECT_TRUE(loop_.eventually([&] { return gateway_->gateway->proxy().requests_running() == 0; }));
    return gateway_->metric("troupe_gateway_key_tokens_total{key=\"payer\"}");
  }

  Loop loop_;
  Pour pour_;
  StubWorker stub_{loop_, [this](StubWorker&, Exchange& exchange) { return pour(pour_, exchange); }};
  std::unique_ptr<TestGateway> gateway_;
  double prompt_ = 0;  // estimated cost
};

TEST_F(Charge, DisconnectFromAForeignStreamCostsItsEvents) {
  for (const size_t bytes : {1, 1000}) {
    Pour how;
    how.event_bytes = bytes;
    begin(how);
    ask().read_until(" 19\"");
    EXPECT_NEAR(charged(), prompt_ + 20, 1) << bytes << " bytes each";
    gateway_.reset();
  }
}

TEST_F(Charge, DisconnectFromOurStreamCostsItsTokens) {
  Pour how;
  how.ours = true;
  begin(how);
  ask().read_until(" 19\"");
  EXPECT_EQ(charged(), prompt_ + 60);
}

TEST_F(Charge, DisconnectFromSeveralChoicesCostsTheirTokens) {
  Pour how;
  how.ours = true;
  begin(how);
  ask(R"(,"n":2)").read_until(" 19\"");
  EXPECT_EQ(charged(), prompt_ + 60);
}

TEST_F(Charge, DisconnectAfterTheUsageChunkCostsItsCounts) {
  for (const bool ours : {true, false}) {
    Pour how;
    how.ours = ours;
    how.finishes = true;
    stub_.load_status = 404;
    begin(how);
    ask().read_until("\"length\"");
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(charged(), 361) << ours;
    gateway_.reset();
  }
}

TEST_F(Charge, BrokenStreamCostsItsTokens) {
  for (const bool ours : {true, false}) {
    Pour how;
    how.ours = ours;
    how.then = Pour::Then::kBreak;
    how.event_bytes = 1000;
    stub_.load_status = 404;
    begin(how);
    RawPeer peer = ask();
    EXPECT_NE(read_answer(peer).body.find(" 19\""), std::string::npos);
    EXPECT_NEAR(charged(), prompt_ + (ours ? 60 : 20), ours ? 0 : 1);
    gateway_.reset();
  }
}

TEST_F(Charge, DeadlineInMidStreamCostsTheEventsSent) {
  Pour how;
  how.event_bytes = 1000;
  begin(how);
  RawPeer peer = ask("", "x-request-timeout-ms: 300\r\n");
  EXPECT_EQ(read_answer(peer).status, 200);
  EXPECT_NEAR(charged(), prompt_ + 20, 1);
}

// Otherwise a client with a short deadline would get its prompts computed for free.
TEST_F(Charge, DeadlineBeforeTheFirstByteCostsThePrompt) {
  Pour how;
  how.events = 0;
  begin(how);
  RawPeer peer = ask("", "x-request-timeout-ms: 200\r\n");
  EXPECT_EQ(read_answer(peer).status, 504);
  EXPECT_EQ(charged(), prompt_);
}

TEST_F(Charge, SilentWorkerCostsNothing) {
  Pour how;
  how.events = 0;
  how.then = Pour::Then::kBreak;
  begin(how);
  RawPeer peer = ask();
  EXPECT_GE(read_answer(peer).status, 500);
  EXPECT_EQ(charged(), 0);
}

}  // namespace
}  // namespace troupe::gateway_test

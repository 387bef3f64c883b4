// A client that closes once it has a stream's last event has its whole answer: so say the access log, the
// record of traffic and the metrics, though its worker's connection has not ended yet.

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test::closed_at_done {
namespace {

struct TempFile {
  explicit TempFile(const std::string& name)
      : path(std::filesystem::temp_directory_path() / (name + "." + std::to_string(getpid()))) {
    std::filesystem::remove(path);
  }
  ~TempFile() { std::filesystem::remove(path); }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  std::string text() const {
    std::ostringstream out;
    out << std::ifstream(path).rdbuf();
    return out.str();
  }
  const std::string path;
};

const std::string kText =
    "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":400,\"completion_tokens\":3,"
    "\"prompt_tokens_details\":{\"cached_tokens\":384}}}\n\n";

// Its last event, and no end of the answer.
Task<void> say_and_wait(Exchange& exchange, std::string events) {
  co_await begin_stream(exchange);
  co_await exchange.write(events);
  Timer timer(exchange.executor());
  timer.expires_after(20s);
  co_await timer.async_wait(use_task);
}

class ClosedAtTheEnd : public ::testing::Test {
 protected:
  // A client of `path` reads until `last`, and closes.
  void close_at(const std::string& path, const std::string& events, const std::string& last) {
    loop_.call([&] {
      worker_.answer = [events](StubWorker&, Exchange& exchange) { return say_and_wait(exchange, events); };
    });
    RawPeer peer = gateway_->connect();
    peer.send(http_post(path, chat_body("You are Newton.", "Who?", true)));
    EXPECT_NE(peer.read_until(last).find(last), std::string::npos);
    peer.close();
    EXPECT_TRUE(loop_.eventually([&] { return gateway_->gateway->proxy().requests_running() == 0; }));
  }
  static GatewayConfig config(const std::string& log, const std::string& record) {
    GatewayConfig config = TestGateway::quick_config();
    config.telemetry.access_log = log;
    config.record = record;
    return config;
  }
  // Ends the gateway, which writes what it has to write.
  void end() { gateway_.reset(); }

  const TempFile log_{"closed_access"}, record_{"closed_record"};
  Loop loop_;
  StubWorker worker_{loop_, answer_stream};
  std::unique_ptr<TestGateway> gateway_ = std::make_unique<TestGateway>(
      loop_, std::vector<Upstream>{worker_.endpoint()}, config(log_.path, record_.path));
};

TEST_F(ClosedAtTheEnd, IsAnsweredInLogRecordAndMetrics) {
  const std::string done = "data: [DONE]\n\n";
  close_at("/v1/chat/completions", kText + done, done);
  EXPECT_EQ(gateway_->metric("troupe_gateway_requests_total{code=\"200\"}"), 1);
  EXPECT_EQ(gateway_->metric("troupe_gateway_request_seconds_count{end=\"answered\"}"), 1);
  EXPECT_EQ(gateway_->metric("troupe_gateway_request_seconds_count{end=\"cancelled\"}"), 0);
  EXPECT_EQ(gateway_->metric("troupe_gateway_requests_cancelled_total{reason=\"client_gone\"}"), -1);
  EXPECT_EQ(gateway_->metric("troupe_gateway_client_gone_total"), 0);
  end();
  const std::string line = log_.text();
  for (const char* field : {" status=200 ", " end=answered ", " why=- ", " attempts=1 ", " cached=384 ",
                            " prompt=400 ", " completion=3 ", " stream=true"})
    EXPECT_NE(line.find(field), std::string::npos) << field << " in " << line;
  const auto record = parse_json(record_.text());
  ASSERT_TRUE(record.ok()) << record_.text();
  const bj::object& fields = record->as_object();
  EXPECT_EQ(fields.at("status").as_int64(), 200);
  EXPECT_EQ(fields.at("input_length").as_int64(), 400);
  EXPECT_EQ(fields.at("cached").as_int64(), 384);
}

TEST_F(ClosedAtTheEnd, BeforeItIsCancelledEverywhere) {
  close_at("/v1/chat/completions", kText, kText);
  EXPECT_EQ(gateway_->metric("troupe_gateway_requests_cancelled_total{reason=\"client_gone\"}"), 1);
  end();
  EXPECT_NE(log_.text().find(" status=499 end=cancelled why=client_gone "), std::string::npos) << log_.text();
  const auto record = parse_json(record_.text());
  ASSERT_TRUE(record.ok()) << record_.text();
  EXPECT_EQ(record->as_object().at("status").as_int64(), 499);
}

// The APIs that are passed on have last events of their own.
TEST_F(ClosedAtTheEnd, OfAnyApiIsAnswered) {
  const std::string delta = "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"a\"}}\n\n";
  const std::string stop = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
  close_at("/v1/messages", delta + stop, stop);
  const std::string completed = "data: {\"type\":\"response.completed\",\"response\":{}}\n\n";
  close_at("/v1/responses", completed, completed);
  EXPECT_EQ(gateway_->metric("troupe_gateway_requests_total{code=\"200\"}"), 2);
  EXPECT_EQ(gateway_->metric("troupe_gateway_requests_cancelled_total{reason=\"client_gone\"}"), -1);
}

}  // namespace
}  // namespace troupe::gateway_test::closed_at_done

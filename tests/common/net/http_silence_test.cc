// A silent peer: give_up decides in every phase whether to wait on.

#include "common/net/http_client.h"
#include "tests/common/net/net_fixture.h"

namespace troupe::net_test {
namespace {

struct Asked {
  Duration silence_timeout = 60ms;
  int times = 0;
  int gives_up_at = 1;  // the call that gives up; 0: never
};

Task<Status> ask_with_patience(HttpClient& client, Asked& asked, size_t body_bytes, Deadline deadline) {
  const std::string body(body_bytes, 'x');
  ClientRequest request;
  request.method = "POST";
  request.body = body;
  request.silence_timeout = asked.silence_timeout;
  request.give_up = [&asked] { return ++asked.times == asked.gives_up_at; };
  auto answer = co_await client.send(request, deadline);
  if (!answer.ok()) co_return answer.status();
  auto all = co_await (*answer)->read_all(1u << 20);
  co_return all.status();
}

struct Asking {
  Asking(Loop& loop, const Endpoint& endpoint, const HttpClientOptions& options = {}) : loop_(loop) {
    client_ = std::make_unique<HttpClient>(loop.executor(), endpoint, options);
  }
  ~Asking() {
    loop_.call([this] { client_.reset(); });
  }
  std::future<Status> start(size_t body_bytes = 3, Deadline deadline = Deadline::never()) {
    return loop_.start(ask_with_patience(*client_, asked, body_bytes, deadline));
  }
  int times() {
    return loop_.call([this] { return asked.times; });
  }
  Asked asked;

 private:
  Loop& loop_;
  std::unique_ptr<HttpClient> client_;
};

TEST(SilenceTimeout, GivesUpSilentPeerInEveryPhase) {
  const std::vector<std::pair<std::string, SendPhase>> cases = {
      {"", SendPhase::kHead},
      {"HTTP/1.1 200 OK\r\n", SendPhase::kHead},
      {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", SendPhase::kBody},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", SendPhase::kBody},
  };
  for (const auto& [bytes, phase] : cases) {
    Loop loop;
    RawListener upstream;
    Asking asking(loop, upstream.endpoint);
    auto answer = asking.start();
    RawPeer peer = upstream.accept();
    peer.read_until("xxx");
    peer.send(bytes);
    const Status status = answer.get();
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status.ToString();
    EXPECT_EQ(send_phase(status), phase) << status.ToString();
    EXPECT_TRUE(peer.closed_within(2s));
  }
}

// Each byte ends a silence, but a head has a time of its own.
TEST(SilenceTimeout, HeadThatDripsIsGivenUpInTime) {
  for (const Duration silence_timeout : {Duration::zero(), Duration(200ms)}) {
    Loop loop;
    RawListener upstream;
    HttpClientOptions options;
    options.header_timeout = 400ms;
    Asking asking(loop, upstream.endpoint, options);
    asking.asked.silence_timeout = std::chrono::duration_cast<std::chrono::milliseconds>(silence_timeout);
    auto answer = asking.start();
    RawPeer peer = upstream.accept();
    peer.read_until("xxx");
    const TimePoint begin = now();
    const std::string head = "HTTP/1.1 200 OK\r\nx-drip: ";
    size_t sent = 0;
    while (answer.wait_for(20ms) != std::future_status::ready && now() < begin + 5s)
      peer.send(sent < head.size() ? head.substr(sent++, 1) : "x");
    const Status status = answer.get();
    EXPECT_LT(now() - begin, 2s);
    EXPECT_GE(now() - begin, 400ms);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status.ToString();
    EXPECT_NE(status.message().find("400 ms"), absl::string_view::npos) << status.ToString();
    EXPECT_TRUE(peer.closed_within(2s));
  }
}

// A late head and body are none: only the bytes of a head itself are timed.
TEST(SilenceTimeout, ServerMayTakeLongBeforeAndAfterItsHead) {
  Loop loop;
  RawListener upstream;
  HttpClientOptions options;
  options.header_timeout = 100ms;
  Asking asking(loop, upstream.endpoint, options);
  asking.asked.silence_timeout = 0ms;
  auto answer = asking.start();
  RawPeer peer = upstream.accept();
  peer.read_until("xxx");
  std::this_thread::sleep_for(200ms);
  peer.send("HTTP/1.1 103 Early Hints\r\n\r\n");
  std::this_thread::sleep_for(200ms);
  peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n");
  std::this_thread::sleep_for(20ms);
  peer.send("\r\n");
  std::this_thread::sleep_for(200ms);
  peer.send("ok");
  const Status status = answer.get();
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST(SilenceTimeout, GivesUpPeerThatStopsReadingTheRequest) {
  Loop loop;
  RawListener upstream;
  Asking asking(loop, upstream.endpoint);
  auto answer = asking.start(32u << 20);
  RawPeer peer = upstream.accept();
  const Status status = answer.get();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status.ToString();
  EXPECT_EQ(send_phase(status), SendPhase::kWrite) << status.ToString();
}

TEST(SilenceTimeout, AsksAgainAndAcceptsALateAnswer) {
  Loop loop;
  RawListener upstream;
  Asking asking(loop, upstream.endpoint);
  asking.asked.gives_up_at = 0;
  auto answer = asking.start();
  RawPeer peer = upstream.accept();
  peer.read_until("xxx");
  ASSERT_TRUE(loop.eventually([&] { return asking.asked.times >= 3; }));
  peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no");
  const int before = asking.times();
  ASSERT_TRUE(loop.eventually([&] { return asking.asked.times > before; }));
  peer.send("k");
  const Status status = answer.get();
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST(SilenceTimeout, DeadlineEndsTheWaitWithoutGivingUp) {
  Loop loop;
  RawListener upstream;
  Asking asking(loop, upstream.endpoint);
  asking.asked.gives_up_at = 0;
  auto answer = asking.start(3, Deadline::after(now(), 400ms));
  RawPeer peer = upstream.accept();
  const Status status = answer.get();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status.ToString();
  EXPECT_GT(asking.times(), 0);
}

// The loop sleeps for longer than the patience while the answer waits in the socket: the silence is ours.
TEST(SilenceTimeout, UnreadBytesAreNoSilence) {
  Loop loop;
  RawListener upstream;
  Asking asking(loop, upstream.endpoint);
  asking.asked.silence_timeout = 500ms;
  auto answer = asking.start();
  RawPeer peer = upstream.accept();
  peer.read_until("xxx");
  for (const char* piece : {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "ok"}) {
    std::promise<void> asleep;
    asio::post(loop.executor(), [&] {
      asleep.set_value();
      std::this_thread::sleep_for(1200ms);
    });
    asleep.get_future().wait();
    peer.send(piece);
  }
  const Status status = answer.get();
  EXPECT_TRUE(status.ok()) << status.ToString();
}

}  // namespace
}  // namespace troupe::net_test

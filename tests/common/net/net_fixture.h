#pragma once

// Shared by the tests of common/net: an event loop in a thread of its own, and a raw blocking peer that sends
// any bytes, right or wrong, and reads the answer.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "common/net/http_client.h"
#include "common/net/http_server.h"
#include "common/net/timer.h"

namespace troupe::net_test {

using namespace std::chrono_literals;

inline TimePoint now() {
  return std::chrono::steady_clock::now();
}

// Completion of a spawned task into a future (asio::use_future trips -Wmaybe-uninitialized under ASan).
template <typename T>
struct Fulfil {
  std::shared_ptr<std::promise<T>> promise;
  void operator()(const std::exception_ptr& error, T value) const {
    if (error) return promise->set_exception(error);
    promise->set_value(std::move(value));
  }
};
template <>
struct Fulfil<void> {
  std::shared_ptr<std::promise<void>> promise;
  void operator()(const std::exception_ptr& error) const {
    if (error) return promise->set_exception(error);
    promise->set_value();
  }
};

// Runs an io_context in a thread until stopped.
class Loop {
 public:
  Loop() : work_(asio::make_work_guard(io)), thread_([this] { io.run(); }) {}
  ~Loop() {
    work_.reset();
    thread_.join();  // every task has been joined by then, or the test hangs and says so
  }
  Executor executor() { return io.get_executor(); }

  template <typename T>
  T run(Task<T> task) {
    return start(std::move(task)).get();
  }
  template <typename T>
  std::future<T> start(Task<T> task) {
    auto promise = std::make_shared<std::promise<T>>();
    auto result = promise->get_future();
    asio::co_spawn(io, std::move(task), Fulfil<T>{std::move(promise)});
    return result;
  }
  // Calls `f` on the loop's thread.
  template <typename F>
  auto call(F f) {
    std::packaged_task<std::invoke_result_t<F>()> job(std::move(f));
    auto result = job.get_future();
    asio::post(io, [&job] { job(); });
    return result.get();
  }
  // Polls `condition` on the loop's thread.
  bool eventually(std::function<bool()> condition, std::chrono::milliseconds limit = 5s) {
    const TimePoint until = now() + limit;
    while (now() < until) {
      if (call(condition)) return true;
      std::this_thread::sleep_for(1ms);
    }
    return false;
  }

  asio::io_context io{1};

 private:
  asio::executor_work_guard<Executor> work_;
  std::thread thread_;
};

// A server that listens from construction and is drained on destruction.
class TestServer {
 public:
  TestServer(Loop& loop, HttpHandler handler, HttpServerOptions options = {})
      : loop_(loop), server(loop.io, options, std::move(handler), log_) {
    const Status listening = server.listen();
    EXPECT_TRUE(listening.ok()) << listening.ToString();
    loop_.call([this] { server.start(); });
  }
  ~TestServer() { drain(0ms); }
  void drain(std::chrono::milliseconds grace) { loop_.run(server.drain(grace)); }
  uint16_t port() const { return server.port(); }
  Endpoint endpoint() const {
    Endpoint endpoint;
    endpoint.host = "127.0.0.1";
    endpoint.port = server.port();
    return endpoint;
  }
  size_t connections() {
    return loop_.call([this] { return server.connections(); });
  }

 private:
  Logger log_{LogLevel::kError, -1};
  Loop& loop_;

 public:
  HttpServer server;
};

// A blocking TCP peer on loopback; every call gives up after five seconds.
class RawPeer {
 public:
  explicit RawPeer(int fd) : fd_(fd) {}
  static RawPeer connect(uint16_t port, int receive_buffer = 0) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer > 0) ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return RawPeer(fd);
  }
  RawPeer(RawPeer&& other) noexcept : fd_(std::exchange(other.fd_, -1)), rest_(std::move(other.rest_)) {}
  RawPeer& operator=(RawPeer&&) = delete;
  ~RawPeer() { close(); }

  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  void reset() {  // RST instead of FIN
    const linger hard{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close();
  }
  void shutdown_send() { ::shutdown(fd_, SHUT_WR); }
  int descriptor() const { return fd_; }
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = TEMP_FAILURE_RETRY(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL));
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  // Reads until `mark` (inclusive); less if the peer closes or five seconds pass.
  std::string read_until(std::string_view mark) {
    for (;;) {
      const size_t at = rest_.find(mark);
      if (at != std::string::npos) return take(at + mark.size());
      if (!fill(5s)) return take(rest_.size());
    }
  }
  std::string read_some(size_t bytes) {
    while (rest_.size() < bytes && fill(5s)) {
    }
    return take(std::min(bytes, rest_.size()));
  }
  // Reads one answer with Content-Length or chunked body: its head, and its body as on the wire.
  std::string read_answer() {
    std::string answer = read_until("\r\n\r\n");
    const size_t at = answer.find("content-length: ");
    if (at != std::string::npos) return answer += read_some(std::stoul(answer.substr(at + 16)));
    if (answer.find("transfer-encoding: chunked") != std::string::npos) answer += read_until("0\r\n\r\n");
    return answer;
  }
  std::string read_to_end() {
    while (fill(5s)) {
    }
    return take(rest_.size());
  }
  // Returns whether the peer closed (or reset) in time and sent nothing more.
  bool closed_within(std::chrono::milliseconds limit) {
    const TimePoint until = now() + limit;
    while (now() < until) {
      const size_t before = rest_.size();
      if (!fill(std::chrono::duration_cast<std::chrono::milliseconds>(until - now()) + 1ms)) return ended_;
      if (rest_.size() > before) return false;
    }
    return false;
  }

 private:
  bool fill(std::chrono::milliseconds limit) {
    pollfd item{fd_, POLLIN, 0};
    if (fd_ < 0 || TEMP_FAILURE_RETRY(::poll(&item, 1, static_cast<int>(limit.count()))) <= 0) return false;
    char buffer[65536];
    const ssize_t n = TEMP_FAILURE_RETRY(::recv(fd_, buffer, sizeof buffer, 0));
    if (n <= 0) {
      ended_ = true;
      return false;
    }
    rest_.append(buffer, static_cast<size_t>(n));
    return true;
  }
  std::string take(size_t bytes) {
    std::string taken = rest_.substr(0, bytes);
    rest_.erase(0, bytes);
    return taken;
  }

  int fd_;
  bool ended_ = false;
  std::string rest_;
};

// A listener whose connections the test answers by hand, byte for byte: an upstream that dies or misbehaves.
class RawListener {
 public:
  RawListener() : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(fd_, 16), 0);
    socklen_t size = sizeof address;
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    endpoint.host = "127.0.0.1";
    endpoint.port = ntohs(address.sin_port);
  }
  RawListener(const RawListener&) = delete;
  RawListener& operator=(const RawListener&) = delete;
  ~RawListener() { close(); }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  RawPeer accept() {
    pollfd item{fd_, POLLIN, 0};
    EXPECT_EQ(TEMP_FAILURE_RETRY(::poll(&item, 1, 5000)), 1) << "nobody connects";
    return RawPeer(::accept(fd_, nullptr, nullptr));
  }

  Endpoint endpoint;

 private:
  int fd_;
};

}  // namespace troupe::net_test

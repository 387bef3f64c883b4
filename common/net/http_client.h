#pragma once

// HTTP/1.1 client with a pool of kept-alive connections an upstream. On one io_context thread.
//
//   HttpClient client(io.get_executor(), endpoint, options);
//   auto answer = co_await client.send(request, deadline);     // connects or reuses, writes, reads the head
//   while (co_await answer->read(chunk)) { … }                  // body pieces as they come; false at the end
//
// The caller pulls: while it does not read, the socket fills and the upstream stops (backpressure). Dropping
// the answer before its end, or cancelling the coroutine, closes the connection at once: that is how upstream
// work is cancelled. A complete answer returns its connection to the pool. A pooled connection the peer has
// closed meanwhile is detected and replaced once, if no byte of an answer came (see stale_window).

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/core/status.h"
#include "common/core/time.h"
#include "common/net/http_message.h"
#include "common/net/task.h"
#include "common/net/tls.h"

namespace troupe {

struct Endpoint {
  std::string host;
  uint16_t port = 80;
  bool tls = false;
  // "http://host:port", "https://host:port" (without a port: 80, 443), "host:port" (http). An error says what
  // is wrong with the URL.
  static StatusOr<Endpoint> parse(std::string_view url);
  std::string authority() const;  // "host:port"
  std::string url() const;
  auto operator<=>(const Endpoint&) const = default;
};

struct ClientRequest {
  std::string method = "GET";
  std::string target = "/";
  HeaderList headers;     // Host, Content-Length and Connection are set by the client
  std::string_view body;  // must outlive the send
  // Asked each time the peer has been silent for `patience` (> 0), from the request's first byte to the
  // answer's last: true ends the exchange with kAborted. Only time spent waiting for the peer counts, and no
  // byte that this machine has and this thread has not looked at yet. Callable as long as the answer lives.
  Duration patience = Duration::zero();
  std::function<bool()> give_up;
};

struct HttpClientOptions {
  size_t idle_connections_max = 512;
  std::chrono::milliseconds connect_timeout{2'000};
  std::chrono::milliseconds idle_timeout{60'000};  // a pooled connection older than this is not reused
  size_t header_bytes_max = 32u << 10;
  std::shared_ptr<const TlsSource> tls;  // for endpoints with TLS; without it those cannot be connected to
  // A pooled connection that ends this soon after the request was written, without a byte of an answer, was
  // closed by a peer that had not seen the request: it is sent again, once. One that ends later may have died
  // of it.
  std::chrono::milliseconds stale_window{50};
  // Told of each new connection, its name lookup and TLS handshake included: how long it took, and whether it
  // came to be. Not of one that nobody waits for any more. Must not throw; callable as long as the client's
  // coroutines live.
  std::function<void(Duration, bool connected)> on_connect;
};

// For tests and metrics.
struct HttpClientStats {
  uint64_t connects = 0;
  uint64_t reuses = 0;
  uint64_t stale_replaced = 0;  // pooled connections that turned out dead when used
  size_t idle = 0;
};

// Where a failed exchange stood, which decides whether it may be tried elsewhere.
enum class SendPhase { kConnect, kWrite, kHead, kBody };

class ClientAnswer {
 public:
  virtual ~ClientAnswer() = default;
  virtual int status() const = 0;
  virtual const HeaderList& headers() const = 0;  // names lower-case
  virtual std::string_view header(std::string_view name) const = 0;
  // Next piece of the body, decoded from its transfer coding, into `out` (replaced). false at the end.
  // kUnavailable: the peer broke off; kDeadlineExceeded: the deadline passed; kAborted: given up
  // (ClientRequest::give_up).
  virtual Task<StatusOr<bool>> read(std::string& out) = 0;
  // The rest of the body, at most bytes_max (kResourceExhausted beyond).
  virtual Task<StatusOr<std::string>> read_all(size_t bytes_max) = 0;
};

class HttpClient {
 public:
  HttpClient(Executor executor, Endpoint endpoint, HttpClientOptions options);
  ~HttpClient();

  // The error's payload (see send_phase) tells where it broke; kConnect only if no byte of the request was
  // ever written. kUnavailable: connect or transport failure; kResourceExhausted: this machine has no file,
  // port or memory for a connection (the peer is not to blame; the message says what to raise);
  // kUnavailable also: its certificate is not one that is asked for, or it refuses ours;
  // kInternal: the peer does not speak HTTP/1.1 as it should; kDeadlineExceeded: the deadline passed;
  // kAborted: given up; kInvalidArgument: a header or target that cannot be sent. A cancelled coroutine gets
  // Asio's operation_aborted as boost::system::system_error, from here and from ClientAnswer::read. The
  // deadline counts on until the answer's body has been read.
  Task<StatusOr<std::unique_ptr<ClientAnswer>>> send(const ClientRequest& request, Deadline deadline);
  void close_idle();
  const Endpoint& endpoint() const;
  HttpClientStats stats() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

SendPhase send_phase(const Status& status);

}  // namespace troupe

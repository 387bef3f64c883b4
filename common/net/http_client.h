#pragma once

// HTTP/1.1 client with a pool of kept-alive connections an upstream. On one io_context thread.
//
//   HttpClient client(io.get_executor(), endpoint, options);
//   auto answer = co_await client.send(request, deadline);     // connects or reuses, writes, reads the head
//   while (co_await answer->read(chunk)) { … }                  // body pieces as they come; false at the end
//
// The caller pulls: while it does not read, the socket fills and the upstream stops (backpressure). Dropping
// the answer before its end, or cancelling the coroutine, closes the connection at once, which cancels the
// upstream's work. A complete answer returns its connection to the pool. A pooled connection closed by the
// peer meanwhile is detected and replaced once, if no byte of an answer came (see stale_window).

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
  // Parses "http://host:port", "https://host:port" (without a port: 80, 443), "host:port" (http). Errors
  // describe the fault in the URL. The host is as canonical_host() has it: one server has one spelling.
  static StatusOr<Endpoint> parse(std::string_view url);
  std::string authority() const;  // "host:port"
  std::string url() const;
  auto operator<=>(const Endpoint&) const = default;
};

// A name's addresses, as the system's resolver (getaddrinfo) tells them.
struct NameLookup {
  boost::system::error_code error;  // timed_out: it took longer than until `until`
  std::vector<std::string> addresses;
};
// At most `addresses_max` of them. getaddrinfo runs in Asio's thread and cannot be interrupted: a cancelled
// caller (operation_aborted is thrown) does not wait for it.
Task<NameLookup> look_up(Executor executor, std::string host, TimePoint until, size_t addresses_max);

struct ClientRequest {
  std::string method = "GET";
  std::string target = "/";
  HeaderList headers;     // Host, Content-Length and Connection are set by the client
  std::string_view body;  // must outlive the send
  // Called each time the peer has been silent for `silence_timeout` (> 0), from the request's first byte to
  // the answer's last: true ends the exchange with kAborted. Only time spent waiting for the peer counts, and
  // bytes that this machine has received but this thread has not seen end the silence. Callable as long as
  // the answer lives.
  Duration silence_timeout = Duration::zero();
  std::function<bool()> give_up;
};

struct HttpClientOptions {
  size_t idle_connections_max = 512;
  std::chrono::milliseconds connect_timeout{2'000};
  std::chrono::milliseconds idle_timeout{60'000};  // a pooled connection idle for longer is not reused
  // Less than servers here accept, so that a gateway can add lines of its own to what it passes on.
  size_t header_bytes_max = 28u << 10;
  std::chrono::milliseconds header_timeout{10'000};  // for a whole head, from its first byte on
  std::shared_ptr<const TlsSource> tls;              // required for endpoints with TLS
  // A pooled connection that ends this soon after the request was written,
  // without a byte of an answer, was closed by a peer that had not seen the
  // request: it is sent again, once. A later end may be the request's own effect.
  std::chrono::milliseconds stale_window{50};
  // A name is looked up again after this time of use, and connections to addresses that several answers in a
  // row did not have (KnownAddresses) end after their exchange. Zero: only for new connections.
  std::chrono::seconds resolve_interval{30};
  // Looks a name up in place of the system: addresses and ports. Called on the executor's thread; must not
  // block. null: the system does.
  std::function<std::vector<std::pair<std::string, uint16_t>>(const std::string& host, uint16_t port)> lookup;
  // A name that leads to an address of the link, or to a cloud's metadata service (core/host_scope.h), is not
  // connected to: it was not this machine's operator alone who chose it. An address in its place is.
  bool refuses_link_local = false;
  std::string path;                                    // put before every target, such as "/openai"
  std::string authorization;                           // of every request, instead of its own
  std::string authorization_header = "authorization";  // that has it: lower-case
  // Receives each new connection's duration, name lookup and TLS handshake included, and whether it
  // succeeded. Not called for a connection that no request waits for any more. Must not throw; callable as
  // long as the client's coroutines live.
  std::function<void(Duration, bool connected)> on_connect;
};

// For tests and metrics.
struct HttpClientStats {
  uint64_t connects = 0;
  uint64_t reuses = 0;
  uint64_t stale_replaced = 0;  // pooled connections found dead on use
  size_t idle = 0;
};

// The phase in which an exchange failed, which decides whether it may be tried elsewhere.
enum class SendPhase { kConnect, kWrite, kHead, kBody };

class ClientAnswer {
 public:
  virtual ~ClientAnswer() = default;
  virtual int status() const = 0;
  virtual const HeaderList& headers() const = 0;  // names lower-case
  virtual std::string_view header(std::string_view name) const = 0;
  // Reads the next piece of the body, decoded from its transfer coding, into `out`
  // (replaced). Returns false at the end. kUnavailable: the peer broke off;
  // kDeadlineExceeded: the deadline passed; kAborted: given up (ClientRequest::give_up).
  virtual Task<StatusOr<bool>> read(std::string& out) = 0;
  // The rest of the body is waited for at most so long from now on: kUnavailable then, and the connection is
  // closed.
  virtual void end_within(Duration wait) = 0;
  // Reads the rest of the body, at most bytes_max (kResourceExhausted beyond).
  virtual Task<StatusOr<std::string>> read_all(size_t bytes_max) = 0;
};

class HttpClient {
 public:
  HttpClient(Executor executor, Endpoint endpoint, HttpClientOptions options);
  ~HttpClient();

  // Sends a request and reads the answer's head. The error's payload (see send_phase) has the failed phase;
  // kConnect only if no byte of the request was ever written. kUnavailable: connect or transport failure, or
  // the peer's certificate is not acceptable, or it refuses ours; kResourceExhausted: this machine has no
  // file, port or memory for a connection (not the peer's fault; the message names what to raise); kInternal:
  // the peer violates HTTP/1.1; kDeadlineExceeded: the deadline passed; kAborted: given up; kInvalidArgument:
  // a header or target that cannot be sent. A cancelled coroutine gets Asio's operation_aborted as
  // boost::system::system_error, from here and from ClientAnswer::read. The deadline applies until the
  // answer's body has been read.
  Task<StatusOr<std::unique_ptr<ClientAnswer>>> send(const ClientRequest& request, Deadline deadline);
  void close_idle();
  const Endpoint& endpoint() const;
  bool has_own_authorization() const;  // HttpClientOptions::authorization
  HttpClientStats stats() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

SendPhase send_phase(const Status& status);

}  // namespace troupe

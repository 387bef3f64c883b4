#pragma once

// HTTP/1.1 server over Asio; one per listening address, all on one io_context thread. A handler receives a
// complete request (head and body read, checked and bounded) and sends one answer, whole or streamed.
//
// Life of a connection: accept → read head → check → wants_body → read body → handler → write answer →
// keep-alive or close. Refused (each a close, with a 4xx where that is safe): repeated or malformed
// Content-Length, any Transfer-Encoding but `chunked`, both together, TE in HTTP/1.0, obs-fold, missing or
// repeated Host, bare CR or LF, control characters in a value, header over the limit, body over the limit
// (413), a head or body slower than the time-outs. One deadline timer a connection, none an operation.
//
// Over TLS a handshake comes first, within header_timeout, and counts as a connection like any other. A
// client that sends plain HTTP instead gets a 400 that says so.
//
// While a handler runs, the connection is watched: when the client disconnects the handler's coroutine is
// cancelled (terminal) within milliseconds and Exchange::cancel_reason is kClientGone. A client that has only
// shut down its sending side is answered: the two look alike until a byte is sent, so the first bytes of the
// answer go out when either happens (ServerExchange::probe_peer). One that takes nothing of its answer for
// write_timeout is cut off with kClientSlow.
//
// Connections and bodies are shared by client address where there are not enough of them: idle connections
// and heads on their way make room for new ones (connection_shares.h), bodies on their way for others
// (body_shares.h). The file descriptors of the process can be kept from running out (keeps_files).

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/core/log.h"
#include "common/core/metrics.h"
#include "common/core/status.h"
#include "common/core/time.h"
#include "common/net/cors.h"
#include "common/net/http_head.h"
#include "common/net/http_message.h"
#include "common/net/task.h"
#include "common/net/task_group.h"
#include "common/net/tls.h"

namespace troupe {

// One request's answer. Owned by the server, valid while the handler runs. REQUIRES: exactly one call of
// respond() or start(). A write suspends until the socket has taken the bytes (the backpressure), and at
// least to the end of the event loop's turn (send_batcher.h); on a dead client or cancellation it throws
// boost::system::system_error, which the handler lets pass.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const HttpRequest& request() const = 0;
  // The path that the client asked for, where request() is a translation (common/dialects).
  virtual std::string_view asked_path() const { return request().path; }
  // Sends a whole answer with Content-Length.
  virtual Task<void> respond(int status, const HeaderList& headers, std::string body) = 0;
  // Starts a streamed answer with chunked coding; any number of write() calls and finish() follow. The head
  // goes out with the first write; an empty write sends it at once, alone.
  virtual Task<void> start(int status, const HeaderList& headers) = 0;
  virtual Task<void> write(std::string_view bytes) = 0;
  virtual Task<void> finish() = 0;
  // Starts a streamed answer unless that was done, and sends `bytes` at once, without waiting: for a timer
  // beside the handler. False: a write is under way, or bytes of the last one still are. REQUIRES: neither
  // respond() nor finish() was called.
  virtual bool send_ahead(int status, const HeaderList& headers, std::string_view bytes) = 0;
  virtual bool head_sent() const = 0;  // the first byte went out: no retry, no other status
  // A comment went out before the answer: only server-sent events can follow.
  virtual bool promised_events() const { return false; }
  virtual void close_after() = 0;  // send `Connection: close`; once the head is out: only close
  virtual void cut() = 0;          // close the connection at once, in mid-answer; the handler then ends
  virtual CancelReason cancel_reason() const = 0;
  virtual std::string remote_address() const = 0;
  virtual uint64_t bytes_sent() const = 0;  // of this answer, head and framing included
  virtual Executor executor() const = 0;
};

using HttpHandler = std::function<Task<void>(Exchange&)>;

// A request refused before it reached a handler. All views live as long as the call.
struct HttpRefusal {
  int status = 400;
  std::string_view why;
  const HttpRequest* request = nullptr;  // its head (and part of its body); null: unreadable
  std::string_view request_id;           // as answered
  std::string remote_address;
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0: any; see HttpServer::port()
  size_t header_bytes_max = 32u << 10;
  size_t header_lines_max = kHeaderCountMax;  // less leaves room for lines that a proxy adds
  size_t body_bytes_max = 16u << 20;
  // All requests together. Beyond it a body that stalls, or one of the address with most, or the newest gets
  // 503 (body_shares.h); one of up to 64 KiB always passes.
  size_t bodies_bytes_max = 1u << 30;
  size_t connections_max = 4096;
  // Leaves the last file descriptors of the process to others, such as a port for probes (file_limit.h).
  bool keeps_files = false;
  std::chrono::milliseconds header_timeout{10'000};  // whole head
  std::chrono::milliseconds body_timeout{30'000};    // whole body
  std::chrono::milliseconds idle_timeout{75'000};    // between requests
  std::chrono::milliseconds write_timeout{30'000};   // one write without progress: the client does not read
  std::shared_ptr<const TlsContext> tls;             // null: plain TCP
  Counter* handshakes_failed = nullptr;              // of TLS; null: not counted
  CorsOrigins cors_origins;                          // whose pages may ask, and read what is answered
  HeaderList refusal_headers;  // sent with refusals (413, 408, 400, …) besides x-request-id
  std::function<void(const HttpRefusal&)> on_refused;  // may be empty; must not throw
  // Called with a head whose body has not come yet. False: the body is neither read nor asked for (100
  // Continue); the handler gets the request without it and must refuse it, and the connection ends, so that
  // an unauthorised client occupies no memory. Empty: all bodies are read. Must not throw.
  std::function<bool(const HttpRequest&)> wants_body;
};

class HttpServer {
 public:
  HttpServer(asio::io_context& io, HttpServerOptions options, HttpHandler handler, const Logger& log);
  ~HttpServer();  // REQUIRES: joined

  Status listen();  // binds; the error names host and port
  uint16_t port() const;
  void start();  // begins accepting
  // Applies the sizes, numbers, time-outs, origins and TLS of `options` from their next use on: open
  // connections stay as accepted. Host, port, header_bytes_max, handshakes_failed, refusal_headers,
  // on_refused and wants_body do not change.
  void change(const HttpServerOptions& options);
  // Prepares a drain: adds `Connection: close` to every answer from now on, so that clients gradually move
  // away. Connections are still accepted, and idle ones wait for their next request.
  void close_after_answers();
  // Drains: no new connections, `Connection: close` on every answer, idle connections closed. Returns when
  // the last running request is done or `grace` is over; the rest is then cancelled (kShutdown).
  Task<void> drain(Duration grace);
  size_t connections() const;
  size_t requests_running() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace troupe

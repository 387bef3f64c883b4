#pragma once

// The server's end of one connection: reads requests one after the other, passes each to the handler, writes
// its answer. Private to common/net.

#include <boost/asio/cancellation_signal.hpp>
#include <memory>
#include <string>

#include "common/net/body_shares.h"
#include "common/net/channel.h"
#include "common/net/connection_shares.h"
#include "common/net/http_head.h"
#include "common/net/http_server.h"
#include "common/net/http_write.h"

namespace troupe {

// Generates ids for requests without one: "req-" and 16 hex digits, unique within a server and almost surely
// between two (the counter starts at a random place).
class RequestIds {
 public:
  RequestIds();
  std::string next();

 private:
  uint64_t counter_;
};

// State shared by a server's connections. Outlives them (held by shared_ptr).
struct ServerContext {
  HttpServerOptions options;
  HttpHandler handler;
  const Logger* log = nullptr;
  HttpDate date;
  RequestIds request_ids;
  bool draining = false;
  bool closes_after_answers = false;
  size_t requests_running = 0;
  BodyShares bodies;  // of all requests being read or handled
  ConnectionShares connections;
};

// Returns "10.0.0.7:51234"; empty once the peer is gone.
std::string remote_address_of(const Socket& socket);
// Without the port.
std::string share_of(const Socket& socket);  // of the peer

// Headers of the server's own answers: the configured ones, an ApiError's content type, and the request's
// x-request-id if it has a valid one. `request` may be null: it has not been read.
HeaderList refusal_headers(ServerContext& context, const HttpRequest* request);
// Calls on_refused. `headers`: those of the refusal's answer.
void report_refusal(const ServerContext& context, const HttpFault& fault, const HttpRequest* request,
                    const HeaderList& headers, const std::string& remote_address);

// Sends one answer at a time, over the connection's channel. reset() between requests keeps its strings.
class ServerExchange final : public Exchange {
 public:
  ServerExchange(Channel& channel, ServerContext& context) : channel_(channel), context_(context) {}

  const HttpRequest& request() const override { return head.request; }
  Task<void> respond(int status, const HeaderList& headers, std::string body) override;
  Task<void> start(int status, const HeaderList& headers) override;
  Task<void> write(std::string_view bytes) override;
  Task<void> finish() override;
  bool send_ahead(int status, const HeaderList& headers, std::string_view bytes) override;
  bool head_sent() const override { return head_sent_; }
  void close_after() override { close_after_ = true; }
  void cut() override;
  CancelReason cancel_reason() const override { return reason; }
  std::string remote_address() const override;
  uint64_t bytes_sent() const override { return bytes_sent_; }
  Executor executor() const override { return channel_.socket().get_executor(); }

  void reset();
  // Sends what every answer begins with (of a chunked one: a zero of the next chunk's size), if nothing is on
  // its way: a peer that has closed the connection resets it, one that only sends no more reads on.
  void probe_peer();
  // It is streaming without chunks, and nothing can be sent to find out: the end of input is the peer's.
  bool cannot_probe() const { return state_ == State::kStreaming && !chunked_; }
  bool answered() const { return state_ == State::kDone; }
  bool cut_off() const { return head_sent_ && !answered(); }
  bool keeps_alive() const { return keeps_alive_ && !close_after_; }
  // Writes a small answer whole if the socket takes it at once, without waiting: for refusals, and for a
  // cancelled task. See answered().
  void respond_now(int status, const HeaderList& headers, std::string_view body, bool keep_alive);

  RequestHead head;  // filled by the connection
  CancelReason reason = CancelReason::kNone;

 private:
  enum class State { kFresh, kStreaming, kDone };
  void build_head(int status, const HeaderList& headers, BodyFraming framing, uint64_t length);
  bool send_now();
  Task<void> rest();  // writes what send_now() left

  Channel& channel_;
  ServerContext& context_;
  State state_ = State::kFresh;
  std::string out_;  // head and chunk sizes, until written
  Pieces pieces_;    // data being sent; points into out_ and the caller's memory
  bool chunked_ = false;
  bool bodiless_ = false;  // HEAD, 204, 304
  bool close_after_ = false;
  bool keeps_alive_ = true;
  bool head_sent_ = false;
  size_t probed_ = 0;  // bytes of kAnswerStart that were sent, and belong to the answer that follows
  uint64_t bytes_sent_ = 0;
  mutable std::string remote_address_;  // the connection's, once it was asked for
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(Socket socket, std::shared_ptr<ServerContext> context);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  // Runs the whole life of the connection; `self` keeps it alive.
  static Task<void> run(std::shared_ptr<HttpConnection> self);

  // Cancels a running handler with this reason; without one closes the connection.
  void cancel(CancelReason reason);
  void close_if_idle();  // between requests, or only lingering
  const std::shared_ptr<asio::cancellation_signal>& signal() const { return signal_; }

 private:
  enum class Phase { kIdle, kReading, kHandling, kAnswered, kLingering };

  Task<bool> secure();     // false: the handshake failed
  Task<bool> serve_one();  // true: the connection lives on
  Task<bool> read_head();
  bool wants_body() const;
  Task<bool> read_body();
  Task<bool> read_sized_body();
  void read_straight_into(std::string& body, size_t size);
  Task<bool> read_chunked_body();
  Task<bool> inflate_body();
  std::optional<HttpFault> hold_body(uint64_t bytes);
  void release_body();
  Task<bool> run_handler();
  Task<void> refuse(HttpFault fault);
  Task<void> linger();
  bool answer_failure(const std::string& what);
  bool is_idle() const;
  void start_deadline(std::chrono::milliseconds timeout);
  void on_unwatched();
  void on_half_close();

  const std::shared_ptr<ServerContext> context_;
  const std::shared_ptr<Channel> channel_;
  const std::shared_ptr<asio::cancellation_signal> signal_;
  ServerExchange exchange_;
  HeadScanner scanner_;
  struct BodyShare : BodyShares::Share {
    HttpConnection* connection = nullptr;
    bool lost = false;  // to others
  };
  BodyShare body_share_;  // of ServerContext::bodies
  ConnectionShares::Seat seat_;
  bool head_parsed_ = false;  // exchange_.head is this request's
  Phase phase_ = Phase::kIdle;
};

}  // namespace troupe

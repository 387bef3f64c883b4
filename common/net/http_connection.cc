// Invariants of the loop: at the top of serve_one the last request has been consumed whole and its answer
// written; early bytes (pipelining) wait in the channel's buffer. A refused request ends the connection,
// because the start of the next one is then no longer certain.

#include "common/net/http_connection.h"

#include <algorithm>
#include <boost/system/system_error.hpp>
#include <exception>
#include <random>

#include "common/api/error.h"

namespace troupe {
namespace {

constexpr size_t kBufferBytesMin = 16u << 10;
constexpr std::chrono::milliseconds kLingerTimeout{5'000};
constexpr size_t kRequestIdBytesMax = 128;

std::string fault_json(const HttpFault& fault) {
  ApiError error;
  error.http_status = fault.http_status;
  error.message = fault.message;
  if (fault.http_status >= 500) error.type = "server_error";
  return error.to_json();
}

// Whether an id may be echoed and logged: short, visible, ASCII.
bool is_fit_request_id(std::string_view id) {
  return !id.empty() && id.size() <= kRequestIdBytesMax &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

}  // namespace

RequestIds::RequestIds() {
  std::random_device seed;
  counter_ = (static_cast<uint64_t>(seed()) << 32) | seed();
}

// SplitMix64: a bijection of the counter, so ids never repeat, and they do not look sequential.
std::string RequestIds::next() {
  uint64_t x = counter_ += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  x ^= x >> 31;
  std::string id = "req-";
  for (int shift = 60; shift >= 0; shift -= 4) id.push_back("0123456789abcdef"[(x >> shift) & 15]);
  return id;
}

HeaderList refusal_headers(ServerContext& context, const HttpRequest* request) {
  HeaderList headers = context.options.refusal_headers;
  headers.emplace_back("content-type", "application/json");
  const std::string_view own = request ? request->header("x-request-id") : std::string_view();
  headers.emplace_back("x-request-id",
                       is_fit_request_id(own) ? std::string(own) : context.request_ids.next());
  return headers;
}

void report_refusal(const ServerContext& context, const HttpFault& fault, const HttpRequest* request,
                    const HeaderList& headers, const std::string& remote_address) {
  if (!context.options.on_refused) return;
  HttpRefusal refusal;
  refusal.status = fault.http_status;
  refusal.why = fault.message;
  refusal.request = request;
  refusal.request_id = find_header(headers, "x-request-id");
  refusal.remote_address = remote_address;
  context.options.on_refused(refusal);
}

HttpConnection::HttpConnection(Socket socket, std::shared_ptr<ServerContext> context)
    : context_(std::move(context)),
      channel_(std::make_shared<Channel>(
          std::move(socket), std::max<size_t>(context_->options.header_bytes_max, kBufferBytesMin),
          /*half_close=*/!context_->options.tls)),  // over TLS a peer announces its end when it closes
      signal_(std::make_shared<asio::cancellation_signal>()),
      exchange_(*channel_, *context_) {
  channel_->on_unwatched = [this] { on_unwatched(); };
  body_share_.connection = seat_.connection = this;
  body_share_.address = share_of(channel_->socket());
  if (context_->options.tls) seat_.use = ConnectionShares::Use::kReceiving;
  context_->connections.take(seat_, body_share_.address);
}

HttpConnection::~HttpConnection() {
  release_body();
  context_->connections.leave(seat_);
  channel_->close();
  channel_->on_unwatched = nullptr;
}

Task<void> HttpConnection::run(std::shared_ptr<HttpConnection> self) {
  try {
    bool alive = true;
    if (self->context_->options.tls) alive = co_await self->secure();
    while (alive) alive = co_await self->serve_one();
    // An answer without its end must not look whole.
    if (!self->exchange_.cut_off()) self->channel_->send_close_notify();
  } catch (const boost::system::system_error&) {
    // The peer is gone or the server stops: there is no receiver for an error.
  } catch (const std::exception& e) {
    self->context_->log->error("connection_failed", {{"what", e.what()}});
  }
  self->channel_->close();
}

// Begins a connection of a server that uses TLS.
Task<bool> HttpConnection::secure() {
  start_deadline(context_->options.header_timeout);
  channel_->secure(TlsSession::accept(*context_->options.tls, channel_->socket().native_handle()));
  const ErrorCode error = co_await channel_->handshake();
  if (!error) co_return true;
  if (context_->options.handshakes_failed) context_->options.handshakes_failed->Increment();
  const bool late = error == asio::error::timed_out;
  const std::string why = late ? "it took too long" : channel_->tls()->failure();
  context_->log->debug("tls_handshake_failed", {{"client", exchange_.remote_address()}, {"why", why}});
  const bool speaks_http = channel_->tls()->peer_speaks_http();
  channel_->leave_tls();
  if (speaks_http) {
    HttpFault fault;
    fault.message = "this port speaks TLS: use https://";
    co_await refuse(std::move(fault));
  } else if (error == asio::error::connection_aborted) {
    co_await linger();  // the alert has the reason; closing with unread input might discard it
  }
  co_return false;
}

Task<bool> HttpConnection::serve_one() {
  const bool has_head = co_await read_head();
  if (!has_head) co_return false;
  const bool unread = !wants_body();
  if (unread) {
    exchange_.head.request.keep_alive = false;  // later bytes are no request
  } else if (exchange_.head.framing != BodyFraming::kNone) {
    const bool has_body = co_await read_body();
    if (!has_body) co_return false;
  }
  channel_->clear_deadline();
  context_->connections.use(seat_, ConnectionShares::Use::kAnswering);
  const bool answered = co_await run_handler();
  release_body();
  if (!answered) co_return false;
  if (exchange_.keeps_alive()) co_return true;
  // Closing with unread input resets the connection and may discard the answer.
  if (unread || !channel_->input().empty()) co_await linger();
  co_return false;
}

// Not asked about a body that has already arrived, as most have.
bool HttpConnection::wants_body() const {
  const RequestHead& head = exchange_.head;
  if (head.framing == BodyFraming::kNone || !context_->options.wants_body) return true;
  const bool is_here =
      head.framing == BodyFraming::kLength && head.content_length <= channel_->input().size();
  return is_here || context_->options.wants_body(head.request);
}

void HttpConnection::start_deadline(std::chrono::milliseconds timeout) {
  channel_->set_deadline(std::chrono::steady_clock::now() + timeout);
}

Task<bool> HttpConnection::read_head() {
  phase_ = Phase::kIdle;
  context_->connections.use(seat_, ConnectionShares::Use::kIdle);
  head_parsed_ = false;
  scanner_.reset();
  start_deadline(context_->options.idle_timeout);  // once: an empty line now and then does not extend it
  for (;;) {
    // Some old clients send empty lines before a request; they count against the idle time.
    while (phase_ == Phase::kIdle && channel_->input().starts_with("\r\n")) channel_->consume(2);
    const std::string_view input = channel_->input();
    if (phase_ == Phase::kIdle && !is_idle()) {
      phase_ = Phase::kReading;
      context_->connections.use(seat_, ConnectionShares::Use::kReceiving);
      start_deadline(context_->options.header_timeout);
    }
    const auto result = phase_ == Phase::kIdle ? HeadScanner::Result::kMore : scanner_.scan(input);
    const size_t size_max = context_->options.header_bytes_max;
    if (result == HeadScanner::Result::kFound && scanner_.size() <= size_max) break;
    HttpFault fault;
    if (result == HeadScanner::Result::kBareLineFeed) {
      fault.message = "header line that does not end in CRLF";
    } else if (result == HeadScanner::Result::kFound || input.size() >= size_max) {
      fault.http_status = 431;
      fault.message = "head over " + std::to_string(size_max) + " bytes";
    }
    if (!fault.message.empty()) {
      co_await refuse(std::move(fault));
      co_return false;
    }
    if (phase_ == Phase::kIdle && context_->draining) co_return false;
    const uint64_t received = channel_->bytes_received();
    std::optional<ChannelEvent> event;
    while (!(event = channel_->poll_event(received))) co_await channel_->next();
    if (event == ChannelEvent::kInput) continue;
    if (event == ChannelEvent::kTimeout && phase_ == Phase::kReading) {
      fault.http_status = 408;
      fault.message = "head did not arrive in time";
      co_await refuse(std::move(fault));
    }
    co_return false;
  }
  exchange_.reset();
  const std::string_view head = channel_->input().substr(0, scanner_.size());
  auto fault = parse_request_head(head, exchange_.head);
  const size_t lines_max = context_->options.header_lines_max;
  if (!fault && exchange_.head.request.headers.size() > lines_max)
    fault = HttpFault{431, "more than " + std::to_string(lines_max) + " header lines"};
  if (fault) {
    co_await refuse(std::move(*fault));
    co_return false;
  }
  head_parsed_ = true;
  channel_->consume(scanner_.size());
  co_return true;
}

Task<bool> HttpConnection::run_handler() {
  phase_ = Phase::kHandling;
  channel_->watch();
  if (channel_->input_ended()) on_half_close();
  ++context_->requests_running;
  std::string failure;
  bool failed = false;
  try {
    const auto preflight = preflight_answer(context_->options.cors_origins, exchange_.request());
    if (preflight) co_await exchange_.respond(204, *preflight, "");
    if (!preflight) co_await context_->handler(exchange_);
  } catch (const std::exception& e) {
    failed = true;
    failure = e.what();
  } catch (...) {
    failed = true;
    failure = "an exception that is no std::exception";
  }
  --context_->requests_running;
  phase_ = Phase::kAnswered;
  if (!failed && exchange_.answered()) co_return exchange_.reason == CancelReason::kNone;
  if (!failed)
    failure = exchange_.head_sent() ? "handler left its answer unfinished" : "handler gave no answer";
  co_return answer_failure(failure);
}

// Does not wait: the task may be a cancelled one. Returns false if the connection ends.
bool HttpConnection::answer_failure(const std::string& what) {
  const HttpRequest& request = exchange_.request();
  if (exchange_.reason == CancelReason::kClientGone || exchange_.reason == CancelReason::kClientSlow) {
    context_->log->debug(cancel_reason_name(exchange_.reason),
                         {{"method", request.method}, {"path", request.path}});
    return false;
  }
  HttpFault fault;
  if (exchange_.reason == CancelReason::kShutdown) {
    fault.http_status = 503;
    fault.message = "server is shutting down";
  } else {
    context_->log->error("handler_failed",
                         {{"method", request.method}, {"path", request.path}, {"what", what}});
    fault.http_status = 500;
    fault.message = "internal error";
  }
  if (exchange_.head_sent()) return false;  // the cut stream shows the client the failure
  const bool keep_alive =
      exchange_.head.request.keep_alive && exchange_.keeps_alive() && exchange_.reason == CancelReason::kNone;
  exchange_.reset();
  exchange_.respond_now(fault.http_status, refusal_headers(*context_, &request), fault_json(fault),
                        keep_alive);
  return exchange_.answered() && exchange_.keeps_alive();
}

Task<void> HttpConnection::refuse(HttpFault fault) {
  phase_ = Phase::kAnswered;
  channel_->clear_deadline();
  exchange_.reset();
  const HttpRequest* request = head_parsed_ ? &exchange_.head.request : nullptr;
  const HeaderList headers = refusal_headers(*context_, request);
  report_refusal(*context_, fault, request, headers, exchange_.remote_address());
  release_body();
  exchange_.head.request.method = "GET";  // not HEAD: the refusal has a body
  exchange_.head.http_1_0 = false;
  exchange_.respond_now(fault.http_status, headers, fault_json(fault), false);
  if (exchange_.answered()) co_await linger();
}

// Lets the peer read the answer: it may still be sending, and closing now would reset the connection.
Task<void> HttpConnection::linger() {
  phase_ = Phase::kLingering;
  context_->connections.use(seat_, ConnectionShares::Use::kIdle);
  channel_->shutdown_send();
  start_deadline(kLingerTimeout);
  ChannelEvent event = ChannelEvent::kInput;
  while (event == ChannelEvent::kInput && !context_->draining) {
    channel_->consume(channel_->input().size());
    event = co_await channel_->more();
  }
}

void HttpConnection::on_unwatched() {
  if (phase_ == Phase::kHandling && channel_->input_ended()) on_half_close();
  if (phase_ == Phase::kHandling && channel_->ended()) cancel(CancelReason::kClientGone);
}

// The client sends no more. It may have closed the connection or wait for its answer: the next byte decides.
void HttpConnection::on_half_close() {
  if (channel_->ended()) return;
  if (exchange_.cannot_probe()) return cancel(CancelReason::kClientGone);
  if (channel_->input().empty()) exchange_.close_after();
  exchange_.probe_peer();
}

void HttpConnection::cancel(CancelReason reason) {
  if (phase_ != Phase::kHandling) return channel_->close();
  if (exchange_.reason != CancelReason::kNone) return;
  exchange_.reason = reason;
  signal_->emit(asio::cancellation_type::terminal);
}

// Half an empty line does not begin a request either.
bool HttpConnection::is_idle() const {
  const std::string_view input = channel_->input();
  return phase_ == Phase::kIdle && (input.empty() || input == "\r");
}

void HttpConnection::close_if_idle() {
  if (!is_idle() && phase_ != Phase::kLingering) return;
  channel_->send_close_notify();
  channel_->close();
}

}  // namespace troupe

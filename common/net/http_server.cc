// The listener: accepts, counts and ends connections. http_connection.cc handles their requests.

#include "common/net/http_server.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/system/system_error.hpp>
#include <cassert>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/api/error.h"
#include "common/net/file_limit.h"
#include "common/net/http_connection.h"

namespace troupe {
namespace {

constexpr std::chrono::milliseconds kAcceptPause{50};  // after an error such as too many open files

using Acceptor = asio::basic_socket_acceptor<Tcp, Executor>;

// Best effort: a full server does not wait until its refusal is read, nor does a handshake for it.
void refuse_connection(Socket& socket, ServerContext& context) {
  if (context.options.tls) return;
  const ApiError error = ApiError::unavailable("too many connections");
  const HeaderList headers = refusal_headers(context, nullptr);
  report_refusal(context, HttpFault{503, error.message}, nullptr, headers, remote_address_of(socket));
  const std::string body = error.to_json();
  std::string head;
  AnswerHeadSpec spec;
  spec.status = 503;
  spec.headers = &headers;
  spec.content_length = body.size();
  spec.keep_alive = false;
  append_answer_head(head, spec);
  Pieces pieces;
  pieces.add(head);
  pieces.add(body);
  ErrorCode ignored;
  socket.write_some(pieces, ignored);
  socket.shutdown(Socket::shutdown_send, ignored);
  socket.close(ignored);
}

// A descriptor's number shows how many are in use (file_limit.h): a connection that another one has made room
// for goes on under the number that has become free, or else the next one would find that free and seem to
// need no room.
void take_lowest_number(Socket& socket) {
  ErrorCode error;
  const auto protocol = socket.local_endpoint(error).protocol();
  if (error) return;
  const int number = socket.release(error);
  if (error) return;
  const int lowest = ::fcntl(number, F_DUPFD_CLOEXEC, 0);
  const bool moves = lowest >= 0 && lowest < number;
  if (moves || lowest >= 0) ::close(moves ? number : lowest);
  socket.assign(protocol, moves ? lowest : number, error);
  if (error) ::close(moves ? lowest : number);
  socket.non_blocking(true, error);
}

struct Registered {
  std::vector<HttpConnection*>& list;
  HttpConnection* const connection;
  Registered(std::vector<HttpConnection*>& l, HttpConnection* c) : list(l), connection(c) {
    list.push_back(c);
  }
  ~Registered() { std::erase(list, connection); }
};

}  // namespace

struct HttpServer::Impl : std::enable_shared_from_this<HttpServer::Impl> {
  Impl(Executor ex, HttpServerOptions options, HttpHandler handler, const Logger& log)
      : executor(ex),
        context(std::make_shared<ServerContext>()),
        acceptor(ex),
        accept_pause(ex),
        grace_timer(ex),
        tasks(ex) {
    context->options = std::move(options);
    context->handler = std::move(handler);
    context->log = &log;
    tasks.on_error = [logger = &log](std::string_view what) {
      logger->error("connection_failed", {{"what", what}});
    };
  }

  static Task<void> accept_loop(std::shared_ptr<Impl> self);
  static Task<void> serve(std::shared_ptr<Impl> self, std::shared_ptr<HttpConnection> connection);
  void admit(Socket socket);
  bool makes_room(std::string_view newcomer);
  void stop_accepting();
  void cancel_all(CancelReason reason);

  Executor executor;
  std::shared_ptr<ServerContext> context;
  Acceptor acceptor;
  Timer accept_pause;
  Timer grace_timer;
  TaskGroup tasks;
  std::vector<HttpConnection*> connections;  // those whose serve() runs
  uint16_t port = 0;
  bool full = false;  // has been logged
};

Task<void> HttpServer::Impl::accept_loop(std::shared_ptr<Impl> self) {
  while (self->acceptor.is_open()) {
    Socket socket(self->executor);
    ErrorCode error;
    auto token = asio::redirect_error(use_task, error);
    co_await self->acceptor.async_accept(socket, token);
    if (!error) {
      self->admit(std::move(socket));
      continue;
    }
    if (!self->acceptor.is_open() || error == asio::error::operation_aborted) co_return;
    if (error == asio::error::connection_aborted) continue;
    if (error == asio::error::no_descriptors && self->makes_room("")) continue;
    self->context->log->warn("accept_failed", {{"error", error.message()}});
    self->accept_pause.expires_after(kAcceptPause);
    auto pause_token = asio::redirect_error(use_task, error);
    co_await self->accept_pause.async_wait(pause_token);
  }
}

void HttpServer::Impl::admit(Socket socket) {
  ErrorCode error;
  socket.non_blocking(true, error);
  if (!error) socket.set_option(Tcp::no_delay(true), error);
  if (error) return;  // the peer is gone already
  const HttpServerOptions& options = context->options;
  const bool out_of_files = options.keeps_files && is_kept_file(socket.native_handle(), KeptFiles::kAll);
  if (context->connections.size() >= options.connections_max || out_of_files) {
    if (!full) {
      context->log->warn("too_many_connections", {{"limit", options.connections_max},
                                                  {"open", context->connections.size()},
                                                  {"short_of", out_of_files ? "files" : "connections"}});
    }
    full = true;
    if (!makes_room(share_of(socket))) return refuse_connection(socket, *context);
    if (out_of_files) take_lowest_number(socket);
  } else {
    full = false;
  }
  auto connection = std::make_shared<HttpConnection>(std::move(socket), context);
  const auto signal = connection->signal();
  tasks.spawn(serve(shared_from_this(), std::move(connection)), signal);  // if refused, it is closed unserved
}

Task<void> HttpServer::Impl::serve(std::shared_ptr<Impl> self, std::shared_ptr<HttpConnection> connection) {
  const Registered registered{self->connections, connection.get()};
  co_await HttpConnection::run(connection);
}

// Closes a connection for one from this address. False: none can be.
bool HttpServer::Impl::makes_room(std::string_view newcomer) {
  ConnectionShares::Seat* const seat = context->connections.to_close(newcomer);
  if (seat == nullptr) return false;
  context->connections.leave(*seat);  // its task ends later
  seat->connection->cancel(CancelReason::kOverload);
  return true;
}

void HttpServer::Impl::stop_accepting() {
  ErrorCode ignored;
  acceptor.close(ignored);
  accept_pause.cancel();
}

void HttpServer::Impl::cancel_all(CancelReason reason) {
  const std::vector<HttpConnection*> now = connections;
  for (HttpConnection* connection : now) connection->cancel(reason);
}

HttpServer::HttpServer(asio::io_context& io, HttpServerOptions options, HttpHandler handler,
                       const Logger& log)
    : impl_(std::make_shared<Impl>(io.get_executor(), std::move(options), std::move(handler), log)) {}

HttpServer::~HttpServer() {
  assert(impl_->tasks.size() == 0 && "HttpServer destroyed before drain()");
}

void HttpServer::change(const HttpServerOptions& options) {
  HttpServerOptions& now = impl_->context->options;
  now.body_bytes_max = options.body_bytes_max;
  now.bodies_bytes_max = options.bodies_bytes_max;
  now.connections_max = options.connections_max;
  now.header_timeout = options.header_timeout;
  now.body_timeout = options.body_timeout;
  now.idle_timeout = options.idle_timeout;
  now.write_timeout = options.write_timeout;
  now.tls = options.tls;
  now.cors_origins = options.cors_origins;
}

Status HttpServer::listen() {
  const HttpServerOptions& options = impl_->context->options;
  const auto fail = [&options](std::string_view step, const ErrorCode& error) {
    return absl::UnavailableError(absl::StrCat("listen on ", options.host, ":", options.port, ": ",
                                               to_absl(step), ": ", error.message()));
  };
  ErrorCode error;
  asio::ip::basic_resolver<Tcp, Executor> resolver(impl_->executor);
  const auto flags = asio::ip::resolver_base::passive | asio::ip::resolver_base::numeric_service;
  const auto found = resolver.resolve(options.host, std::to_string(options.port), flags, error);
  if (error) return fail("resolve", error);
  if (found.empty()) return fail("resolve", asio::error::host_not_found);
  const Tcp::endpoint address = found.begin()->endpoint();
  Acceptor& acceptor = impl_->acceptor;
  acceptor.open(address.protocol(), error);
  if (error) return fail("open", error);
  acceptor.set_option(Acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(address, error);
  if (error) {
    impl_->stop_accepting();
    return fail("bind", error);
  }
  acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (!error) impl_->port = acceptor.local_endpoint(error).port();
  if (error) {
    impl_->stop_accepting();
    return fail("listen", error);
  }
  return absl::OkStatus();
}

uint16_t HttpServer::port() const {
  return impl_->port;
}

void HttpServer::start() {
  impl_->tasks.spawn(Impl::accept_loop(impl_));
}

void HttpServer::close_after_answers() {
  impl_->context->closes_after_answers = true;
}

Task<void> HttpServer::drain(Duration grace) {
  const std::shared_ptr<Impl> impl = impl_;
  impl->context->draining = true;
  impl->stop_accepting();
  const std::vector<HttpConnection*> now = impl->connections;
  for (HttpConnection* connection : now) connection->close_if_idle();
  impl->grace_timer.expires_after(grace);
  impl->grace_timer.async_wait([impl](const ErrorCode& error) {
    if (!error) impl->cancel_all(CancelReason::kShutdown);
  });
  co_await impl->tasks.join();
  impl->grace_timer.cancel();
}

size_t HttpServer::connections() const {
  return impl_->connections.size();
}

size_t HttpServer::requests_running() const {
  return impl_->context->requests_running;
}

}  // namespace troupe

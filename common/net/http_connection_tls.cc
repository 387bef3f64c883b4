// The start of a connection when the server uses TLS.

#include "common/core/log.h"
#include "common/net/http_connection.h"

namespace troupe {

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

}  // namespace troupe

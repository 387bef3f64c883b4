#include "common/net/tls_session.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace troupe {

// OpenSSL's view of the socket. Its own BIO_s_socket writes without MSG_NOSIGNAL.
struct TlsSession::Method {
  static Wire& wire(BIO* bio) { return *static_cast<Wire*>(BIO_get_data(bio)); }

  static int read(BIO* bio, char* to, int size) {
    BIO_clear_retry_flags(bio);
    ssize_t bytes = 0;
    do {
      bytes = ::recv(wire(bio).socket, to, static_cast<size_t>(size), 0);
    } while (bytes < 0 && errno == EINTR);
    if (bytes == 0) wire(bio).ended = true;
    if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) BIO_set_retry_read(bio);
    return static_cast<int>(bytes);
  }

  static int write(BIO* bio, const char* from, int size) {
    BIO_clear_retry_flags(bio);
    ssize_t bytes = 0;
    do {
      bytes = ::send(wire(bio).socket, from, static_cast<size_t>(size), MSG_NOSIGNAL);
    } while (bytes < 0 && errno == EINTR);
    if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) BIO_set_retry_write(bio);
    return static_cast<int>(bytes);
  }

  static long control(BIO* bio, int command, long, void*) {
    if (command == BIO_CTRL_FLUSH) return 1;
    if (command == BIO_CTRL_EOF) return wire(bio).ended ? 1 : 0;
    return 0;
  }

  static BIO_METHOD* make() {
    BIO_METHOD* method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "troupe socket");
    BIO_meth_set_read(method, read);
    BIO_meth_set_write(method, write);
    BIO_meth_set_ctrl(method, control);
    return method;
  }
  static const BIO_METHOD* get() {
    static BIO_METHOD* const method = make();
    return method;
  }
};

void TlsSession::Free::operator()(ssl_st* ssl) const {
  SSL_free(ssl);
}

TlsSession::TlsSession(const TlsContext& context, int socket)
    : wire_{socket}, ssl_(SSL_new(context.native())) {
  BIO* bio = BIO_new(Method::get());
  BIO_set_data(bio, &wire_);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
}

TlsSession::~TlsSession() = default;

std::unique_ptr<TlsSession> TlsSession::accept(const TlsContext& context, int socket) {
  std::unique_ptr<TlsSession> session(new TlsSession(context, socket));
  SSL_set_accept_state(session->ssl_.get());
  return session;
}

std::unique_ptr<TlsSession> TlsSession::connect(const TlsContext& context, int socket,
                                                const std::string& host) {
  std::unique_ptr<TlsSession> session(new TlsSession(context, socket));
  SSL* ssl = session->ssl_.get();
  SSL_set_connect_state(ssl);
  X509_VERIFY_PARAM* wanted = SSL_get0_param(ssl);
  X509_VERIFY_PARAM_set_hostflags(wanted, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  if (X509_VERIFY_PARAM_set1_ip_asc(wanted, host.c_str()) == 1) return session;  // an address has no SNI
  if (SSL_set_tlsext_host_name(ssl, host.c_str()) != 1 || SSL_set1_host(ssl, host.c_str()) != 1) {
    session->broken_ = true;  // unchecked is not an option
    session->failure_ = "'" + host + "' is no name that a certificate can be for";
  }
  return session;
}

TlsSession::State TlsSession::outcome(int result) {
  const int error = SSL_get_error(ssl_.get(), result);
  switch (error) {
    case SSL_ERROR_WANT_READ:
      starved_ = true;
      return State::kWantsInput;
    case SSL_ERROR_WANT_WRITE:
      return State::kWantsOutput;
    case SSL_ERROR_ZERO_RETURN:
      return State::kEnd;
    default:
      break;
  }
  const int system_error = errno;
  if (error == SSL_ERROR_SSL) broken_ = true;  // else only this call failed: an answer may still be there
  const unsigned long code = ERR_get_error();
  const int why = ERR_GET_REASON(code);
  const bool of_ssl = ERR_GET_LIB(code) == ERR_LIB_SSL;
  if (const char* text = ERR_reason_error_string(code); text != nullptr) {
    failure_ = text;
  } else {
    failure_ = wire_.ended || system_error == 0 ? "connection closed" : std::strerror(system_error);
  }
  if (of_ssl && why == SSL_R_CERTIFICATE_VERIFY_FAILED)
    failure_.append(": ").append(X509_verify_cert_error_string(SSL_get_verify_result(ssl_.get())));
  peer_speaks_http_ = of_ssl && why == SSL_R_HTTP_REQUEST;
  ERR_clear_error();
  return State::kBroken;
}

TlsSession::State TlsSession::handshake() {
  if (broken_) return State::kBroken;
  ERR_clear_error();
  errno = 0;
  const int result = SSL_do_handshake(ssl_.get());
  if (result != 1) return outcome(result);
  established_ = true;
  starved_ = false;
  return State::kDone;
}

TlsSession::State TlsSession::read(char* to, size_t bytes_max, size_t& bytes) {
  bytes = 0;
  if (broken_) return State::kBroken;
  ERR_clear_error();
  errno = 0;
  if (SSL_read_ex(ssl_.get(), to, bytes_max, &bytes) != 1) return outcome(0);
  starved_ = false;
  return State::kDone;
}

bool TlsSession::has_buffered() const {
  return !starved_ && !broken_ && SSL_has_pending(ssl_.get()) == 1;
}

TlsSession::State TlsSession::write(std::string_view bytes, size_t& written) {
  written = 0;
  if (broken_) return State::kBroken;
  bytes = bytes.substr(0, kRecordBytesMax);
  if (pending_write_ != 0 && pending_write_ != bytes.size()) {  // those bytes are encrypted and partly sent
    broken_ = true;
    failure_ = "a record was given up half sent";
    return State::kBroken;
  }
  ERR_clear_error();
  errno = 0;
  if (SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &written) == 1) {
    pending_write_ = 0;
    return State::kDone;
  }
  const State state = outcome(0);
  if (state == State::kWantsOutput) pending_write_ = bytes.size();
  return state;
}

void TlsSession::end_of_data() {
  if (!established_ || broken_ || pending_write_ != 0) return;
  ERR_clear_error();
  SSL_shutdown(ssl_.get());
  ERR_clear_error();
}

}  // namespace troupe

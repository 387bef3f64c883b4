#pragma once

// TLS as both ends use it: certificates and keys, read from PEM files and checked, made ready for any number
// of connections. A context never changes; a reload makes another one for new connections, and the old one
// lives as long as connections do that were made with it.
//
// TLS 1.3 and 1.2, forward secrecy and authenticated ciphers only, ALPN http/1.1. Servers hand out tickets
// for resumption (their keys are the context's own: after a reload everybody is checked anew) and take no
// early data, which could be replayed. No renegotiation, no compression.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/core/status.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace troupe {

// Paths of PEM files; empty: none.
struct TlsFiles {
  std::string certificate;  // the leaf, then what leads to the authority
  std::string private_key;  // the leaf's, not encrypted
  // A server: clients must bring a certificate that one of these signed. A client: servers' certificates must
  // be signed by one of these, not by the system's authorities.
  std::string ca;
};

class TlsContext {
 public:
  // kInvalidArgument names the setting (`group` is what its name begins with, such as "tls"), the file and
  // what is wrong: it cannot be read, holds nothing of its kind, has ended or not begun to be valid, the key
  // is another certificate's. REQUIRES of a server: a certificate and its key.
  static StatusOr<std::shared_ptr<const TlsContext>> for_server(const TlsFiles& files,
                                                                std::string_view group);
  static StatusOr<std::shared_ptr<const TlsContext>> for_client(const TlsFiles& files,
                                                                std::string_view group);

  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  // When the first certificate of its chain ends, in seconds of the epoch; none: it has no certificate.
  std::optional<int64_t> expires_at() const { return expires_at_; }
  ssl_ctx_st* native() const { return context_.get(); }

 private:
  struct Free {
    void operator()(ssl_ctx_st* context) const;
  };
  TlsContext(bool server, const TlsFiles& files);
  Status load_identity(const TlsFiles& files, const std::string& group);
  Status load_authorities(const std::string& path, bool server);

  std::unique_ptr<ssl_ctx_st, Free> context_;
  std::optional<int64_t> expires_at_;
};

// What a client's new connections use. One is shared by all clients that a reload is to reach; read and
// written on their executor's thread.
struct TlsSource {
  std::shared_ptr<const TlsContext> context;
};

}  // namespace troupe

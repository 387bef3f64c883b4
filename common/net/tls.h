#pragma once

// TLS for both ends: certificates and keys, read from PEM files, checked, and prepared for any number of
// connections. A context never changes; a reload creates another one for new connections, and the old one
// lives as long as its connections.
//
// TLS 1.3 and 1.2, forward secrecy and authenticated ciphers only, ALPN http/1.1. Servers issue tickets for
// resumption (their keys belong to the context: after a reload every client is checked anew) and accept no
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
  std::string certificate;  // the leaf, then the chain up to the authority
  std::string private_key;  // the leaf's, not encrypted
  // On a server: clients must present a certificate signed by one of these. On a client: servers'
  // certificates must be signed by one of these instead of the system's authorities.
  std::string ca;
  bool insecure_skip_verify = false;  // a client's: any certificate will do
};

class TlsContext {
 public:
  // kInvalidArgument names the setting (`group`, such as "tls", is the beginning of its name), the file and
  // the fault: unreadable, without a certificate or key, expired or not yet valid, or the key of another
  // certificate. REQUIRES for a server: a certificate and its key.
  static StatusOr<std::shared_ptr<const TlsContext>> for_server(const TlsFiles& files,
                                                                std::string_view group);
  static StatusOr<std::shared_ptr<const TlsContext>> for_client(const TlsFiles& files,
                                                                std::string_view group);

  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  // Expiry of the chain's first certificate, in seconds of the epoch; nullopt without a certificate.
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

// The context of a client's new connections. One source is shared by all clients that a reload must reach;
// read and written on their executor's thread.
struct TlsSource {
  std::shared_ptr<const TlsContext> context;
};

}  // namespace troupe

#pragma once

// TLS over one connected, non-blocking socket: OpenSSL reads and writes it directly, never waits, and reports
// what it needs. (Asio's ssl::stream cannot do that: its write_some on a socket that would block loses the
// bytes that the socket had not taken, and it adds two buffers of 17 KB and a copy to each connection.)
// Private to common/net.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "common/net/tls.h"

struct ssl_st;  // OpenSSL's SSL

namespace troupe {

class TlsSession {
 public:
  // kEnd: the peer announced the end of its data. kBroken: it left without doing so, or sent something other
  // than TLS; see failure().
  enum class State { kDone, kWantsInput, kWantsOutput, kEnd, kBroken };
  static constexpr size_t kRecordBytesMax = 16u << 10;

  // `socket` stays open while the session is used. A client sends `host` as SNI (unless it is an address) and
  // accepts only a certificate for it.
  static std::unique_ptr<TlsSession> accept(const TlsContext& context, int socket);
  static std::unique_ptr<TlsSession> connect(const TlsContext& context, int socket, const std::string& host);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  State handshake();
  bool established() const { return established_; }

  // kDone: read at least a byte, at most a record.
  State read(char* to, size_t bytes_max, size_t& bytes);
  // Whether input is, or may be, buffered that the socket will not report any more.
  bool has_buffered() const;

  // kDone: `written` bytes, at most one record's, are on their way. kWantsOutput: none are; write the same
  // bytes again once the socket has room.
  State write(std::string_view bytes, size_t& written);
  // Announces the end of our data, if that needs no waiting.
  void end_of_data();

  const std::string& failure() const { return failure_; }
  bool peer_speaks_http() const { return peer_speaks_http_; }  // the client sent plain HTTP

 private:
  struct Wire {
    int socket;
    bool ended = false;
  };
  struct Method;
  struct Free {
    void operator()(ssl_st* ssl) const;
  };
  TlsSession(const TlsContext& context, int socket);
  State outcome(int result);

  Wire wire_;
  std::unique_ptr<ssl_st, Free> ssl_;
  std::string failure_;
  size_t pending_write_ = 0;  // bytes of a record that the socket took only in part
  bool established_ = false;
  bool starved_ = false;  // the last read found nothing, or too little for a record
  bool broken_ = false;
  bool peer_speaks_http_ = false;
};

}  // namespace troupe

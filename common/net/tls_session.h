#pragma once

// TLS over one connected, non-blocking socket: OpenSSL reads and writes it directly, never waits, and says
// what it waits for. (Asio's ssl::stream cannot do that: its write_some on a socket that would block loses
// what the socket had not taken, and it adds two buffers of 17 KB and a copy to each connection.) Private to
// common/net.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "common/net/tls.h"

struct ssl_st;  // OpenSSL's SSL

namespace troupe {

class TlsSession {
 public:
  // kEnd: the peer has said that it sends no more. kBroken: it left without saying so, or what it sent is no
  // TLS; see failure().
  enum class State { kDone, kWantsInput, kWantsOutput, kEnd, kBroken };
  static constexpr size_t kRecordBytesMax = 16u << 10;

  // `socket` stays open while the session is used. A client tells the server `host` (unless it is an address)
  // and takes only a certificate that is for it.
  static std::unique_ptr<TlsSession> accept(const TlsContext& context, int socket);
  static std::unique_ptr<TlsSession> connect(const TlsContext& context, int socket, const std::string& host);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  State handshake();
  bool established() const { return established_; }

  // kDone: at least a byte. A record at most.
  State read(char* to, size_t bytes_max, size_t& bytes);
  // There is something to read, or may be, that the socket will not tell of any more.
  bool has_buffered() const;

  // kDone: `written` bytes are on their way, one record's at most. kWantsOutput: none is, and when the socket
  // has room again the same bytes are to be written.
  State write(std::string_view bytes, size_t& written);
  // Tells the peer that nothing more comes, if that goes without waiting.
  void end_of_data();

  const std::string& failure() const { return failure_; }
  bool peer_speaks_http() const { return peer_speaks_http_; }  // without TLS

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
  size_t pending_write_ = 0;  // bytes of a record that the socket has not taken whole
  bool established_ = false;
  bool starved_ = false;  // of the last read: the socket had nothing, or too little for a record
  bool broken_ = false;
  bool peer_speaks_http_ = false;
};

}  // namespace troupe

#pragma once

// A blocking HTTP client on a plain socket, with which tests see a server's exact bytes and can misbehave as
// no proper client would.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::raw_http {

struct Reply {
  int status = 0;  // 0: closed without an answer
  std::map<std::string, std::string> headers;
  std::string body;
  std::string header(const std::string& name) const {
    const auto it = headers.find(name);
    return it == headers.end() ? "" : it->second;
  }
};

// One connection. Reads give up after 60 s, so that a hung server fails the test instead of hanging it.
class Connection {
 public:
  explicit Connection(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    timeval limit{60, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (TEMP_FAILURE_RETRY(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address)) != 0) {
      throw std::runtime_error("cannot connect");
    }
  }
  ~Connection() { close(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = TEMP_FAILURE_RETRY(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL));
      if (sent <= 0) return;  // the peer has closed; its bytes can still be read
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  // Reads more bytes into buffer(); returns false at the end of the stream.
  bool fill() {
    char chunk[4096];
    const ssize_t got = TEMP_FAILURE_RETRY(::recv(fd_, chunk, sizeof chunk, 0));
    if (got < 0) throw std::runtime_error("nothing came for 60 s");
    buffer_.append(chunk, static_cast<size_t>(got));
    return got > 0;
  }
  // Returns whether more bytes, or the end, arrive in time.
  bool readable_within(std::chrono::milliseconds time) {
    pollfd waited{fd_, POLLIN, 0};
    return TEMP_FAILURE_RETRY(::poll(&waited, 1, static_cast<int>(time.count()))) > 0;
  }
  bool read_until(std::string_view mark) {
    while (buffer_.find(mark) == std::string::npos) {
      if (!fill()) return false;
    }
    return true;
  }
  const std::string& buffer() const { return buffer_; }

  Reply read_reply() {
    Reply reply;
    if (!read_until("\r\n\r\n")) return reply;
    const size_t head_end = buffer_.find("\r\n\r\n");
    read_head(std::string_view(buffer_).substr(0, head_end), reply);
    buffer_.erase(0, head_end + 4);
    if (reply.header("transfer-encoding") == "chunked") {
      read_chunks(reply);
    } else {
      const size_t length = std::strtoul(reply.header("content-length").c_str(), nullptr, 10);
      while (buffer_.size() < length && fill()) {
      }
      reply.body = buffer_.substr(0, length);
      buffer_.erase(0, length);
    }
    return reply;
  }

 private:
  static void read_head(std::string_view head, Reply& reply) {
    reply.status = std::atoi(std::string(head.substr(9, 3)).c_str());
    for (size_t at = head.find("\r\n"); at != std::string_view::npos; at = head.find("\r\n", at + 2)) {
      const auto line = head.substr(at + 2, head.find("\r\n", at + 2) - at - 2);
      const size_t colon = line.find(':');
      std::string name(line.substr(0, colon));
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      const auto value = line.substr(colon + 1);
      reply.headers[name] = value.substr(std::min(value.find_first_not_of(' '), value.size()));
    }
  }
  void read_chunks(Reply& reply) {
    for (;;) {
      if (!read_until("\r\n")) throw std::runtime_error("the stream broke off");
      const size_t line_end = buffer_.find("\r\n");
      const size_t size = std::strtoul(buffer_.c_str(), nullptr, 16);
      while (buffer_.size() < line_end + 2 + size + 2) {
        if (!fill()) throw std::runtime_error("the stream broke off");
      }
      reply.body += buffer_.substr(line_end + 2, size);
      buffer_.erase(0, line_end + 2 + size + 2);
      if (size == 0) return;
    }
  }

  int fd_;
  std::string buffer_;
};

inline std::string request_bytes(std::string_view method, std::string_view path, std::string_view body,
                                 const std::vector<std::string>& headers = {}) {
  std::string bytes = std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n";
  for (const auto& header : headers) bytes += header + "\r\n";
  if (method == "POST") bytes += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  return bytes + "\r\n" + std::string(body);
}

inline Reply ask(uint16_t port, std::string_view method, std::string_view path, std::string_view body = "",
                 const std::vector<std::string>& headers = {}) {
  Connection connection(port);
  connection.send(request_bytes(method, path, body, headers));
  return connection.read_reply();
}

}  // namespace troupe::raw_http

// Two small programs for measuring a proxy from outside: a stub upstream that answers every chat request at
// once (one with "stream":true in 200 chunks, --pace-us apart, each a write of its own), and a closed-loop
// load generator. Both are one epoll loop with no library, so that together they cost less than the proxy
// between them and one core is enough for both.
//
// All streams have their next chunk at the same time, as those of a worker's decode step do. (If each began
// to count at its own start, a proxy that lets requests through sooner after one another would get chunks
// that are closer together, and wake less often for them.)
//
//   proxy_bench stub --port P [--pace-us U]          answers until SIGTERM
//   proxy_bench load --port P --connections C --seconds S --body FILE    one JSON line of results on stdout
//
// A streamed chunk's text is the time at which it was sent, so that the load generator sees how long it took.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr std::string_view kAnswerBody =
    R"({"id":"chatcmpl-stub","object":"chat.completion","created":1,"model":"stub","choices":[{"index":0,"message":)"
    R"({"role":"assistant","content":"By the stars! I am a physicist, and I have seen forty-four winters come and go."},)"
    R"("logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":2048,"completion_tokens":24,"total_tokens":2072,)"
    R"("prompt_tokens_details":{"cached_tokens":2032}}})";
constexpr std::string_view kModelsBody =
    R"({"object":"list","data":[{"id":"stub","object":"model","created":1,)"
    R"("owned_by":"bench","max_model_len":32768}]})";

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

std::string http_answer(std::string_view body) {
  std::string out = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ";
  out += std::to_string(body.size());
  out += "\r\n\r\n";
  out += body;
  return out;
}

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void set_no_delay(int fd) {
  int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

using SteadyClock = std::chrono::steady_clock;

// Value of a header in `head`, which ends with its empty line; empty if it is not there.
std::string_view header_of(std::string_view head, std::string_view name) {
  for (size_t at = head.find("\r\n"); at + 2 < head.size(); at = head.find("\r\n", at + 2)) {
    std::string_view line = head.substr(at + 2);
    if (line.size() <= name.size() || line[name.size()] != ':') continue;
    if (strncasecmp(line.data(), name.data(), name.size()) != 0) continue;
    line = line.substr(name.size() + 1, line.find("\r\n") - name.size() - 1);
    while (line.starts_with(' ')) line.remove_prefix(1);
    return line;
  }
  return {};
}

// Reads messages one after another out of what a connection receives.
class MessageReader {
 public:
  std::string buffer;  // what was received and not taken yet; its front is the message being read

  // Bytes of the first message once it is whole, else 0.
  size_t whole() {
    if (head_bytes_ == 0 && !read_head()) return 0;
    if (!chunked_) return buffer.size() >= next_ ? next_ : 0;
    while (true) {  // next_: where the next chunk's size line begins
      const size_t line_end = buffer.find("\r\n", next_);
      if (line_end == std::string::npos) return 0;
      const size_t bytes = std::strtoull(buffer.c_str() + next_, nullptr, 16);
      const size_t end = line_end + 2 + bytes + 2;
      if (buffer.size() < end) return 0;
      if (bytes == 0) return end;  // trailers are not expected
      next_ = end;
    }
  }
  size_t head_bytes() const { return head_bytes_; }
  void take(size_t bytes) {
    buffer.erase(0, bytes);
    head_bytes_ = 0;
  }

 private:
  bool read_head() {
    const size_t end = buffer.find("\r\n\r\n");
    if (end == std::string::npos) return false;
    head_bytes_ = end + 4;
    const std::string_view head(buffer.data(), head_bytes_);
    chunked_ = header_of(head, "transfer-encoding").starts_with("chunked");
    const std::string_view length = header_of(head, "content-length");
    next_ = head_bytes_;
    if (!chunked_ && !length.empty()) next_ += std::strtoull(length.data(), nullptr, 10);
    return true;
  }

  size_t head_bytes_ = 0, next_ = 0;
  bool chunked_ = false;
};

void send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return;  // blocking socket: the peer is gone, the next read says so
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

struct Connection {
  MessageReader in;
  SteadyClock::time_point sent_at;
  size_t seen = 0;      // load: bytes of in.buffer in which chunks' times were looked for
  int chunks_left = 0;  // stub: of the stream that is under way
};

// Reads what is there (one recv); false at the end of the connection.
bool receive(int fd, Connection& connection) {
  char chunk[65536];
  ssize_t got = recv(fd, chunk, sizeof chunk, MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  connection.in.buffer.append(chunk, static_cast<size_t>(got));
  return got > 0;
}

void watch(int poll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
}

class Stub {
 public:
  Stub(int port, int64_t pace_us) : pace_(std::chrono::microseconds(pace_us)), poll_(epoll_create1(0)) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    int one = 1;
    setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    sockaddr_in address = loopback(port);
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fail("bind");
    if (listen(listener_, 1024) != 0) fail("listen");
    watch(poll_, listener_);
  }

  [[noreturn]] void run() {
    std::vector<epoll_event> events(256);
    while (true) {
      const timespec wait = until_due();
      const int ready = epoll_pwait2(poll_, events.data(), static_cast<int>(events.size()),
                                     due_.empty() ? nullptr : &wait, nullptr);
      for (int i = 0; i < ready; ++i) {
        if (const int fd = events[static_cast<size_t>(i)].data.fd; fd == listener_) {
          accept_one();
        } else {
          serve(fd);
        }
      }
      send_due();
    }
  }

 private:
  static constexpr int kChunks = 200;

  timespec until_due() const {
    if (due_.empty()) return {};
    const auto left = std::max(due_.begin()->first - SteadyClock::now(), SteadyClock::duration::zero());
    return {left / std::chrono::seconds(1), (left % std::chrono::seconds(1)).count()};
  }

  SteadyClock::time_point next_step() const {
    const SteadyClock::time_point now = SteadyClock::now();
    return pace_.count() == 0 ? now : now - now.time_since_epoch() % pace_ + pace_;
  }

  void accept_one() {
    const int client = accept(listener_, nullptr, nullptr);
    if (client < 0) return;
    set_no_delay(client);
    watch(poll_, client);
    connections_[client] = std::make_unique<Connection>();
  }

  void serve(int fd) {
    Connection& connection = *connections_[fd];
    const bool open = receive(fd, connection);
    MessageReader& in = connection.in;
    while (size_t bytes = in.whole()) {
      const std::string_view message(in.buffer.data(), bytes);
      const std::string_view body = message.substr(in.head_bytes());
      if (message.starts_with("GET")) {
        send_all(fd, models_);
      } else if (body.find("\"stream\":true") != body.npos || body.find("\"stream\": true") != body.npos) {
        send_all(fd,
                 "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
        connection.chunks_left = kChunks;
        due_.emplace(next_step(), fd);
      } else {
        send_all(fd, answer_);
      }
      in.take(bytes);
    }
    if (open) return;
    std::erase_if(due_, [fd](const auto& entry) { return entry.second == fd; });
    close(fd);
    connections_.erase(fd);
  }

  void send_due() {
    while (!due_.empty() && due_.begin()->first <= SteadyClock::now()) {
      const auto [at, fd] = *due_.begin();
      due_.erase(due_.begin());
      Connection& connection = *connections_[fd];
      connection.chunks_left -= 1;
      send_all(fd, chunk(connection.chunks_left));
      if (connection.chunks_left > 0) due_.emplace(at + pace_, fd);
    }
  }

  // As an HTTP chunk. The last one ends the answer and the body.
  static std::string chunk(int left) {
    char event[512];
    int bytes = std::snprintf(
        event, sizeof event,
        R"(data: {"id":"chatcmpl-stub","object":"chat.completion.chunk","created":1,"model":"stub","choices":[)"
        R"({"index":0,"delta":{"content":"t%lld"},"logprobs":null,"finish_reason":%s}]})"
        "\n\n%s",
        static_cast<long long>(SteadyClock::now().time_since_epoch().count()),
        left == 0 ? R"("stop")" : "null", left == 0 ? "data: [DONE]\n\n" : "");
    char size[16];
    std::snprintf(size, sizeof size, "%x\r\n", bytes);
    return std::string(size).append(event, static_cast<size_t>(bytes)) +
           (left == 0 ? "\r\n0\r\n\r\n" : "\r\n");
  }

  const SteadyClock::duration pace_;
  const std::string answer_ = http_answer(kAnswerBody), models_ = http_answer(kModelsBody);
  int poll_, listener_ = -1;
  std::map<int, std::unique_ptr<Connection>> connections_;
  std::multimap<SteadyClock::time_point, int> due_;  // when a connection's next chunk is
};

struct LoadOptions {
  int port = 0;
  int connections = 16;
  double seconds = 2;
  std::string body_path;
};

// How long the chunks in what has come since the last time were on their way.
void note_chunks(Connection& connection, SteadyClock::time_point now, std::vector<int64_t>& delays_ns) {
  constexpr std::string_view kBefore = R"("content":"t)";
  const std::string& text = connection.in.buffer;
  while (true) {
    const size_t at = text.find(kBefore, connection.seen);
    const size_t end = at == std::string::npos ? at : text.find('"', at + kBefore.size());
    if (end == std::string::npos) return;
    delays_ns.push_back(now.time_since_epoch().count() - std::atoll(text.c_str() + at + kBefore.size()));
    connection.seen = end;
  }
}

int connect_to(int port) {
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = loopback(port);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fail("connect");
  set_no_delay(fd);
  return fd;
}

double percentile_us(std::vector<int64_t>& latencies_ns, double share) {
  if (latencies_ns.empty()) return 0;
  size_t index = std::min(latencies_ns.size() - 1,
                          static_cast<size_t>(share * static_cast<double>(latencies_ns.size())));
  std::nth_element(latencies_ns.begin(), latencies_ns.begin() + static_cast<ptrdiff_t>(index),
                   latencies_ns.end());
  return static_cast<double>(latencies_ns[index]) / 1e3;
}

int run_load(const LoadOptions& options) {
  std::ifstream file(options.body_path, std::ios::binary);
  std::string body{std::istreambuf_iterator<char>(file), {}};
  if (body.empty()) fail("--body");
  const std::string request =
      "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: "
      "application/json\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body;

  int poll = epoll_create1(0);
  std::map<int, Connection> connections;
  for (int i = 0; i < options.connections; ++i) {
    int fd = connect_to(options.port);
    watch(poll, fd);
    connections[fd].sent_at = SteadyClock::now();
    send_all(fd, request);
  }
  std::vector<int64_t> latencies_ns, delays_ns;
  latencies_ns.reserve(1 << 20);
  int64_t errors = 0;
  auto begin = SteadyClock::now();
  auto end = begin + std::chrono::duration_cast<SteadyClock::duration>(
                         std::chrono::duration<double>(options.seconds));
  std::vector<epoll_event> events(256);
  auto now = begin;
  while (now < end && !connections.empty()) {
    int ready = epoll_wait(poll, events.data(), static_cast<int>(events.size()), 1000);
    now = SteadyClock::now();
    for (int i = 0; i < ready; ++i) {
      int fd = events[static_cast<size_t>(i)].data.fd;
      Connection& connection = connections[fd];
      bool open = receive(fd, connection);
      note_chunks(connection, SteadyClock::now(), delays_ns);
      if (size_t bytes = connection.in.whole()) {
        errors += connection.in.buffer.starts_with("HTTP/1.1 200") ? 0 : 1;
        connection.in.take(bytes);
        connection.seen = 0;
        latencies_ns.push_back((now - connection.sent_at).count());
        connection.sent_at = now;
        send_all(fd, request);
      }
      if (!open) {
        ++errors;
        close(fd);
        connections.erase(fd);
      }
    }
  }
  double seconds = std::chrono::duration<double>(now - begin).count();
  std::printf(
      R"({"requests": %zu, "errors": %lld, "seconds": %.4f, "requests_per_s": %.1f, "p50_us": %.1f, "p99_us": %.1f, )"
      R"("chunks": %zu, "chunk_p50_us": %.1f, "chunk_p99_us": %.1f})"
      "\n",
      latencies_ns.size(), static_cast<long long>(errors), seconds,
      static_cast<double>(latencies_ns.size()) / seconds, percentile_us(latencies_ns, 0.5),
      percentile_us(latencies_ns, 0.99), delays_ns.size(), percentile_us(delays_ns, 0.5),
      percentile_us(delays_ns, 0.99));
  return errors == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  LoadOptions options;
  int64_t pace_us = 0;
  std::string_view mode = argc > 1 ? argv[1] : "";
  for (int i = 2; i + 1 < argc; i += 2) {
    std::string_view flag = argv[i];
    if (flag == "--port") options.port = std::atoi(argv[i + 1]);
    if (flag == "--connections") options.connections = std::atoi(argv[i + 1]);
    if (flag == "--seconds") options.seconds = std::atof(argv[i + 1]);
    if (flag == "--body") options.body_path = argv[i + 1];
    if (flag == "--pace-us") pace_us = std::atoll(argv[i + 1]);
  }
  if (mode == "stub" && options.port > 0) Stub(options.port, pace_us).run();
  if (mode == "load" && options.port > 0 && options.connections > 0) return run_load(options);
  std::fprintf(stderr,
               "usage: proxy_bench stub --port P [--pace-us U]\n       proxy_bench load --port P "
               "--connections C --seconds "
               "S --body FILE\n");
  return 2;
}

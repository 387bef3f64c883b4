// Two small programs for measuring a proxy from outside: a stub upstream that answers every chat request at
// once, and a closed-loop load generator. Both are one epoll loop with no library, so that together they cost
// less than the proxy between them and one core is enough for both.
//
//   proxy_bench stub --port P                        answers until SIGTERM
//   proxy_bench load --port P --connections C --seconds S --body FILE    one JSON line of results on stdout

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

// Bytes of the first whole message (head and Content-Length body) in `text`, 0 while it is incomplete.
size_t message_bytes(std::string_view text) {
  size_t head_end = text.find("\r\n\r\n");
  if (head_end == std::string_view::npos) return 0;
  size_t body_bytes = 0;
  for (size_t at = text.find("\r\n"); at < head_end; at = text.find("\r\n", at + 2)) {
    std::string_view line = text.substr(at + 2, head_end - at);
    constexpr std::string_view kName = "content-length:";
    if (line.size() > kName.size() && strncasecmp(line.data(), kName.data(), kName.size()) == 0) {
      body_bytes = std::strtoull(line.data() + kName.size(), nullptr, 10);
    }
  }
  size_t total = head_end + 4 + body_bytes;
  return text.size() >= total ? total : 0;
}

void send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return;  // blocking socket: the peer is gone, the next read says so
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

struct Connection {
  std::string buffer;
  std::chrono::steady_clock::time_point sent_at;
};

// Reads what is there (one recv); false at the end of the connection.
bool receive(int fd, Connection& connection) {
  char chunk[65536];
  ssize_t got = recv(fd, chunk, sizeof chunk, MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  connection.buffer.append(chunk, static_cast<size_t>(got));
  return got > 0;
}

int run_stub(int port) {
  const std::string answer = http_answer(kAnswerBody);
  const std::string models = http_answer(kModelsBody);
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  int one = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  sockaddr_in address = loopback(port);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fail("bind");
  if (listen(listener, 1024) != 0) fail("listen");
  int poll = epoll_create1(0);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = listener;
  epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
  std::map<int, std::unique_ptr<Connection>> connections;
  std::vector<epoll_event> events(256);
  while (true) {
    int ready = epoll_wait(poll, events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < ready; ++i) {
      int fd = events[i].data.fd;
      if (fd == listener) {
        int client = accept(listener, nullptr, nullptr);
        if (client < 0) continue;
        set_no_delay(client);
        event.data.fd = client;
        epoll_ctl(poll, EPOLL_CTL_ADD, client, &event);
        connections[client] = std::make_unique<Connection>();
        continue;
      }
      Connection& connection = *connections[fd];
      bool open = receive(fd, connection);
      while (size_t bytes = message_bytes(connection.buffer)) {
        send_all(fd, connection.buffer.starts_with("GET") ? models : answer);
        connection.buffer.erase(0, bytes);
      }
      if (!open) {
        close(fd);
        connections.erase(fd);
      }
    }
  }
}

struct LoadOptions {
  int port = 0;
  int connections = 16;
  double seconds = 2;
  std::string body_path;
};

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
  using SteadyClock = std::chrono::steady_clock;
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
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
    connections[fd].sent_at = SteadyClock::now();
    send_all(fd, request);
  }
  std::vector<int64_t> latencies_ns;
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
      int fd = events[i].data.fd;
      Connection& connection = connections[fd];
      bool open = receive(fd, connection);
      if (size_t bytes = message_bytes(connection.buffer)) {
        errors += connection.buffer.starts_with("HTTP/1.1 200") ? 0 : 1;
        connection.buffer.erase(0, bytes);
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
      R"({"requests": %zu, "errors": %lld, "seconds": %.4f, "requests_per_s": %.1f, "p50_us": %.1f, "p99_us": %.1f})"
      "\n",
      latencies_ns.size(), static_cast<long long>(errors), seconds,
      static_cast<double>(latencies_ns.size()) / seconds, percentile_us(latencies_ns, 0.5),
      percentile_us(latencies_ns, 0.99));
  return errors == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  LoadOptions options;
  std::string_view mode = argc > 1 ? argv[1] : "";
  for (int i = 2; i + 1 < argc; i += 2) {
    std::string_view flag = argv[i];
    if (flag == "--port") options.port = std::atoi(argv[i + 1]);
    if (flag == "--connections") options.connections = std::atoi(argv[i + 1]);
    if (flag == "--seconds") options.seconds = std::atof(argv[i + 1]);
    if (flag == "--body") options.body_path = argv[i + 1];
  }
  if (mode == "stub" && options.port > 0) return run_stub(options.port);
  if (mode == "load" && options.port > 0 && options.connections > 0) return run_load(options);
  std::fprintf(stderr,
               "usage: proxy_bench stub --port P\n       proxy_bench load --port P --connections C --seconds "
               "S --body FILE\n");
  return 2;
}

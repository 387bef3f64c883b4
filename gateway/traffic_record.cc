#include "gateway/traffic_record.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe {

namespace {

// The writer looks so often; nobody wakes it for every request.
constexpr auto kInterval = std::chrono::milliseconds(100);
constexpr Duration kStopWithin = std::chrono::seconds(2);
constexpr size_t kOutcomeBytes = 256;

int64_t unix_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

int64_t us_of(TimePoint t) {
  return std::chrono::duration_cast<std::chrono::microseconds>(t.time_since_epoch()).count();
}

}  // namespace

StatusOr<std::unique_ptr<TrafficRecord>> TrafficRecord::open(const std::string& path, const Parts& parts,
                                                             Hash128 salt) {
  // Not blocking: a pipe that nobody reads must not keep the writer when the gateway stops.
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0600);
  if (fd < 0) return absl::NotFoundError(absl::StrCat("record: ", path, ": ", std::strerror(errno)));
  return std::unique_ptr<TrafficRecord>(new TrafficRecord(fd, path, parts, salt));
}

TrafficRecord::TrafficRecord(int fd, const std::string& path, const Parts& parts, Hash128 salt)
    : fd_(fd),
      path_(path),
      clock_(parts.clock),
      log_(parts.log),
      salt_(salt),
      unix_us_at_zero_(unix_us() - us_of(parts.clock.now())),
      lines_written_(
          parts.metrics.counter("troupe_gateway_record_lines_total", "Lines written to --record's file.")),
      dropped_full_(parts.metrics.counter("troupe_gateway_record_dropped_total",
                                          "Requests that are not in --record's file, by why.",
                                          {{"reason", "queue_full"}})),
      dropped_failed_(parts.metrics.counter("troupe_gateway_record_dropped_total",
                                            "Requests that are not in --record's file, by why.",
                                            {{"reason", "write_failed"}})),
      writer_([this] { run(); }) {}

TrafficRecord::~TrafficRecord() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    stop_by_ = clock_.now() + kStopWithin;
  }
  wake_.notify_one();
  writer_.join();
  ::close(fd_);
}

uint64_t TrafficRecord::arrived(TrafficArrival arrival, TimePoint at) {
  arrival.unix_us = unix_us_at_zero_ + us_of(at);
  arrival.number = last_number_ + 1;
  const size_t bytes = sizeof(Event) + arrival.marks.heap_bytes();
  if (!push(std::move(arrival), bytes)) {
    dropped_full_.Increment();
    return 0;
  }
  return ++last_number_;
}

void TrafficRecord::ended(uint64_t number, TrafficOutcome outcome) {
  // Where there is no room for it the line says that the request has not ended.
  if (number != 0) push(End{number, std::move(outcome)}, kOutcomeBytes);
}

bool TrafficRecord::push(Event event, size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (queued_bytes_ + bytes > kQueueBytesMax) return false;
  queued_bytes_ += bytes;
  queue_.push_back(std::move(event));
  return true;
}

// False when it is time to stop; `events` may hold the last ones then.
bool TrafficRecord::wait(std::vector<Event>& events) {
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, kInterval, [this] { return stopping_; });
  events.swap(queue_);
  queued_bytes_ = 0;
  return !stopping_;
}

void TrafficRecord::run() {
  // A pipe whose reader has gone is a failed write, not the gateway's end.
  sigset_t pipe_signal;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe_signal, nullptr);
  TrafficLines lines;
  std::vector<Event> events;
  std::string text;
  for (bool more = true; more;) {
    more = wait(events);
    for (Event& event : events) {
      if (auto* arrival = std::get_if<TrafficArrival>(&event)) {
        lines.arrived(std::move(*arrival));
      } else {
        End& end = std::get<End>(event);
        lines.ended(end.number, std::move(end.outcome));
      }
      lines.take(text);
    }
    events.clear();
    if (!more) lines.take_all(text);
    write(text);
    text.clear();
  }
}

// Whole lines; what cannot be written is dropped.
void TrafficRecord::write(std::string_view text) {
  const auto lines_in = [](std::string_view part) {
    return static_cast<double>(std::count(part.begin(), part.end(), '\n'));
  };
  if (text.empty()) return;
  const std::string after_torn = torn_ ? absl::StrCat("\n", to_absl(text)) : std::string();
  std::string_view rest = torn_ ? std::string_view(after_torn) : text;
  const std::string_view all = rest;
  while (!rest.empty() && write_some(rest)) {
  }
  const std::string_view done = all.substr(0, all.size() - rest.size());
  const double written = lines_in(done) - (torn_ && !done.empty() ? 1 : 0);
  lines_written_.Increment(written);
  if (!done.empty()) torn_ = done.back() != '\n';
  if (rest.empty()) {
    failing_ = false;
    return;
  }
  dropped_failed_.Increment(lines_in(text) - written);
  if (torn_) {
    // Of a file the broken line is cut off again; elsewhere the next one begins on a line of its own.
    struct stat info {};
    const size_t tail = done.size() - (done.rfind('\n') == std::string_view::npos ? 0 : done.rfind('\n') + 1);
    if (fstat(fd_, &info) == 0 && S_ISREG(info.st_mode))
      torn_ = ftruncate(fd_, info.st_size - static_cast<off_t>(tail)) != 0;
  }
}

// False where it cannot go on; `text` is then what is left.
bool TrafficRecord::write_some(std::string_view& text) {
  const ssize_t count = ::write(fd_, text.data(), text.size());
  if (count > 0) {
    text.remove_prefix(static_cast<size_t>(count));
    return true;
  }
  if (count < 0 && errno == EINTR) return true;
  if (count < 0 && errno == EAGAIN) {
    pollfd wait{fd_, POLLOUT, 0};
    poll(&wait, 1, 100);
    return may_go_on();
  }
  if (!failing_) log_.warn("record_write_failed", {{"file", path_}, {"why", std::strerror(errno)}});
  failing_ = true;
  return false;
}

bool TrafficRecord::may_go_on() {
  const std::lock_guard lock(mutex_);
  return !stopping_ || clock_.now() < stop_by_;
}

}  // namespace troupe

#include "gateway/telemetry/queued_log.h"

#include <chrono>
#include <csignal>
#include <utility>

namespace troupe {

namespace {

// Polling interval of the writer; lines don't wake it.
constexpr auto kInterval = std::chrono::milliseconds(100);
constexpr Duration kStopWithin = std::chrono::seconds(2);

}  // namespace

QueuedLog::QueuedLog(int fd, const std::string& path, Parts parts)
    : parts_(std::move(parts)), file_(file_at(fd, path)), writer_([this] { run(); }) {}

AppendLog QueuedLog::file_at(int fd, const std::string& path) {
  AppendLog::Parts file{parts_.what, parts_.log, parts_.lines_written, parts_.dropped_failed,
                        [this] { return may_go_on(); }};
  if (path == kLogToStderr) return AppendLog::standard_error(std::move(file));
  return AppendLog(fd, path, std::move(file));
}

QueuedLog::~QueuedLog() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    stop_by_ = parts_.clock.now() + kStopWithin;
  }
  wake_.notify_one();
  writer_.join();
}

void QueuedLog::add(std::string_view line) {
  const MutexLock lock(mutex_);
  if (queue_.size() + line.size() >= kQueueBytesMax) {
    parts_.dropped_full.Increment();
    return;
  }
  queue_ += line;
  queue_ += '\n';
}

void QueuedLog::reopen() {
  const MutexLock lock(mutex_);
  reopen_ = true;
}

void QueuedLog::run() {
  // A pipe without a reader is a failed write, it does not end the gateway.
  sigset_t pipe_signal;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe_signal, nullptr);
  std::string lines;
  for (bool more = true; more;) {
    bool reopen = false;
    {
      const MutexLock lock(mutex_);
      while (!stopping_ && wake_.wait_for(mutex_, kInterval)) {
      }
      lines.clear();
      lines.swap(queue_);
      reopen = std::exchange(reopen_, false);
      more = !stopping_;
    }
    if (reopen) file_.reopen();
    file_.write(lines);
    if (parts_.after_write) parts_.after_write(file_, !more);
  }
}

bool QueuedLog::may_go_on() {
  const MutexLock lock(mutex_);
  return !stopping_ || parts_.clock.now() < stop_by_;
}

}  // namespace troupe

#pragma once

// Lines for a file that a thread of its own writes: the event loop only hands them over. With a slow or full
// disk, lines are dropped and counted; no request waits.

#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "common/core/log.h"
#include "common/core/metrics.h"
#include "common/core/mutex.h"
#include "common/core/time.h"
#include "gateway/telemetry/append_log.h"

namespace troupe {

inline constexpr std::string_view kLogToStderr = "stderr";

class QueuedLog {
 public:
  static constexpr size_t kQueueBytesMax = size_t{4} << 20;
  struct Parts {
    std::string what;  // as AppendLog's
    const Clock& clock;
    const Logger& log;
    Counter& lines_written;
    Counter& dropped_failed;  // the file did not take them
    Counter& dropped_full;    // too many waited
    // Called by the writer after each look at the queue, ten times a second, and a last time at the end. May
    // be empty.
    std::function<void(AppendLog& file, bool last)> after_write;
  };
  // `fd`: from AppendLog::open(); ignored where `path` is kLogToStderr.
  QueuedLog(int fd, const std::string& path, Parts parts);
  // Writes pending lines, for at most two seconds.
  ~QueuedLog();
  QueuedLog(const QueuedLog&) = delete;
  QueuedLog& operator=(const QueuedLog&) = delete;

  // Returns at once. `line`: without the newline.
  void add(std::string_view line);
  // Lines added from now on go to the file then at the path (a rotated log's successor).
  void reopen();

 private:
  AppendLog file_at(int fd, const std::string& path);
  void run();
  bool may_go_on();

  const Parts parts_;

  Mutex mutex_;
  CondVar wake_;
  std::string queue_ ABSL_GUARDED_BY(mutex_);  // lines
  bool reopen_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  TimePoint stop_by_ ABSL_GUARDED_BY(mutex_){};

  AppendLog file_;      // used by the writer
  std::thread writer_;  // last: it uses the members above
};

}  // namespace troupe

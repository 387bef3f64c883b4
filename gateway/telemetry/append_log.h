#pragma once

// A file that whole lines are appended to by a thread that may wait for it. What cannot be written is dropped
// and counted; a line that was written in part is cut off again, or ended before the next one.

#include <functional>
#include <string>
#include <string_view>

#include "common/core/log.h"
#include "common/core/metrics.h"
#include "common/core/status.h"

namespace troupe {

class AppendLog {
 public:
  struct Parts {
    std::string what;  // the key that names the file: in errors, and "<what>_write_failed" in the log
    const Logger& log;
    Counter& lines_written;
    Counter& lines_dropped;
    std::function<bool()> may_wait;  // asked while it is full, every 100 ms; false: drop the rest
  };
  // Made with mode 0600. Errors name `what` and the path.
  static StatusOr<int> open(const std::string& what, const std::string& path);

  // Owns `fd`, open()'s.
  AppendLog(int fd, std::string path, Parts parts);
  // Standard error, which this process shares with others: it is left blocking and whole, and written only as
  // far as it takes at once, in lines of at most PIPE_BUF bytes, which no other writer then tears apart.
  static AppendLog standard_error(Parts parts);
  ~AppendLog();
  AppendLog(const AppendLog&) = delete;
  AppendLog& operator=(const AppendLog&) = delete;

  // `text` is whole lines.
  void write(std::string_view text);
  // The file that has the path now. Where it cannot be opened the old one stays, and the log says so.
  void reopen();

 private:
  AppendLog(int fd, std::string path, Parts parts, bool shared);
  bool write_some(std::string_view& text);
  void mend_torn(std::string_view written);

  int fd_;
  const std::string path_;
  const Parts parts_;
  const bool shared_;
  bool torn_ = false;     // the file ends in the middle of a line
  bool failing_ = false;  // said in the log already
};

}  // namespace troupe

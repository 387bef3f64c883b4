#pragma once

// A file to which a thread that may block appends whole lines. Lines that cannot be written are dropped and
// counted; a partly written line is cut off again, or ended before the next one.

#include <cstdint>
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
    std::function<bool()> may_wait;  // asked while the file is full, every 100 ms; false: drop the rest
  };
  // Created with mode 0600. Errors name `what` and the path.
  static StatusOr<int> open(const std::string& what, const std::string& path);

  // Whether open() would succeed now; nothing is created or opened.
  static Status check(const std::string& what, const std::string& path);

  // Owns `fd`, from open().
  AppendLog(int fd, std::string path, Parts parts);
  // Standard error, which this process shares with others: it stays blocking and is never truncated; it is
  // written only as far as it takes at once, in lines of at most PIPE_BUF bytes, which no other writer then
  // tears apart.
  static AppendLog standard_error(Parts parts);
  ~AppendLog();
  AppendLog(const AppendLog&) = delete;
  AppendLog& operator=(const AppendLog&) = delete;

  // REQUIRES: `text` is whole lines.
  void write(std::string_view text);
  // Opens the file now at the path. On failure the old one stays, and the log says so.
  void reopen();
  // Bytes of the file; 0 where it has no size.
  uint64_t size() const;
  // Brings to the disk what was written; false: it may not be there.
  bool sync() const;
  // Gives the file this path and begins another one at its own. False: it could not be moved, and stays, and
  // the log says so; or it was moved before.
  bool move_to(const std::string& path);

 private:
  AppendLog(int fd, std::string path, Parts parts, bool shared);
  bool write_some(std::string_view& text);
  void mend_torn(std::string_view written);

  int fd_;
  const std::string path_;
  const Parts parts_;
  const bool shared_;
  bool torn_ = false;     // the file ends in the middle of a line
  bool failing_ = false;  // logged already
};

}  // namespace troupe

#include "gateway/telemetry/append_log.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/regular_file.h"

namespace troupe {

namespace {

constexpr int kWaitMs = 100;

double lines_in(std::string_view text) {
  return static_cast<double>(std::count(text.begin(), text.end(), '\n'));
}

bool takes_bytes(int fd, int wait_ms) {
  pollfd wait{fd, POLLOUT, 0};
  return poll(&wait, 1, wait_ms) > 0;
}

// The whole lines that a pipe takes in one piece.
std::string_view atomic_part(std::string_view text) {
  if (text.size() <= PIPE_BUF) return text;
  const size_t end = text.substr(0, PIPE_BUF).rfind('\n');
  return text.substr(0, end == std::string_view::npos ? PIPE_BUF : end + 1);
}

}  // namespace

StatusOr<int> AppendLog::open(const std::string& what, const std::string& path) {
  // Non-blocking: a pipe without a reader must not keep the writer when the gateway stops.
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0600);
  if (fd < 0) return absl::NotFoundError(absl::StrCat(what, ": ", path, ": ", std::strerror(errno)));
  return fd;
}

Status AppendLog::check(const std::string& what, const std::string& path) {
  const auto refused = [&](int error) {
    return absl::NotFoundError(absl::StrCat(what, ": ", path, ": ", std::strerror(error)));
  };
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return refused(EISDIR);
    const bool may_write = ::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0;
    return may_write ? absl::OkStatus() : refused(errno);
  }
  if (errno != ENOENT) return refused(errno);
  const Status creatable = check_creatable(path);
  return creatable.ok() ? creatable : absl::NotFoundError(absl::StrCat(what, ": ", creatable.message()));
}

AppendLog::AppendLog(int fd, std::string path, Parts parts, bool shared)
    : fd_(fd), path_(std::move(path)), parts_(std::move(parts)), shared_(shared) {}

AppendLog::AppendLog(int fd, std::string path, Parts parts)
    : AppendLog(fd, std::move(path), std::move(parts), false) {}

AppendLog AppendLog::standard_error(Parts parts) {
  return AppendLog(STDERR_FILENO, "stderr", std::move(parts), true);
}

AppendLog::~AppendLog() {
  if (!shared_) ::close(fd_);
}

void AppendLog::reopen() {
  if (shared_) return;
  const StatusOr<int> fd = open(parts_.what, path_);
  if (!fd.ok()) {
    parts_.log.warn(parts_.what + "_not_reopened", {{"file", path_}, {"why", to_std(fd.status().message())}});
    return;
  }
  ::close(std::exchange(fd_, *fd));
  torn_ = failing_ = false;
}

uint64_t AppendLog::size() const {
  struct stat info {};
  return fstat(fd_, &info) == 0 && S_ISREG(info.st_mode) ? static_cast<uint64_t>(info.st_size) : 0;
}

bool AppendLog::sync() const {
  return ::fdatasync(fd_) == 0;
}

bool AppendLog::move_to(const std::string& path) {
  if (shared_) return false;
  const bool moved = ::rename(path_.c_str(), path.c_str()) == 0;
  const int why = errno;
  if (!moved && why != ENOENT)
    parts_.log.warn(parts_.what + "_not_moved", {{"file", path_}, {"why", std::strerror(why)}});
  // (Without a file at the path ours was moved before, and none could be opened then.)
  if (moved || why == ENOENT) reopen();
  return moved;
}

void AppendLog::write(std::string_view text) {
  if (text.empty()) return;
  const std::string after_torn = torn_ ? absl::StrCat("\n", to_absl(text)) : std::string();
  std::string_view rest = torn_ ? std::string_view(after_torn) : text;
  const std::string_view all = rest;
  while (!rest.empty() && write_some(rest)) {
  }
  const std::string_view done = all.substr(0, all.size() - rest.size());
  const double written = lines_in(done) - (torn_ && !done.empty() ? 1 : 0);
  parts_.lines_written.Increment(written);
  if (!done.empty()) torn_ = done.back() != '\n';
  if (rest.empty()) {
    failing_ = false;
    return;
  }
  parts_.lines_dropped.Increment(lines_in(text) - written);
  if (torn_) mend_torn(done);
}

// In a file of ours the broken line is cut off again; elsewhere the next one begins on a line of its own.
void AppendLog::mend_torn(std::string_view written) {
  struct stat info {};
  if (shared_ || fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) return;
  const size_t end = written.rfind('\n');
  const size_t tail = written.size() - (end == std::string_view::npos ? 0 : end + 1);
  torn_ = ftruncate(fd_, info.st_size - static_cast<off_t>(tail)) != 0;
}

// False: the write failed, and `text` is what is left.
bool AppendLog::write_some(std::string_view& text) {
  if (shared_ && !takes_bytes(fd_, kWaitMs)) return parts_.may_wait();
  const std::string_view part = shared_ ? atomic_part(text) : text;
  const ssize_t count = ::write(fd_, part.data(), part.size());
  if (count > 0) {
    text.remove_prefix(static_cast<size_t>(count));
    return true;
  }
  if (count < 0 && errno == EINTR) return true;
  if (count < 0 && errno == EAGAIN) {
    takes_bytes(fd_, kWaitMs);
    return parts_.may_wait();
  }
  if (!failing_)
    parts_.log.warn(parts_.what + "_write_failed", {{"file", path_}, {"why", std::strerror(errno)}});
  failing_ = true;
  return false;
}

}  // namespace troupe

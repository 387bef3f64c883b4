#include "common/net/file_limit.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace troupe {

Status raise_file_limit(size_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return absl::InternalError(absl::StrCat("getrlimit: ", std::strerror(errno)));
  }
  if (limit.rlim_cur >= wanted) return absl::OkStatus();
  rlimit raised = limit;
  raised.rlim_cur = std::min<rlim_t>(wanted, limit.rlim_max);
  if (raised.rlim_cur > limit.rlim_cur && ::setrlimit(RLIMIT_NOFILE, &raised) == 0) {
    limit = raised;
  }
  if (limit.rlim_cur >= wanted) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("open files are limited to ", limit.rlim_cur, ", ", wanted,
                   " are needed for all connections: raise the hard limit (ulimit -Hn, LimitNOFILE=)"));
}

// The limit is read each time: it can be changed from outside.
bool is_kept_file(int fd, KeptFiles kept) {
  constexpr rlim_t kKeptMax = 64;
  rlimit limit{};
  if (fd < 0 || ::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
  const rlim_t all = std::min(limit.rlim_cur / 4, kKeptMax);
  return static_cast<rlim_t>(fd) >= limit.rlim_cur - (kept == KeptFiles::kAll ? all : all / 2);
}

}  // namespace troupe

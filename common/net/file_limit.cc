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

}  // namespace troupe

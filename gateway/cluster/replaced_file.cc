#include "gateway/cluster/replaced_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/core/regular_file.h"

namespace troupe {

namespace {

Status refused(const std::string& what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

Status write_all(int descriptor, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t count = ::write(descriptor, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return refused(path);
    text.remove_prefix(static_cast<size_t>(count));
  }
  return ::fsync(descriptor) == 0 ? absl::OkStatus() : refused(path);
}

// The new name is on the disk, too. (Some file systems have no such thing; then it is there soon.)
void sync_folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  const OpenFile file(descriptor);
  ::fsync(descriptor);
}

}  // namespace

Status replace_file(const std::string& path, std::string_view text) {
  const std::string beside = path + ".new";
  ::unlink(beside.c_str());  // left by one that was killed
  const int descriptor = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) return refused(beside);
  {
    const OpenFile file(descriptor);
    TROUPE_RETURN_IF_ERROR(write_all(descriptor, text, beside));
  }
  if (std::rename(beside.c_str(), path.c_str()) != 0) return refused(path);
  sync_folder(path);
  return absl::OkStatus();
}

}  // namespace troupe

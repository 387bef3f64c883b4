#include "common/core/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe {

namespace {

// A step of reading a file whose size is not known.
constexpr size_t kChunkBytes = 64u << 10;

Status cannot(std::string_view verb, const std::string& path) {
  const int error = errno;
  return absl::NotFoundError(absl::StrCat(path, ": cannot ", to_absl(verb), ": ", std::strerror(error)));
}

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "of an unknown kind";
}

Status is_too_large(const std::string& path, size_t bytes_max) {
  return invalid_argument(absl::StrCat(path, ": larger than the ", bytes_max, " bytes allowed"));
}

}  // namespace

OpenFile::~OpenFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

int OpenFile::release() {
  return std::exchange(descriptor_, -1);
}

StatusOr<RegularFile> open_regular_file(const std::string& path) {
  struct stat info {};
  // Looked at before it is opened, too: a socket does not open, and to open a device may do something.
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return invalid_argument(
        absl::StrCat(path, ": is ", to_absl(kind_of(info.st_mode)), "; a regular file is needed"));
  }
  // O_NONBLOCK: a pipe that has taken the file's place since would be waited for.
  OpenFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.descriptor() < 0) return cannot("open", path);
  if (::fstat(file.descriptor(), &info) != 0) return cannot("open", path);
  if (!S_ISREG(info.st_mode)) {
    return invalid_argument(
        absl::StrCat(path, ": is ", to_absl(kind_of(info.st_mode)), "; a regular file is needed"));
  }
  return RegularFile{std::move(file), static_cast<uint64_t>(info.st_size)};
}

StatusOr<std::string> read_regular_file(const std::string& path, size_t bytes_max) {
  TROUPE_ASSIGN_OR_RETURN(const RegularFile opened, open_regular_file(path));
  if (opened.byte_count > bytes_max) return is_too_large(path, bytes_max);
  std::string text;
  size_t size = 0;
  while (true) {
    // A byte more than expected shows that the file ends there, or grows.
    const size_t room = size == 0 ? static_cast<size_t>(opened.byte_count) + 1 : kChunkBytes;
    text.resize(size + std::min(std::max(room, kChunkBytes), bytes_max + 1 - size));
    const ssize_t got = ::read(opened.file.descriptor(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return cannot("read", path);
    size += static_cast<size_t>(got);
    if (size > bytes_max) return is_too_large(path, bytes_max);
    if (got > 0) continue;
    text.resize(size);
    return text;
  }
}

bool path_exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0;
}

Status check_creatable(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const char* const folder = parent.empty() ? "." : parent.c_str();
  struct stat info {};
  if (::stat(folder, &info) != 0) return cannot("create", path);
  errno = ENOTDIR;
  if (!S_ISDIR(info.st_mode)) return cannot("create", path);
  const bool may_write = ::faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) == 0;
  return may_write ? absl::OkStatus() : cannot("create", path);
}

}  // namespace troupe

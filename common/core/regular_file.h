#pragma once

// Reading files that a user names. Only regular ones are read, links to them included: a pipe is waited for
// without end, a device may never end, and a directory opens but cannot be read. Each is refused by name.
// Errors read "<path>: …", and are NotFound where the path leads to nothing, or to nothing that may be
// opened.

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/core/status.h"

namespace troupe {

// An open file, closed with its owner.
class OpenFile {
 public:
  explicit OpenFile(int descriptor) : descriptor_(descriptor) {}
  OpenFile(OpenFile&& other) noexcept : descriptor_(other.release()) {}
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile();
  int descriptor() const { return descriptor_; }
  // The caller closes the descriptor.
  int release();

 private:
  int descriptor_;
};

struct RegularFile {
  OpenFile file;
  uint64_t byte_count = 0;  // when it was opened; 0 for files that the system makes up, as those of /proc
};

StatusOr<RegularFile> open_regular_file(const std::string& path);

// A whole file of at most `bytes_max`. Its size is looked at before memory is taken for it.
StatusOr<std::string> read_regular_file(const std::string& path, size_t bytes_max);

// True if the path leads to anything, of whatever kind: whether that can be read is known by reading it.
bool path_exists(const std::string& path);

// Whether a file that is not there yet could be created: its folder is there, and may be written.
Status check_creatable(const std::string& path);

}  // namespace troupe

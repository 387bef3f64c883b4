#pragma once

// Files of results: whole or not at all. A file grows under a temporary name beside its place, and is renamed
// once complete.

#include <fstream>
#include <initializer_list>
#include <string>
#include <string_view>

#include "common/core/status.h"

namespace troupe::sim {

// Checks that these can be written, before a long run rather than after it. Empty paths and "-" can.
Status check_outputs(std::initializer_list<std::string> paths);

// A file written piece by piece. Devices and pipes are written in place. Errors name the path.
class OutputFile {
 public:
  static StatusOr<OutputFile> open(const std::string& path);
  // Deletes a file that was not closed.
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;

  // close() reports its errors.
  void write(std::string_view text);
  // Completes the file under its name.
  Status close();

 private:
  explicit OutputFile(std::string path);
  std::string path_, temporary_;  // temporary_ is empty if there is none (any more)
  std::ofstream file_;
};

// Errors name the path. "-": stdout.
Status write_file(const std::string& path, std::string_view text);

}  // namespace troupe::sim

#pragma once

// Files of results: whole or not at all. One grows beside its place and is given its name when all is in it.

#include <fstream>
#include <initializer_list>
#include <string>
#include <string_view>

#include "common/core/status.h"

namespace troupe::sim {

// Can these be written? Said before a long run, not after it. Empty paths and "-" can.
Status check_outputs(std::initializer_list<std::string> paths);

// One that is written piece by piece. Devices and pipes are written to as they are. Errors name the path.
class OutputFile {
 public:
  static StatusOr<OutputFile> open(const std::string& path);
  // What was not closed is gone.
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;

  // What fails is said by close().
  void write(std::string_view text);
  // All of it has been written, and stands under its name.
  Status close();

 private:
  explicit OutputFile(std::string path);
  std::string path_, temporary_;  // the latter empty: there is none (any more)
  std::ofstream file_;
};

// Errors name the path. "-": stdout.
Status write_file(const std::string& path, std::string_view text);

}  // namespace troupe::sim

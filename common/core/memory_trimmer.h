#pragma once

// Gives memory back to the system that a burst took and that is free again: an allocator keeps it, and in a
// container sized for usual traffic the process stays near its limit. A thread looks once a second and trims
// where much has been free for two looks in a row: traffic that takes it again and again keeps it.

#include <chrono>
#include <cstddef>
#include <thread>

#include "common/core/mutex.h"

namespace troupe {

// Bytes that the process's allocator holds unused.
size_t free_memory_bytes();
void trim_free_memory();

// Decides, look by look.
class TrimPolicy {
 public:
  explicit TrimPolicy(size_t free_bytes_max) : free_bytes_max_(free_bytes_max) {}
  bool wants_trim(size_t free_bytes);

 private:
  const size_t free_bytes_max_;
  bool was_much_ = false;
};

class MemoryTrimmer {
 public:
  struct Options {
    std::chrono::milliseconds interval{1000};
    size_t free_bytes_max = size_t{32} << 20;
  };
  MemoryTrimmer() : MemoryTrimmer(Options()) {}
  explicit MemoryTrimmer(const Options& options);
  ~MemoryTrimmer();  // joins

 private:
  void loop();

  const Options options_;
  Mutex mutex_;
  CondVar stop_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace troupe

// The programs use tcmalloc, those of sanitizers the C library's malloc: tcmalloc's functions are weak here.
// Measured with 25 bodies of 15 MB that come to nothing: tcmalloc keeps all of 400 MB for as long as nothing
// else happens, as it gives back on later frees alone.

#include "common/core/memory_trimmer.h"

#include <malloc.h>

extern "C" {
// gperftools/malloc_extension_c.h
int MallocExtension_GetNumericProperty(const char* property, size_t* value) __attribute__((weak));
void MallocExtension_ReleaseFreeMemory() __attribute__((weak));
}

namespace troupe {

size_t free_memory_bytes() {
  if (MallocExtension_GetNumericProperty != nullptr) {
    size_t bytes = 0;
    // Pages without an object that are still backed by memory.
    const bool is_known = MallocExtension_GetNumericProperty("tcmalloc.pageheap_free_bytes", &bytes) != 0;
    return is_known ? bytes : 0;
  }
  return mallinfo2().fordblks;
}

void trim_free_memory() {
  if (MallocExtension_ReleaseFreeMemory != nullptr) {
    MallocExtension_ReleaseFreeMemory();
  } else {
    malloc_trim(0);
  }
}

bool TrimPolicy::wants_trim(size_t free_bytes) {
  const bool is_much = free_bytes > free_bytes_max_;
  const bool wants = is_much && was_much_;
  was_much_ = is_much && !wants;
  return wants;
}

MemoryTrimmer::MemoryTrimmer(const Options& options) : options_(options), thread_([this] { loop(); }) {}

MemoryTrimmer::~MemoryTrimmer() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  thread_.join();
}

void MemoryTrimmer::loop() {
  TrimPolicy policy(options_.free_bytes_max);
  while (true) {
    {
      const MutexLock lock(mutex_);
      const auto until = std::chrono::steady_clock::now() + options_.interval;
      while (!stopping_ && stop_.wait_until(mutex_, until)) {
      }
      if (stopping_) return;
    }
    if (policy.wants_trim(free_memory_bytes())) trim_free_memory();
  }
}

}  // namespace troupe

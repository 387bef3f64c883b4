#include "sim/fleet/large_pages.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

namespace troupe::sim {

// An allocator grows its heap where the last growth ended and knows nothing of what that memory was advised.
// So it is made to grow once, by more than a run needs, and to keep that: untouched memory costs nothing.
// tcmalloc keeps what is freed; glibc (in tests) must be told.
bool prefer_large_pages() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return false;  // malloc() is theirs
#else
  constexpr size_t kPage = size_t{2} << 20;
  const auto bytes =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) / 2 * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (mallopt(M_MMAP_MAX, 0) == 0 || mallopt(M_TRIM_THRESHOLD, -1) == 0) return false;
  void* const heap = std::malloc(bytes);
  if (heap == nullptr) return false;
  const auto begin = (reinterpret_cast<uintptr_t>(heap) + kPage - 1) / kPage * kPage;
  const auto end = (reinterpret_cast<uintptr_t>(heap) + bytes) / kPage * kPage;
  const bool done = begin < end && madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE) == 0;
  std::free(heap);
  return done;
#endif
}

}  // namespace troupe::sim

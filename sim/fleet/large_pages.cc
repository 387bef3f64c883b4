#include "sim/fleet/large_pages.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

namespace troupe::sim {

// An allocator grows its heap where the last growth ended and does not know that memory's advice. So it is
// made to grow once, by more than a run needs, and to keep that: untouched memory costs nothing. tcmalloc
// keeps freed memory; glibc (in tests) has to be configured to.
bool prefer_large_pages() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return false;  // their own malloc()
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

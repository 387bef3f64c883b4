#include "kernels/host/host_buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <string>

namespace troupe {
namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kBytesMax = size_t{1} << 39;  // no machine has this for one buffer: a size gone wrong

}  // namespace

StatusOr<std::unique_ptr<HostBuffer>> HostBuffer::allocate(size_t bytes) {
  const bool huge = bytes >= kHugePage / 2;
  const size_t alignment = huge ? kHugePage : kCacheLine;
  // At least one byte, so that data() is never null. The last huge page whole where that costs less than half
  // a one, or a quarter of the buffer: a twentieth of a weight in small pages made its product a twentieth
  // slower.
  const size_t whole = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  const bool takes_whole = huge && (whole - bytes <= kHugePage / 2 || whole - bytes <= bytes / 4);
  const size_t padded = takes_whole ? whole : bytes / kCacheLine * kCacheLine + kCacheLine;
  void* data = nullptr;
  if (bytes <= kBytesMax && posix_memalign(&data, alignment, padded) != 0) data = nullptr;
  if (data == nullptr) {
    return absl::ResourceExhaustedError("cannot allocate " + std::to_string(bytes) + " bytes of memory");
  }
  if (huge) {
    // Hints: nothing to do where they are refused. Where malloc gives memory out again, the small pages that
    // some buffer of its own time touched are still there, and huge ones come only where there is none.
    madvise(data, padded, MADV_HUGEPAGE);
    madvise(data, padded / kHugePage * kHugePage, MADV_DONTNEED);
  }
  std::memset(data, 0, padded);
  return std::unique_ptr<HostBuffer>(new HostBuffer(data, bytes));
}

HostBuffer::~HostBuffer() {
  std::free(data_);
}

}  // namespace troupe

#pragma once

// A block's shared memory as the async proxy sees it (PTX ISA, "Async proxy"): the copy engine, which writes
// it, and the tensor cores, which read it. What a thread stores is there only from the thread's next
// fence_async_proxy() on; on the device it may be there earlier.
//
// Stores are known where they go through store_to_tile() or are of a cp.async that was waited for, once the
// block has made its first barrier or used another function of hopper.h. A plain store is never seen here: a
// product that reads such a place ends the process, whatever fences there are.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/kernels/emulated/vectors.h"

namespace troupe::emulated {

class AsyncView {
 public:
  // A block begins: 0xFF everywhere, as its shared memory.
  void reset(size_t bytes);

  // Offsets are from the begin of dynamic shared memory.
  void store(int thread, uint32_t offset, const uint4& value) { stores_.push_back({thread, offset, value}); }
  void fence(int thread);
  unsigned char* bytes() { return bytes_.data(); }

  // Barriers whose making is not published.
  void make_barrier(int thread, const void* barrier) { barriers_.emplace_back(thread, barrier); }
  void fence_barriers(int thread);
  bool is_unpublished(const void* barrier) const;

 private:
  struct Store {
    int thread;
    uint32_t offset;
    uint4 value;
  };
  std::vector<unsigned char> bytes_;
  std::vector<Store> stores_;  // not fenced
  std::vector<std::pair<int, const void*>> barriers_;
};

}  // namespace troupe::emulated

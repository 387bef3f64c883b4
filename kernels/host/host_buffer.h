#pragma once

// Zeroed host memory on a 64-byte boundary (a cache line, a ZMM register): what `allocate` of the ref and cpu
// backends gives out, and what they pack weights into. Buffers from half a huge page on ask for huge pages: a
// decode step reads every weight once, the small model's qkv of 2 MiB too, and with 4 KiB pages the walks
// show.

#include <cstddef>
#include <memory>

#include "common/core/status.h"
#include "kernels/kernels.h"

namespace troupe {

class HostBuffer final : public DeviceBuffer {
 public:
  // kResourceExhausted with the size where the system refuses.
  static StatusOr<std::unique_ptr<HostBuffer>> allocate(size_t bytes);
  ~HostBuffer() override;
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  void* data() const override { return data_; }
  size_t bytes() const override { return bytes_; }

 private:
  HostBuffer(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  void* data_;
  size_t bytes_;
};

}  // namespace troupe

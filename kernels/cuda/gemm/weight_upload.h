#pragma once

// Weights from a mapped file to the device. From memory that may be paged out CUDA copies with one thread
// through a small buffer of its own; here several threads copy, or convert, pieces into pinned memory, and
// the device fetches one while the next are filled.

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <memory>

#include "kernels/tensor.h"

namespace troupe::cuda {

// Some read a mapped file faster than one; more than eight wait for memory.
int upload_threads();

// Driven by the backend's one thread. Errors of copies end the process (check_cuda.h).
class WeightUpload {
 public:
  struct Options {
    int threads = 1;  // the caller's included
    size_t piece_bytes = size_t{64} << 20;
  };
  // Null where that much pinned memory is not to be had.
  static std::unique_ptr<WeightUpload> make(cudaStream_t stream, const Options& options);
  ~WeightUpload();  // waits for its copies
  WeightUpload(const WeightUpload&) = delete;
  WeightUpload& operator=(const WeightUpload&) = delete;

  // `from` in host memory: float32, bfloat16 or float16; it may be unmapped afterwards. `to` on the device:
  // as many elements, float32 or bfloat16; there before whatever is launched on the stream next.
  void copy(const Tensor& from, const Tensor& to);

 private:
  struct Piece {
    char* memory = nullptr;
    cudaEvent_t fetched = nullptr;
  };
  WeightUpload(cudaStream_t stream, const Options& options);
  bool allocate();
  void fill(char* memory, const Tensor& from, int64_t first, int64_t count, DType dtype) const;

  cudaStream_t stream_;
  const Options options_;
  std::array<Piece, 2> pieces_;
  size_t next_ = 0;
};

}  // namespace troupe::cuda

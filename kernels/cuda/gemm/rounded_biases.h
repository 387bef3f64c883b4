#pragma once

// Biases in bfloat16, for a library that adds none in float32. One is rounded at its first use and kept: a
// model's are constant.

#include <cstddef>
#include <cstdint>
#include <map>

#include "common/core/check.h"
#include "kernels/cuda/device/launch_stream.h"
#include "kernels/tensor.h"

namespace troupe::cuda {

class RoundedBiases {
 public:
  // Each begins at a multiple of so many numbers: as device memory does, which kernels that read 16 bytes at
  // once count on.
  static constexpr int64_t kAlignment = 128;

  // Room for `features` numbers of bfloat16, a multiple of kAlignment, at `memory` on the device.
  RoundedBiases(void* memory, int64_t features) : memory_(memory), features_(features) {
    TROUPE_CHECK(features >= 0 && features % kAlignment == 0, "room for parts of a bias");
  }

  // (N) bfloat16, there for launches behind this one in the stream. Where there is no room left, those before
  // are given up. REQUIRES: `bias` is (N) float32, N <= features.
  Tensor of(const LaunchStream& stream, const Tensor& bias);
  // This memory is about to be written: a bias that lies in it is to be rounded again.
  void forget(const void* memory, size_t bytes);

 private:
  void* memory_;
  int64_t features_;
  int64_t used_ = 0;
  std::map<const char*, Tensor> known_;  // by where the bias begins
};

}  // namespace troupe::cuda

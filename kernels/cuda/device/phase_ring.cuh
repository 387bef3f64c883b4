#pragma once

// Places in shared memory that are filled and emptied in turns, each with a PhaseBarrier (hopper.cuh).

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/hopper.cuh"

namespace troupe::cuda {

// The place of a turn, and the parity of its barriers' phase: the first turn's, and behind advance() the next
// one's.
template <int kPlaces>
struct PhaseRing {
  int at = 0;
  int parity = 0;

  __device__ __forceinline__ void advance() {
    if (++at < kPlaces) return;
    at = 0;
    parity ^= 1;
  }
};

// Once a warp has read what lies there: lanes 0.
__device__ __forceinline__ void release(PhaseBarrier& barrier) {
  __syncwarp();
  if (threadIdx.x % kWarp == 0) arrive(barrier);
}

}  // namespace troupe::cuda

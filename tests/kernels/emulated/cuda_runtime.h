#pragma once

// Stands in for the CUDA toolkit's header of this name: see emulator.h.

#include <cstddef>
#include <cstdint>

#include "tests/kernels/emulated/device_functions.h"
#include "tests/kernels/emulated/device_math.h"
#include "tests/kernels/emulated/emulator.h"
#include "tests/kernels/emulated/host_api.h"
#include "tests/kernels/emulated/vectors.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
// One for all fibers of a launch, which share a thread of the system, and one for each thread that launches.
#define __shared__ static thread_local
#define TROUPE_DYNAMIC_SHARED(name) unsigned char* const name = ::troupe::emulated::dynamic_shared()

// constinit: no guard is asked at each use.
extern thread_local constinit uint3 threadIdx;
extern thread_local constinit uint3 blockIdx;
extern thread_local constinit dim3 blockDim;
extern thread_local constinit dim3 gridDim;
inline constexpr int warpSize = 32;

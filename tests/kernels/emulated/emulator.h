#pragma once

// Runs our CUDA kernels on the CPU: tests of them need no GPU, and AddressSanitizer becomes their memory
// checker. A kernel's source is compiled by g++ as C++ with this folder first in the include path, so that
// <cuda_runtime.h>, <cuda_bf16.h>, <cuda_fp16.h>, <cublasLt.h> and "kernels/cuda/device/ptx.cuh" are the ones
// here; link cuda_emulator, which also brings the compiler's options (kernels look at one memory as several
// types).
//
// A launch runs the whole grid on the calling thread, before it returns as a rule: block after block, each
// CUDA thread a fiber that runs until it comes to a barrier or a warp collective, waits there for the others,
// or ends. Behaviour that the device leaves open is made to differ here, so that a test sees a kernel that
// relies on it:
//   - which thread and block goes first: set_order(). A kernel without races gives the same bits
//     in every order.
//   - memory that was never written: cudaMalloc's and dynamic shared memory are full of 0xFF, a NaN in
//     every float.
//   - when cp.async lands: not before the thread's own cp_async_wait; until then the place is full of 0xFF.
//   - a shuffle from a lane that is not in the mask: all bits set.
//   - when a stream's work is done, and pinned memory is read or written: at once, or when a
//     thread waits for it: set_late(). A thread that only asks has one launch or copy more done.
//   - when a dependent launch begins (programmatic stream serialization): its first block goes as far as it
//     gets before the launch before it runs at all, where both are known together (in a graph, or late).
//     Before it awaits that, it may use no barrier of hopper.h's.
// Wrong use ends the process with a message that names thread, block and place: a barrier or collective that
// others never come to, a lane named in a mask that has ended, rows and copies that are not aligned, a thread
// of a dependent launch that ends without having awaited the launch before it.
//
// Not seen: `__shared__` arrays of fixed size keep what the block before left in them, and only
// -fsanitize=bounds checks their indices; __threadfence does nothing; a thread that spins on memory (for
// another thread or block) hangs; a dependent launch begins before one launch, on a device before several
// where those let it.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/kernels/emulated/vectors.h"

namespace troupe::emulated {

enum class Order {
  kForward,   // threads and blocks by their index
  kReverse,   // the last first
  kShuffled,  // by chance, different for every block
};
// Applies to the launches from now on, on every thread.
void set_order(Order order, uint32_t seed = 0);

// Whether a stream's launches and copies happen only when it, or an event in it, is waited for. On the thread
// that waits. Off at first.
void set_late(bool late);

// Whether the device hangs: no stream's work gets done any more. A wait would be for ever, and ends the
// process with a message instead.
void set_hung(bool hung);

// Whether the driver refuses tensor maps (cuTensorMapEncodeTiled), though they are right.
void set_tensor_maps_refused(bool refused);

// The warpgroups of the block that ended last, in the order in which their first warps committed products.
std::vector<int> last_commits();

struct LaunchRecord {
  dim3 grid;
  dim3 block;
  size_t dynamic_shared_bytes = 0;
  uint64_t number = 0;    // counts the process's launches, from 1; 0: there was none
  uint64_t switches = 0;  // between fibers
  bool dependent = false;
};
// The launch, of any thread, that ended last. Of a kernel of cuBLASLt's (cublasLt.h) the number alone.
LaunchRecord last_launch();

// The host's calls that launching steps is made of, since the process began.
struct DriverCalls {
  uint64_t launches = 0;        // cudaLaunchKernelEx, captured ones too
  uint64_t products = 0;        // cublasLtMatmul, likewise
  uint64_t attributes = 0;      // cudaFuncSetAttribute
  uint64_t captures = 0;        // cudaStreamBeginCapture and its end
  uint64_t looks = 0;           // at a graph: its nodes, its edges, a node's type and attributes
  uint64_t updates = 0;         // cudaGraphExecUpdate
  uint64_t instantiations = 0;  // cudaGraphInstantiate
  uint64_t graph_launches = 0;  // cudaGraphLaunch
  uint64_t all() const {
    return launches + products + attributes + 2 * captures + looks + updates + instantiations +
           graph_launches;
  }
};
DriverCalls driver_calls();

// Kernels, of this source's own, that were launched or captured since forget_kernels(). A device loads a
// kernel's code at its first launch (CUDA_MODULE_LOADING), which takes long enough to delay a request.
uint64_t kernels_launched();
void forget_kernels();

// Reported by cudaGetDeviceProperties and cudaMemGetInfo; cudaMalloc refuses to go over the memory.
struct DeviceSize {
  int processors = 4;
  size_t memory_bytes = size_t{4} << 30;
  // Shared memory of a multiprocessor: 228 KB as Hopper's; A100's is 164 KB, Ada's 100 KB. A block may have
  // all but 1 KB of it.
  int shared_bytes = 228 << 10;
};
void set_device_size(const DeviceSize& size);

// The driver's release as CUDA counts them, how many devices it knows, and their compute capability's first
// number.
struct Driver {
  int version = 13000;
  int devices = 1;
  int major = 9;
};
void set_driver(const Driver& driver);

// The running block's: aligned to 1024 bytes, exactly as long as launched with. REQUIRES: called by a kernel.
unsigned char* dynamic_shared();

}  // namespace troupe::emulated

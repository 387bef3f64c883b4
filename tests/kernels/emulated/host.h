#pragma once

// Shared by the parts of the host's side.

#include "tests/kernels/emulated/emulator.h"
#include "tests/kernels/emulated/host_api.h"

namespace troupe::emulated {

// The limits of an H100 (CUDA programming guide, "Compute capabilities", 9.0).
inline constexpr int kSharedBytesOfAnyLaunch = 48 << 10;
inline constexpr int kReservedSharedBytes = 1024;  // of each block's
inline constexpr int kThreadsMax = 1024;
inline constexpr int kThreadsOfProcessor = 2048;
inline constexpr int kBlocksOfProcessor = 32;
int shared_bytes_of_processor();  // DeviceSize's

// A graph made executable takes some of the device's memory, as it does there; how much is not documented:
// serving engines report up to 28 MiB.
inline constexpr size_t kGraphBytes = size_t{8} << 20;
void take_graph_memory();
void give_graph_memory();

// A launch ended: it is the last_launch() from now on, with the next number.
void note_launch(LaunchRecord launch);

// One more of them.
void count_call(uint64_t DriverCalls::*which);

// Returns `error` and keeps it for this thread's cudaGetLastError.
cudaError_t noted(cudaError_t error);

}  // namespace troupe::emulated

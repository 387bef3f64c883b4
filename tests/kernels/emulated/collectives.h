#pragma once

// The base of device functions: the places where threads of a block wait for each other.

#include <array>
#include <cstdint>
#include <source_location>

namespace troupe::emulated {

inline constexpr int kLanes = 32;
using Place = std::source_location;
using Operands = std::array<void*, kLanes>;  // of each lane in the mask, on that lane's stack

// One kind of instruction that a warp executes together. `complete` is called once, when all lanes of the
// mask have come: it reads all operands and leaves each lane its result in its own.
struct Collective {
  const char* name;
  void (*complete)(const Operands& operands, uint32_t mask);
  bool anywhere = false;  // lanes may come to it at different lines of the source
};

// All threads of the block that have not ended.
void block_barrier(const Place& where);
// All lanes of `mask`, which holds the caller's.
void warp_collective(const Collective& collective, uint32_t mask, void* operand, const Place& where);

// Waits until the writes of the launches before this one are there (emulator.h).
void await_launch(const Place& where);

int lane_index();
// The lanes of the caller's warp that have not ended.
uint32_t live_lanes();

// Ends the process: `what`, and the thread and block that did it.
[[noreturn]] void fail_kernel(const char* what);
[[noreturn]] void fail_kernel(const char* what, const Place& where);

struct Shuffle {
  uint64_t value;
  uint64_t result;
  int argument;  // source lane, distance or lane mask
  int width;
};
struct Vote {
  bool predicate;
  uint32_t result;
};
struct Reduction {
  uint32_t value;
  uint32_t result;
};
extern const Collective kSyncWarp, kShuffle, kShuffleUp, kShuffleDown, kShuffleXor, kBallot, kAny, kAll;
extern const Collective kMatchAny;
extern const Collective kReduceAdd, kReduceMax, kReduceMin, kReduceMaxSigned, kReduceMinSigned;

}  // namespace troupe::emulated

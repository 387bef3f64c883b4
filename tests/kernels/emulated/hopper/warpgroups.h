#pragma once

// A warpgroup is held together by instructions that each of its four warps executes (`.aligned`; PTX ISA,
// "wgmma.mma_async", "setmaxnreg"), and the registers of a block, which its warps share out anew.
//
// Here the four need not meet: each one's instructions are compared, one by one, with what another of them
// came to.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "tests/kernels/emulated/collectives.h"
#include "tests/kernels/emulated/host.h"

namespace troupe::emulated {

inline constexpr int kWarps = kThreadsMax / kLanes;
inline constexpr int kWarpsOfGroup = 4;

struct AlignedInstruction {
  const char* name;
  Place where;
  uint64_t arguments[2] = {0, 0};  // that all threads give alike
};

// Each function ends the process where the warpgroup is not in step.
class Warpgroup {
 public:
  // A warp of it, 0 to 3, has come to its next instruction.
  void come(int warp, const AlignedInstruction& instruction);
  // The block has ended.
  void check_end() const;

 private:
  std::deque<AlignedInstruction> ahead_;  // that not all warps have come to; its first is number `done_`
  uint64_t done_ = 0;
  std::array<uint64_t, kWarpsOfGroup> counts_{};
};

// A block's registers: as many a thread as 65,536 allow where a multiprocessor has one such block, which is
// how kernels that share them out anew are compiled (__launch_bounds__(threads, 1)).
class RegisterPool {
 public:
  void reset(int threads);
  int of_warp(int warp) const { return of_warps_[static_cast<size_t>(warp)]; }
  // Whether there were enough left for the warp to have so many a thread.
  bool set(int warp, int registers);

 private:
  int left_ = 0;
  std::array<int, kWarps> of_warps_{};
};

void take_registers(int registers, const Place& where);
void give_registers(int registers, const Place& where);

}  // namespace troupe::emulated

#include "tests/kernels/emulated/collectives.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <limits>

namespace troupe::emulated {
namespace {

template <class T>
T& operand_of(const Operands& operands, int lane) {
  return *static_cast<T*>(operands[static_cast<size_t>(lane)]);
}

template <class Visit>
void for_each_lane(uint32_t mask, const Visit& visit) {
  for (; mask != 0; mask &= mask - 1) visit(std::countr_zero(mask));
}

// PTX's shfl: a lane outside of the segment gives the caller its own value. `source` maps the lane, its
// argument and the first lane of its segment to a lane.
template <int (*source)(int lane, int argument, int first, int width), bool from_below>
void exchange(const Operands& operands, uint32_t mask) {
  for_each_lane(mask, [&](int lane) {
    Shuffle& own = operand_of<Shuffle>(operands, lane);
    if (own.width < 1 || own.width > kLanes || !std::has_single_bit(static_cast<unsigned>(own.width))) {
      fail_kernel("a shuffle whose width is not a power of two up to 32");
    }
    const int first = lane & ~(own.width - 1);
    const int last = first + own.width - 1;
    int from = source(lane, own.argument, first, own.width);
    if (from_below ? from < first : from > last) from = lane;
    const bool known = from >= 0 && (mask >> from & 1) != 0;
    own.result = known ? operand_of<Shuffle>(operands, from).value : std::numeric_limits<uint64_t>::max();
  });
}

int from_lane(int, int argument, int first, int width) {
  return first + (argument & (width - 1));
}
int from_up(int lane, int argument, int, int) {
  return lane - argument;
}
int from_down(int lane, int argument, int, int) {
  return lane + argument;
}
int from_xor(int lane, int argument, int, int) {
  return lane ^ (argument & (kLanes - 1));
}

void ballot(const Operands& operands, uint32_t mask) {
  uint32_t votes = 0;
  for_each_lane(mask, [&](int lane) {
    if (operand_of<Vote>(operands, lane).predicate) votes |= 1u << lane;
  });
  for_each_lane(mask, [&](int lane) { operand_of<Vote>(operands, lane).result = votes; });
}

void match(const Operands& operands, uint32_t mask) {
  for_each_lane(mask, [&](int lane) {
    Reduction& own = operand_of<Reduction>(operands, lane);
    own.result = 0;
    for_each_lane(mask, [&](int other) {
      if (operand_of<Reduction>(operands, other).value == own.value) own.result |= 1u << other;
    });
  });
}

template <uint32_t (*combine)(uint32_t, uint32_t)>
void combine_all(const Operands& operands, uint32_t mask) {
  uint32_t total = operand_of<Reduction>(operands, std::countr_zero(mask)).value;
  for_each_lane(mask & (mask - 1),
                [&](int lane) { total = combine(total, operand_of<Reduction>(operands, lane).value); });
  for_each_lane(mask, [&](int lane) { operand_of<Reduction>(operands, lane).result = total; });
}

uint32_t add(uint32_t a, uint32_t b) {
  return a + b;
}
uint32_t larger(uint32_t a, uint32_t b) {
  return std::max(a, b);
}
uint32_t smaller(uint32_t a, uint32_t b) {
  return std::min(a, b);
}
uint32_t larger_signed(uint32_t a, uint32_t b) {
  return static_cast<int32_t>(a) < static_cast<int32_t>(b) ? b : a;
}
uint32_t smaller_signed(uint32_t a, uint32_t b) {
  return static_cast<int32_t>(a) < static_cast<int32_t>(b) ? a : b;
}

}  // namespace

const Collective kSyncWarp{"__syncwarp", [](const Operands&, uint32_t) {}, true};
const Collective kShuffle{"__shfl_sync", exchange<from_lane, false>};
const Collective kShuffleUp{"__shfl_up_sync", exchange<from_up, true>};
const Collective kShuffleDown{"__shfl_down_sync", exchange<from_down, false>};
const Collective kShuffleXor{"__shfl_xor_sync", exchange<from_xor, false>};
const Collective kBallot{"__ballot_sync", ballot};
const Collective kAny{"__any_sync", ballot};
const Collective kAll{"__all_sync", ballot};
const Collective kMatchAny{"__match_any_sync", match};
const Collective kReduceAdd{"__reduce_add_sync", combine_all<add>};
const Collective kReduceMax{"__reduce_max_sync", combine_all<larger>};
const Collective kReduceMin{"__reduce_min_sync", combine_all<smaller>};
const Collective kReduceMaxSigned{"__reduce_max_sync", combine_all<larger_signed>};
const Collective kReduceMinSigned{"__reduce_min_sync", combine_all<smaller_signed>};

}  // namespace troupe::emulated

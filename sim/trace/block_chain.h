#pragma once

// Block ids of synthetic text: cumulative, so that equal ids mean equal prefixes.

#include <cstdint>

#include "common/core/random.h"

namespace troupe::sim {

// A well-mixed hash of two values.
inline uint64_t mix(uint64_t a, uint64_t b) {
  return route::Random(a * 0x9e3779b97f4a7c15u ^ b).next();
}

// Many JSON readers keep whole numbers only up to 2^53.
inline constexpr uint64_t kIdMask = (uint64_t{1} << 53) - 1;

// A run of tokens with one origin. Equal (content, length): equal tokens.
struct Segment {
  uint64_t content = 0;
  int32_t tokens = 0;
};

// A position in a text: a hash of all before it, and its tokens.
struct TextEnd {
  uint64_t chained = 0x7f4a7c15;  // over all blocks: an id covers all before it
  int32_t tokens = 0;
};

// Appends a segment to a text: writes the ids of the blocks that it completes to ids[], where the text's
// first block is ids[0], and returns the new end. The result depends on the text before by `end` alone, so
// with the ends of a text's segments their ids can be made in any order, and a processor has several at once.
inline TextEnd append(TextEnd end, const Segment& segment, int32_t block_tokens, uint64_t* ids) {
  uint64_t* next = ids + end.tokens / block_tokens;
  const int32_t room = block_tokens - end.tokens % block_tokens;  // of the block begun
  for (int32_t offset = 0, taken = room; offset < segment.tokens; offset += taken, taken = block_tokens) {
    const bool completes = taken <= segment.tokens - offset;
    if (!completes) taken = segment.tokens - offset;
    // The part's place in its segment and its length are part of the content.
    end.chained = mix(mix(end.chained, segment.content),
                      (static_cast<uint64_t>(offset) << 32) | static_cast<uint32_t>(taken));
    if (completes) *next++ = end.chained & kIdMask;
  }
  end.tokens += segment.tokens;
  return end;
}

}  // namespace troupe::sim

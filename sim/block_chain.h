#pragma once

// The block ids of made-up text: cumulative, so that equal ids mean equal prefixes.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gateway/route/random.h"

namespace troupe::sim {

// A well-mixed value of two.
inline uint64_t mix(uint64_t a, uint64_t b) {
  return route::Random(a * 0x9e3779b97f4a7c15u ^ b).next();
}

// JSON readers elsewhere keep whole numbers only up to 2^53.
inline constexpr uint64_t kIdMask = (uint64_t{1} << 53) - 1;

// A run of tokens with one origin. Equal (content, length): equal tokens.
struct Segment {
  uint64_t content = 0;
  int32_t tokens = 0;
};

// Cumulative block ids of a text that grows at its end.
class Chain {
 public:
  explicit Chain(int32_t block_tokens) : block_tokens_(block_tokens) {}
  void clear() {
    ids_.clear();
    open_ = kRoot;
    open_tokens_ = 0;
    tokens_ = 0;
  }
  void append(const Segment& segment) {
    for (int32_t offset = 0; offset < segment.tokens;) {
      const int32_t taken = std::min(segment.tokens - offset, block_tokens_ - open_tokens_);
      // The part's place in its segment and its length are part of the content.
      open_ = mix(mix(open_, segment.content),
                  (static_cast<uint64_t>(offset) << 32) | static_cast<uint32_t>(taken));
      offset += taken;
      open_tokens_ += taken;
      if (open_tokens_ == block_tokens_) close();
    }
    tokens_ += segment.tokens;
  }
  int32_t tokens() const { return tokens_; }
  const std::vector<uint64_t>& full_ids() const { return ids_; }
  bool has_open() const { return open_tokens_ > 0; }
  uint64_t open_id() const { return open_ & kIdMask; }

 private:
  static constexpr uint64_t kRoot = 0x7f4a7c15;
  void close() {
    ids_.push_back(open_ & kIdMask);
    open_tokens_ = 0;
  }

  int32_t block_tokens_;
  std::vector<uint64_t> ids_;
  uint64_t open_ = kRoot;  // chained over all blocks: an id stands for all before it
  int32_t open_tokens_ = 0;
  int32_t tokens_ = 0;
};

}  // namespace troupe::sim

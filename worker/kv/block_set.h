#pragma once

// A set of KV blocks, one bit each: a walk over all of a cache's blocks takes 64 at a time, and the sets of a
// simulated fleet's many nodes stay in the processor's cache.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/kv/types.h"

namespace troupe {

// Holds blocks from 0 up to the count that it was made for.
class BlockSet {
 public:
  explicit BlockSet(int32_t block_count)
      : block_count_(block_count), words_((static_cast<size_t>(block_count) + 63) / 64) {}

  int32_t block_count() const { return block_count_; }
  bool contains(BlockId block) const { return (words_[word_of(block)] & bit_of(block)) != 0; }
  // Returns false if the block was there already.
  bool insert(BlockId block) {
    const bool is_new = !contains(block);
    words_[word_of(block)] |= bit_of(block);
    return is_new;
  }
  void erase(BlockId block) { words_[word_of(block)] &= ~bit_of(block); }
  // Erases [first, first + count), a word at a time.
  void erase(BlockId first, int32_t count) {
    for (const BlockId end = first + count; first < end;) {
      const auto place = static_cast<uint32_t>(first) % 64;
      const auto here = static_cast<uint32_t>(std::min<int64_t>(end - first, 64 - place));
      words_[word_of(first)] &= ~(~uint64_t{0} >> (64 - here) << place);
      first += static_cast<BlockId>(here);
    }
  }
  // Inserts `first` and all blocks behind it.
  void insert_from(BlockId first) {
    for (; first < block_count_ && first % 64 != 0; ++first) insert(first);
    for (; first + 64 <= block_count_; first += 64) words_[word_of(first)] = ~uint64_t{0};
    for (; first < block_count_; ++first) insert(first);
  }
  bool operator==(const BlockSet&) const = default;
  // Returns the least block that is in both sets or in neither; -1: there is none.
  BlockId not_in_exactly_one(const BlockSet& other) const {
    for (size_t i = 0; i < words_.size(); ++i) {
      const uint64_t wrong = ~(words_[i] ^ other.words_[i]);
      if (wrong == 0) continue;
      const auto block = static_cast<BlockId>(i * 64) + __builtin_ctzll(wrong);
      if (block < block_count_) return block;
    }
    return -1;
  }

 private:
  static size_t word_of(BlockId block) { return static_cast<size_t>(block) / 64; }
  static uint64_t bit_of(BlockId block) { return uint64_t{1} << static_cast<uint32_t>(block) % 64; }

  int32_t block_count_;
  std::vector<uint64_t> words_;
};

}  // namespace troupe

#pragma once

// A set of tokens: a list while it is small, else a bit each.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe::grammar {

class TokenSet {
 public:
  explicit TokenSet(size_t vocabulary_size = 0) : word_count_((vocabulary_size + 31) / 32) {}

  void add(int32_t token) {
    if (bits_.empty() && ids_.size() >= word_count_ / 2) spread();
    if (bits_.empty()) {
      ids_.push_back(token);
    } else {
      bits_[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
    }
  }
  void add(std::span<const int32_t> tokens) {
    for (const int32_t token : tokens) add(token);
  }
  // Adds those that are set in `bits`, which has a bit for every token.
  void add_bits(std::span<const uint32_t> bits) {
    if (bits_.empty()) spread();
    for (size_t i = 0; i < bits_.size(); ++i) bits_[i] |= bits[i];
  }
  void add(const TokenSet& other) {
    if (!other.bits_.empty()) return add_bits(other.bits_);
    add(std::span<const int32_t>(other.ids_));
  }
  // Sets the tokens' bits, and clears no other. REQUIRES: a bit for every token
  void set_in(std::span<uint32_t> bits) const {
    for (size_t i = 0; i < bits_.size(); ++i) bits[i] |= bits_[i];
    for (const int32_t token : ids_) bits[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
  }
  size_t memory_bytes() const { return sizeof(*this) + (ids_.capacity() + bits_.capacity()) * 4; }

 private:
  void spread() {
    bits_.assign(word_count_, 0);
    const std::vector<int32_t> ids = std::move(ids_);
    ids_.clear();
    for (const int32_t token : ids) bits_[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
  }

  size_t word_count_;
  std::vector<int32_t> ids_;    // in any order, some twice
  std::vector<uint32_t> bits_;  // if not empty, ids_ is
};

}  // namespace troupe::grammar

#include "worker/kv/block_pool.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "common/core/check.h"

// Its checks: a block in two places hands one request's KV to another. Better no answer than the wrong
// persona's.

namespace troupe {

BlockPool::BlockPool(int32_t total_count) : free_(total_count) {
  free_.insert_from(0);
}

BlockId BlockPool::allocate() {
  if (free_count() == 0) return -1;
  const BlockId block = free_list_.empty() ? first_new_++ : free_list_.back();
  if (!free_list_.empty()) free_list_.pop_back();
  free_.erase(block);
  return block;
}

void BlockPool::allocate(int32_t count, std::vector<BlockId>& out) {
  TROUPE_CHECK(count <= free_count(), std::to_string(count) + " blocks are not free");
  take_free(count, out);
}

void BlockPool::reserve(int32_t count) {
  TROUPE_CHECK(count <= free_count() && -count <= reserved_count_,
               std::to_string(count) + " blocks are not free, or not reserved");
  reserved_count_ += count;
}

void BlockPool::allocate_reserved(int32_t count, std::vector<BlockId>& out) {
  reserve(-count);
  take_free(count, out);
}

// The blocks used last are given first: their memory is warm.
void BlockPool::take_free(int32_t count, std::vector<BlockId>& out) {
  const size_t begin = out.size();
  const size_t listed = std::min(static_cast<size_t>(count), free_list_.size());
  out.resize(begin + static_cast<size_t>(count));
  BlockId* const taken = out.data() + begin;
  const BlockId* const list_end = free_list_.data() + free_list_.size();
  for (size_t i = 0; i < listed; ++i) {
    taken[i] = list_end[-1 - static_cast<std::ptrdiff_t>(i)];
    free_.erase(taken[i]);
  }
  free_list_.resize(free_list_.size() - listed);
  const int32_t fresh = count - static_cast<int32_t>(listed);
  std::iota(taken + listed, taken + count, first_new_);
  free_.erase(first_new_, fresh);
  first_new_ += fresh;
}

void BlockPool::release(BlockId block) {
  TROUPE_CHECK(!is_free(block), "block " + std::to_string(block) + " is freed twice");
  TROUPE_CHECK(used_count() > 0, "block " + std::to_string(block) + " is freed while cached");
  free_.insert(block);
  free_list_.push_back(block);
}

void BlockPool::add_cached(int32_t count) {
  TROUPE_CHECK(count <= used_count() && -count <= cached_count_,
               std::to_string(count) + " blocks are not there to be cached, or to be used");
  cached_count_ += count;
}

Status BlockPool::verify() const {
  BlockSet listed(total_count());
  for (BlockId block : free_list_) {
    if (block >= first_new_ || !listed.insert(block)) return absl::InternalError("the free list is wrong");
  }
  listed.insert_from(first_new_);
  if (listed != free_) return absl::InternalError("a free block is not in the free list");
  if (used_count() >= 0 && cached_count_ >= 0) return absl::OkStatus();
  return absl::InternalError("the block counters are wrong");
}

}  // namespace troupe

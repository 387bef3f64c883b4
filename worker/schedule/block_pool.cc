#include "worker/schedule/block_pool.h"

#include <cstdio>
#include <cstdlib>

namespace troupe {

namespace {

// A block in two places hands one request's KV to another: better no answer than the wrong persona's.
void require(bool condition, const char* what, int32_t number) {
  if (condition) return;
  std::fprintf(stderr, "BlockPool: %d: %s\n", number, what);
  std::abort();
}

}  // namespace

BlockPool::BlockPool(int32_t total_count) : free_(total_count) {
  free_.insert_from(0);
}

BlockId BlockPool::allocate() {
  if (free_count() == 0) return -1;
  return take_free();
}

void BlockPool::owe(int32_t count) {
  require(count <= free_count() && -count <= owed_count_, "so many blocks are not free, or not owed", count);
  owed_count_ += count;
}

BlockId BlockPool::allocate_owed() {
  owe(-1);
  return take_free();
}

BlockId BlockPool::take_free() {
  const BlockId block = free_list_.empty() ? first_new_++ : free_list_.back();
  if (!free_list_.empty()) free_list_.pop_back();
  free_.erase(block);
  return block;
}

void BlockPool::release(BlockId block) {
  require(!is_free(block), "this block is freed twice", block);
  require(used_count() > 0, "this block is freed while cached", block);
  free_.insert(block);
  free_list_.push_back(block);
}

void BlockPool::add_cached(int32_t count) {
  require(count <= used_count() && -count <= cached_count_,
          "so many blocks are not there to be cached, or to be used", count);
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

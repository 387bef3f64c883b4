#include "worker/schedule/block_pool.h"

#include <cstdio>
#include <cstdlib>

namespace troupe {

namespace {

// A wrong reference count hands one request's KV to another: better no answer than the wrong persona's.
void require(bool condition, const char* what, BlockId block) {
  if (condition) return;
  std::fprintf(stderr, "BlockPool: block %d: %s\n", block, what);
  std::abort();
}

}  // namespace

BlockPool::BlockPool(int32_t total_count) : entries_(static_cast<size_t>(total_count)) {
  free_list_.reserve(entries_.size());
  for (BlockId block = total_count - 1; block >= 0; --block) free_list_.push_back(block);
}

BlockId BlockPool::allocate() {
  if (free_list_.empty()) return -1;
  const BlockId block = free_list_.back();
  free_list_.pop_back();
  Entry& entry = entries_[static_cast<size_t>(block)];
  entry.free = false;
  entry.references = 1;
  ++used_count_;
  return block;
}

void BlockPool::add_reference(BlockId block) {
  Entry& entry = entries_[static_cast<size_t>(block)];
  require(!entry.free, "referenced while free", block);
  if (entry.references++ > 0) return;
  ++used_count_;
  if (entry.cached) --cached_count_;
}

int32_t BlockPool::drop_reference(BlockId block) {
  Entry& entry = entries_[static_cast<size_t>(block)];
  require(entry.references > 0, "dropped without a reference", block);
  if (--entry.references > 0) return entry.references;
  --used_count_;
  if (entry.cached) ++cached_count_;
  return 0;
}

void BlockPool::release(BlockId block) {
  Entry& entry = entries_[static_cast<size_t>(block)];
  require(!entry.free, "freed twice", block);
  require(entry.references == 0, "freed while referenced", block);
  require(!entry.cached, "freed while cached", block);
  entry.free = true;
  free_list_.push_back(block);
}

void BlockPool::mark_cached(BlockId block, bool cached) {
  Entry& entry = entries_[static_cast<size_t>(block)];
  require(!entry.free, "cached while free", block);
  require(entry.cached != cached, cached ? "cached twice" : "uncached twice", block);
  entry.cached = cached;
  if (entry.references == 0) cached_count_ += cached ? 1 : -1;
}

Status BlockPool::verify() const {
  int32_t free = 0, cached = 0, used = 0;
  for (const Entry& entry : entries_) {
    if (entry.free && (entry.references != 0 || entry.cached)) {
      return absl::InternalError("a free block is referenced or cached");
    }
    free += entry.free ? 1 : 0;
    used += entry.references > 0 ? 1 : 0;
    cached += entry.cached && entry.references == 0 ? 1 : 0;
  }
  std::vector<bool> listed(entries_.size());
  for (BlockId block : free_list_) {
    const size_t index = static_cast<size_t>(block);
    if (listed[index] || !entries_[index].free) return absl::InternalError("the free list is wrong");
    listed[index] = true;
  }
  if (free != free_count() || cached != cached_count_ || used != used_count_) {
    return absl::InternalError("the block counters are wrong");
  }
  if (free + cached + used != total_count()) {
    return absl::InternalError("a block belongs to nobody: free + cached + used != total");
  }
  return absl::OkStatus();
}

}  // namespace troupe

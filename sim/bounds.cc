#include "sim/bounds.h"

#include <algorithm>

namespace troupe::sim {

namespace {

// The last block of a prompt may be partial: it holds only its real tokens.
int32_t tokens_of_block(const TraceRequest& request, size_t index) {
  const int64_t begin = static_cast<int64_t>(index) * request.block_tokens;
  return static_cast<int32_t>(std::min<int64_t>(request.block_tokens, request.input_tokens - begin));
}

}  // namespace

PooledLru::Hits PooledLru::serve(const TraceRequest& request) {
  Hits hits;
  path_.clear();
  bool all_seen = true, all_pooled = true, seen = true;
  for (size_t i = 0; i < request.blocks.size(); ++i) {
    const int32_t tokens = tokens_of_block(request, i);
    const int32_t index = entry_of(request.blocks[i], tokens, seen);
    all_seen = all_seen && seen;
    all_pooled = all_pooled && entries_[static_cast<size_t>(index)].pooled;
    hits.infinite += all_seen ? tokens : 0;
    hits.pooled += all_pooled ? tokens : 0;
    path_.push_back(index);
  }
  for (const uint64_t id : request.output_blocks) path_.push_back(entry_of(id, request.block_tokens, seen));
  // Tail first, head last: a block is never older than what hangs on it.
  for (size_t i = path_.size(); i-- > 0;) touch(path_[i]);
  evict();
  return hits;
}

int32_t PooledLru::entry_of(uint64_t id, int32_t tokens, bool& seen) {
  const auto [found, inserted] = index_of_.try_emplace(id, static_cast<int32_t>(entries_.size()));
  seen = !inserted;
  if (inserted) entries_.push_back({.tokens = tokens});
  return found->second;
}

void PooledLru::touch(int32_t index) {
  Entry& entry = entries_[static_cast<size_t>(index)];
  if (entry.pooled) {
    unlink(index);
  } else {
    entry.pooled = true;
    tokens_ += entry.tokens;
  }
  push_newest(index);
}

void PooledLru::unlink(int32_t index) {
  const Entry& entry = entries_[static_cast<size_t>(index)];
  (entry.newer < 0 ? newest_ : entries_[static_cast<size_t>(entry.newer)].older) = entry.older;
  (entry.older < 0 ? oldest_ : entries_[static_cast<size_t>(entry.older)].newer) = entry.newer;
}

void PooledLru::push_newest(int32_t index) {
  Entry& entry = entries_[static_cast<size_t>(index)];
  entry.newer = kNone;
  entry.older = newest_;
  (newest_ < 0 ? oldest_ : entries_[static_cast<size_t>(newest_)].newer) = index;
  newest_ = index;
}

void PooledLru::evict() {
  while (capacity_tokens_ >= 0 && tokens_ > capacity_tokens_) {
    const int32_t index = oldest_;
    unlink(index);
    entries_[static_cast<size_t>(index)].pooled = false;
    tokens_ -= entries_[static_cast<size_t>(index)].tokens;
  }
}

}  // namespace troupe::sim

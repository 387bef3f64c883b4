#include "sim/fleet/oracle_caches.h"

#include <algorithm>

namespace troupe::sim {

// An id covers all before it, too: where the last is the same, all are.
size_t PooledLru::common_count(const Run& known, std::span<const uint64_t> ids) {
  if (known.size <= ids.size() && known.last == static_cast<uint32_t>(ids[known.size - 1])) return known.size;
  const size_t most = std::min<size_t>(known.size, ids.size());
  if (known.ids[most - 1] == static_cast<uint32_t>(ids[most - 1])) return most;
  const auto same = [](uint32_t a, uint64_t b) { return a == static_cast<uint32_t>(b); };
  return static_cast<size_t>(std::mismatch(known.ids, known.ids + most, ids.begin(),
                                           ids.begin() + static_cast<std::ptrdiff_t>(most), same)
                                 .first -
                             known.ids);
}

// Prefetches the memory that touch() will need.
void PooledLru::fetch_neighbours(int32_t index) const {
  const Run& touched = runs_[static_cast<size_t>(index)];
  for (const int32_t neighbour : {touched.newer, touched.older}) {
    if (neighbour >= 0) __builtin_prefetch(&runs_[static_cast<size_t>(neighbour)]);
  }
}

PooledLru::Hits PooledLru::serve(const TraceRequest& request) {
  path_.clear();
  Walk walk;
  const std::span<const uint64_t> blocks(request.blocks);
  const size_t full =
      std::min(blocks.size(), static_cast<size_t>(request.input_tokens / request.block_tokens));
  if (full < blocks.size()) partials_.prefetch(blocks[full]);
  follow(walk, blocks.first(full), request.block_tokens);
  // The last block of a prompt may be partial: it holds only its real tokens, and the answer completes
  // another one in its place.
  Hits hits = walk.hits;
  if (full < blocks.size())
    add_partial(hits, walk, blocks[full], request.input_tokens % request.block_tokens);
  follow(walk, request.output_blocks, request.block_tokens);
  // Tail first, head last: a block is never older than those that follow it.
  for (size_t i = path_.size(); i-- > 0;) touch(path_[i]);
  evict();
  return hits;
}

// A partly filled block has no successors: its id covers what is before it, and conversations that continue
// behind it stay one run.
void PooledLru::add_partial(Hits& hits, const Walk& before, uint64_t id, int32_t tokens) {
  const auto [found, added] = partials_.try_emplace(id, kNone);
  const bool is_pooled = found->second != kNone;
  if (!added && before.all_seen) hits.infinite += tokens;
  if (is_pooled && before.all_pooled) hits.pooled += tokens;
  if (!is_pooled) found->second = new_partial(id, tokens);
  path_.push_back(found->second);
}

int32_t PooledLru::new_partial(uint64_t id, int32_t tokens) {
  if (spare_runs_.empty()) {
    spare_runs_.push_back(static_cast<int32_t>(runs_.size()));
    runs_.emplace_back();
  }
  const int32_t index = spare_runs_.back();
  spare_runs_.pop_back();
  Run& partial = run(index);
  partial = Run{};
  partial.size = 1;
  partial.tokens = tokens;
  partial.is_partial = true;
  partial.partial_id = id;
  return index;
}

int32_t PooledLru::find_child(int32_t parent, uint32_t id) const {
  return by_key_.find(key_of(parent, id), [&](int32_t index) {
    const Run& child = runs_[static_cast<size_t>(index)];
    return child.parent == parent && child.first == id;
  });
}

void PooledLru::follow(Walk& walk, std::span<const uint64_t> ids, int32_t tokens) {
  while (!ids.empty()) {
    int32_t index = find_child(walk.run, static_cast<uint32_t>(ids[0]));
    if (index == kNone) {
      add(walk, ids, tokens);
      return;
    }
    const size_t count = common_count(run(index), ids);
    if (count < run(index).size) index = split(index, walk.run, count);
    const int32_t pooled = run(index).pooled;
    if (walk.all_seen) walk.hits.infinite += static_cast<int64_t>(count) * tokens;
    if (walk.all_pooled) walk.hits.pooled += int64_t{pooled} * tokens;
    walk.all_pooled = walk.all_pooled && static_cast<size_t>(pooled) == count;
    walk.run = index;
    path_.push_back(index);
    fetch_neighbours(index);
    ids = ids.subspan(count);
  }
}

// Adds unseen blocks behind the last run: at its end, where it has no successor.
void PooledLru::add(Walk& walk, std::span<const uint64_t> ids, int32_t tokens) {
  walk.all_seen = walk.all_pooled = false;
  const bool extends = walk.run != kNone && run(walk.run).grows && run(walk.run).tokens == tokens;
  if (!extends) {
    if (walk.run != kNone) run(walk.run).grows = false;
    const auto added = static_cast<int32_t>(runs_.size());
    Run& child = runs_.emplace_back();
    child.tokens = tokens;
    child.parent = walk.run;
    child.first = static_cast<uint32_t>(ids[0]);
    by_key_.add(key_of(walk.run, child.first), added);
    walk.run = added;
    path_.push_back(added);
  }
  append(run(walk.run), ids);
}

void PooledLru::append(Run& grown, std::span<const uint64_t> ids) {
  const uint32_t size = grown.size + static_cast<uint32_t>(ids.size());
  if (size > grown.room) {
    grown.room = grown.size == 0 ? size : size + size / 2;
    const uint32_t* const before = grown.ids;
    grown.ids = slice_of(grown.room);
    std::copy_n(before, grown.size, grown.ids);
  }
  for (const uint64_t id : ids) grown.ids[grown.size++] = static_cast<uint32_t>(id);
  grown.last = static_cast<uint32_t>(ids.back());
}

uint32_t* PooledLru::slice_of(uint32_t size) {
  constexpr uint32_t kTogether = 1 << 16;
  if (size > slice_room_) {
    slice_room_ = std::max(size, kTogether);
    next_slice_ = ids_.emplace_back(std::make_unique_for_overwrite<uint32_t[]>(slice_room_)).get();
  }
  slice_room_ -= size;
  next_slice_ += size;
  return next_slice_ - size;
}

// Makes the first `count` blocks of a run a run of their own and returns it; the rest keeps the index, by
// which its successors know it.
int32_t PooledLru::split(int32_t index, int32_t parent, size_t count) {
  const auto front_index = static_cast<int32_t>(runs_.size());
  Run& front = runs_.emplace_back();
  Run& back = run(index);
  const auto front_size = static_cast<uint32_t>(count);
  front.ids = back.ids;
  front.size = front.room = front_size;
  front.last = front.ids[front_size - 1];
  back.ids += front_size;
  back.size -= front_size;
  back.room -= front_size;
  front.tokens = back.tokens;
  front.grows = false;
  by_key_.remove(key_of(parent, back.first), index);
  front.parent = parent;
  front.first = back.first;
  by_key_.add(key_of(parent, front.first), front_index);
  back.parent = front_index;
  back.first = back.ids[0];
  by_key_.add(key_of(front_index, back.first), index);
  front.pooled = std::min(back.pooled, static_cast<int32_t>(count));
  if (front.pooled == 0) return front_index;
  back.pooled -= front.pooled;
  // The front is the newer part.
  front.newer = back.newer;
  front.older = index;
  (back.newer < 0 ? newest_ : run(back.newer).older) = front_index;
  back.newer = front_index;
  if (back.pooled == 0) unlink(index);
  return front_index;
}

void PooledLru::touch(int32_t index) {
  Run& touched = run(index);
  if (touched.pooled > 0) unlink(index);
  const auto count = static_cast<int32_t>(touched.size);
  tokens_ += int64_t{count - touched.pooled} * touched.tokens;
  touched.pooled = count;
  push_newest(index);
}

void PooledLru::unlink(int32_t index) {
  const Run& gone = run(index);
  (gone.newer < 0 ? newest_ : run(gone.newer).older) = gone.older;
  (gone.older < 0 ? oldest_ : run(gone.older).newer) = gone.newer;
}

void PooledLru::push_newest(int32_t index) {
  Run& added = run(index);
  added.newer = kNone;
  added.older = newest_;
  (newest_ < 0 ? oldest_ : run(newest_).newer) = index;
  newest_ = index;
}

void PooledLru::evict() {
  while (capacity_tokens_ >= 0 && tokens_ > capacity_tokens_) {
    Run& last = run(oldest_);
    const int64_t wanted = (tokens_ - capacity_tokens_ + last.tokens - 1) / last.tokens;
    const auto count = static_cast<int32_t>(std::min<int64_t>(wanted, last.pooled));
    last.pooled -= count;
    tokens_ -= int64_t{count} * last.tokens;
    if (last.pooled > 0) continue;
    const int32_t gone = oldest_;
    unlink(gone);
    if (!last.is_partial) continue;
    partials_[last.partial_id] = kNone;
    spare_runs_.push_back(gone);
  }
}

}  // namespace troupe::sim

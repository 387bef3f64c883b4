#include "worker/kv/residency.h"

#include <algorithm>

namespace troupe {

Residency::Residency(int32_t block_size, int32_t block_count)
    : block_size_(block_size), blocks_max_(static_cast<size_t>(block_count)), found_blocks_(block_count) {}

int32_t Residency::find_or_add(const Key& key) {
  const auto [found, added] = by_name_.try_emplace(key, 0);
  if (!added) return found->second;
  if (free_holders_.empty()) {
    found->second = static_cast<int32_t>(holders_.size());
    holders_.emplace_back();
  } else {
    found->second = free_holders_.back();
    free_holders_.pop_back();
  }
  holders_[static_cast<size_t>(found->second)] = Holder{.key = key};
  set_count_ += key.kind == HolderKind::kSet ? 1 : 0;
  return found->second;
}

void Residency::mark_changed(int32_t holder) {
  Holder& h = holders_[static_cast<size_t>(holder)];
  if (h.changed) return;
  h.changed = true;
  changed_.push_back(holder);
}

Residency::Extent Residency::cached(Range range, HolderKind kind, Hash128 name, Extent before) {
  if (name.is_zero()) return {};
  // A holder that has a cached block exists.
  const Key key{kind, name};
  const bool same = before.holder >= 0 && holders_[static_cast<size_t>(before.holder)].key == key;
  const int32_t holder = same ? before.holder : find_or_add(key);
  Holder& h = holders_[static_cast<size_t>(holder)];
  if (h.block_count == 0 || range.index <= h.tip) {
    h.generation += 1;
    h.branch_begin = range.index;
  }
  h.tip = range.index + range.count - 1;
  h.block_count += range.count;
  mark_changed(holder);
  return {holder, h.generation};
}

Residency::Extent Residency::cached_each(int32_t index, std::span<const Hash128> names) {
  for (const Hash128& name : names) cached({index++, 1}, HolderKind::kSession, name);
  return {kEach, 0};
}

void Residency::found(BlockId block, int32_t index, Hash128 set) {
  if (set.is_zero()) return;
  const Key key{HolderKind::kSet, set};
  const auto known = by_name_.find(key);
  if (known != by_name_.end() && holders_[static_cast<size_t>(known->second)].deepest() >= index) return;
  if (finder_count_ >= blocks_max_) return;
  const int32_t holder = find_or_add(key);
  forget_found(holder);
  Holder& h = holders_[static_cast<size_t>(holder)];
  h.found_block = block;
  h.found_tip = index;
  h.next_finder = found_blocks_.contains(block) ? first_finders_.find(block)->second : kNone;
  if (h.next_finder != kNone) holders_[static_cast<size_t>(h.next_finder)].previous_finder = holder;
  set_first_finder(block, holder);
  ++finder_count_;
  mark_changed(holder);
}

void Residency::forget_found(int32_t holder) {
  Holder& h = holders_[static_cast<size_t>(holder)];
  if (h.found_block < 0) return;
  if (h.next_finder != kNone)
    holders_[static_cast<size_t>(h.next_finder)].previous_finder = h.previous_finder;
  if (h.previous_finder != kNone) {
    holders_[static_cast<size_t>(h.previous_finder)].next_finder = h.next_finder;
  } else {
    set_first_finder(h.found_block, h.next_finder);
  }
  h.found_block = h.found_tip = -1;
  h.next_finder = h.previous_finder = kNone;
  --finder_count_;
  mark_changed(holder);
}

void Residency::set_first_finder(BlockId block, int32_t holder) {
  if (holder == kNone) {
    found_blocks_.erase(block);
    first_finders_.erase(block);
  } else {
    found_blocks_.insert(block);
    first_finders_[block] = holder;
  }
}

void Residency::pinned(Hash128 set, int32_t more) {
  if (set.is_zero()) return;
  const int32_t holder = find_or_add({HolderKind::kSet, set});
  holders_[static_cast<size_t>(holder)].pins += more;
  mark_changed(holder);
}

void Residency::evicted(const Gone& gone) {
  for (size_t i = gone.blocks.size(); i-- > 0 && finder_count_ > 0;) {
    const BlockId block = gone.blocks[i];
    while (found_blocks_.contains(block)) forget_found(first_finders_.find(block)->second);
  }
  if (gone.extent.holder == kNone) return;
  if (gone.extent.holder != kEach) {
    evicted_of(gone.extent, {gone.index, static_cast<int32_t>(gone.blocks.size())});
    return;
  }
  for (size_t i = gone.names.size(); i-- > 0;) {
    const auto found = by_name_.find(Key{HolderKind::kSession, gone.names[i]});
    const int32_t holder = found->second;
    evicted_of({holder, holders_[static_cast<size_t>(holder)].generation},
               {gone.index + static_cast<int32_t>(i), 1});
  }
}

void Residency::evicted_of(Extent extent, Range range) {
  Holder& h = holders_[static_cast<size_t>(extent.holder)];
  h.block_count -= range.count;
  // An older branch's blocks beside or below the current branch say nothing of it; those before its begin are
  // its trunk, which goes only after the branch itself.
  const bool on_branch = extent.generation == h.generation || range.index < h.branch_begin;
  if (on_branch && range.index <= h.tip) {
    h.tip = range.index - 1;
    mark_changed(extent.holder);
  }
  if (h.block_count == 0 && h.tip >= 0) {
    h.tip = -1;
    mark_changed(extent.holder);
  }
  drop_if_empty(extent.holder);
}

// Forgets a holder whose end was published, or that was never published.
void Residency::drop_if_empty(int32_t holder) {
  const Holder& h = holders_[static_cast<size_t>(holder)];
  if (h.block_count > 0 || h.found_block >= 0 || h.pins > 0 || h.changed) return;
  set_count_ -= h.key.kind == HolderKind::kSet ? 1 : 0;
  by_name_.erase(h.key);
  free_holders_.push_back(holder);
}

void Residency::take_changes(std::vector<Resident>& out) {
  for (const int32_t holder : changed_) {
    Holder& h = holders_[static_cast<size_t>(holder)];
    h.changed = false;
    const int32_t tip = h.deepest();
    const bool pinned = h.pins > 0;
    if (tip != h.published_tip || pinned != h.published_pinned) {
      out.push_back({h.key.kind, h.key.name, tokens_of(tip), tip >= h.published_tip, pinned});
      h.published_tip = tip;
      h.published_pinned = pinned;
    }
    drop_if_empty(holder);
  }
  changed_.clear();
}

void Residency::snapshot(std::vector<Resident>& out) const {
  const size_t begin = out.size();
  for (const auto& [key, holder] : by_name_) {
    const Holder& h = holders_[static_cast<size_t>(holder)];
    if (h.deepest() >= 0) out.push_back({key.kind, key.name, tokens_of(h.deepest()), true, h.pins > 0});
  }
  // Hash maps have no order worth showing.
  std::sort(out.begin() + static_cast<std::ptrdiff_t>(begin), out.end(),
            [](const Resident& a, const Resident& b) {
              return a.kind != b.kind ? a.kind < b.kind : a.name < b.name;
            });
}

int64_t Residency::tokens(HolderKind kind, Hash128 name) const {
  const auto found = by_name_.find(Key{kind, name});
  return found == by_name_.end() ? 0 : tokens_of(holders_[static_cast<size_t>(found->second)].deepest());
}

}  // namespace troupe

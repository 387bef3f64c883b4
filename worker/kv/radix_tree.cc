#include "worker/kv/radix_tree.h"

#include <algorithm>
#include <string>

namespace troupe {

namespace {

constexpr uint32_t kTailIdsMax = (1u << 26) - 1;  // far more than a block holds

// Appends with room for what usually follows, but not the half that doubling leaves empty: runs are most of
// the memory of a simulated fleet's node.
template <typename T>
void append_to(std::vector<T>& to, std::span<const T> more) {
  const size_t size = to.size() + more.size();
  if (size > to.capacity()) to.reserve(size + size / 8 + 4);
  to.insert(to.end(), more.begin(), more.end());
}

}  // namespace

RadixTree::RadixTree(int32_t block_count, int32_t block_size)
    : block_size_(static_cast<size_t>(block_size)), blocks_max_(static_cast<size_t>(block_count)) {}

std::span<const TokenId> RadixTree::ids_of(RadixNodeId id, int32_t index) const {
  const RadixNode& r = run(id);
  if (!r.has_ids) return {};
  const size_t begin = static_cast<size_t>(r.blocks[static_cast<size_t>(index)]) * block_size_;
  return {ids_.data() + begin, r.is_tail() ? static_cast<size_t>(r.tail_id_count) : block_size_};
}

RadixNodeId RadixTree::find_child(RadixNodeId parent, Hash128 hash) const {
  if (parent >= 0 && run(parent).is_leaf()) return -1;
  return by_first_hash_.find(hash, [&](RadixNodeId id) {
    const RadixNode& r = run(id);
    return r.first_hash == hash && (r.parent == parent || (r.parent < 0 && parent < 0));
  });
}

RadixNodeId RadixTree::first_child_of(RadixNodeId parent, Hash128 root) const {
  if (parent >= 0) return run(parent).first_child;
  const auto it = root_by_name_.find(root);
  return it == root_by_name_.end() ? -1 : roots_[static_cast<size_t>(it->second)].first_child;
}

int32_t RadixTree::find_or_add_root(Hash128 name) {
  const auto [found, added] = root_by_name_.try_emplace(name, static_cast<int32_t>(roots_.size()));
  if (!added) return found->second;
  if (free_roots_.empty()) {
    roots_.emplace_back();
  } else {
    found->second = free_roots_.back();
    free_roots_.pop_back();
  }
  roots_[static_cast<size_t>(found->second)] = {name, -1};
  return found->second;
}

RadixNodeId RadixTree::new_run() {
  if (free_runs_.empty()) {
    runs_.emplace_back();
    return id_end() - 1;
  }
  const RadixNodeId id = free_runs_.back();
  free_runs_.pop_back();
  return id;
}

size_t RadixTree::common_count(const RadixNode& r, std::span<const Hash128> hashes) const {
  const size_t most = std::min(r.blocks.size(), hashes.size());
  size_t count = 0;
  while (count < most && hash_of(r, count) == hashes[count]) ++count;
  return count;
}

void RadixTree::last_hashes(const RadixNode& r, std::span<Hash128> out) const {
  const size_t begin = r.blocks.size() - out.size();
  for (size_t i = 0; i < out.size(); ++i) out[i] = hash_of(r, begin + i);
}

void RadixTree::store_hashes(const Blocks& blocks) {
  if (blocks.hashes.empty()) return;
  // Blocks come into use one after the other: so does this memory.
  const BlockId last = *std::max_element(blocks.blocks.begin(), blocks.blocks.end());
  if (hashes_.capacity() == 0) hashes_.reserve(blocks_max_);
  if (static_cast<size_t>(last) >= hashes_.size()) hashes_.resize(static_cast<size_t>(last) + 1);
  for (size_t i = 0; i < blocks.blocks.size(); ++i)
    hashes_[static_cast<size_t>(blocks.blocks[i])] = blocks.hashes[i];
}

// Memory for ids only where there are any.
void RadixTree::store(const Blocks& blocks) {
  store_hashes(blocks);
  if (blocks.ids.empty()) return;
  if (ids_.empty()) ids_.resize(blocks_max_ * block_size_);
  for (size_t i = 0; i < blocks.blocks.size(); ++i) {
    const auto ids = blocks.ids.subspan(i * block_size_);
    std::copy_n(
        ids.begin(), std::min(ids.size(), block_size_),
        ids_.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(blocks.blocks[i]) * block_size_));
  }
}

RadixNodeId RadixTree::add(RadixNodeId parent, Hash128 root, const Blocks& blocks) {
  const RadixNodeId id = new_run();
  RadixNode& r = run(id);
  r.parent = parent >= 0 ? parent : as_parent(find_or_add_root(root));
  r.depth = parent >= 0 ? run(parent).depth + run(parent).count() : 0;
  append_to(r.blocks, blocks.blocks);
  store(blocks);
  r.has_ids = !blocks.ids.empty();
  if (blocks.hashes.empty()) {
    r.tail_id_count = static_cast<uint32_t>(blocks.ids.size()) & kTailIdsMax;
  } else {
    r.first_hash = blocks.hashes.front();
    r.last_hash = blocks.hashes.back();
  }
  r.corrupt = parent >= 0 && run(parent).corrupt;
  if (!r.is_tail() && !r.corrupt) by_first_hash_.add(r.first_hash, id);
  RadixNodeId& first = first_sibling(r);
  r.next_sibling = first;
  if (first >= 0) run(first).previous_sibling = id;
  first = id;
  block_count_ += r.count();
  return id;
}

void RadixTree::append(RadixNodeId id, const Blocks& blocks) {
  RadixNode& r = run(id);
  append_to(r.blocks, blocks.blocks);
  r.last_hash = blocks.hashes.back();
  store(blocks);
  r.has_ids = r.has_ids && !blocks.ids.empty();
  r.trust = 0;
  block_count_ += static_cast<int32_t>(blocks.blocks.size());
}

RadixNodeId RadixTree::split(RadixNodeId id, int32_t count) {
  const RadixNodeId front_id = new_run();
  RadixNode& front = run(front_id);
  RadixNode& back = run(id);
  by_first_hash_.remove(back.first_hash, id);
  front.blocks.assign(back.blocks.begin(), back.blocks.begin() + count);
  back.blocks.erase(back.blocks.begin(), back.blocks.begin() + count);
  front.first_hash = back.first_hash;
  front.last_hash = hash_of(front, front.blocks.size() - 1);
  back.first_hash = hash_of(back, 0);
  by_first_hash_.add(front.first_hash, front_id);
  by_first_hash_.add(back.first_hash, id);
  front.references = back.references;
  front.pins = back.pins;
  front.planned = back.planned;
  front.has_ids = back.has_ids;
  front.trust = back.trust;
  front.depth = back.depth;
  front.use = back.use;
  front.extent = back.extent;
  // In the list where it was.
  front.parent = back.parent;
  front.previous_sibling = back.previous_sibling;
  front.next_sibling = back.next_sibling;
  if (front.next_sibling >= 0) run(front.next_sibling).previous_sibling = front_id;
  (front.previous_sibling >= 0 ? run(front.previous_sibling).next_sibling : first_sibling(front)) = front_id;
  front.first_child = id;
  back.parent = front_id;
  back.depth += count;
  back.previous_sibling = back.next_sibling = -1;
  return front_id;
}

void RadixTree::mark_corrupt(RadixNodeId id) {
  RadixNode& r = run(id);
  if (!r.is_tail()) by_first_hash_.remove(r.first_hash, id);
  r.corrupt = true;
}

void RadixTree::cut(RadixNodeId id, int32_t count) {
  RadixNode& r = run(id);
  block_count_ -= count;
  if (count < r.count()) {
    r.blocks.resize(r.blocks.size() - static_cast<size_t>(count));
    r.last_hash = hash_of(r, r.blocks.size() - 1);
    return;
  }
  if (r.next_sibling >= 0) run(r.next_sibling).previous_sibling = r.previous_sibling;
  if (r.previous_sibling >= 0) {
    run(r.previous_sibling).next_sibling = r.next_sibling;
  } else {
    first_sibling(r) = r.next_sibling;
    if (r.parent < 0 && r.next_sibling < 0) {
      root_by_name_.erase(root_of(r).name);
      free_roots_.push_back(-1 - r.parent);
    }
  }
  if (!r.is_tail() && !r.corrupt) by_first_hash_.remove(r.first_hash, id);
  r = RadixNode{};
  free_runs_.push_back(id);
}

Status RadixTree::verify_run(RadixNodeId id) const {
  const RadixNode& r = run(id);
  const auto wrong = [id](const char* what) {
    return absl::InternalError("run " + std::to_string(id) + " of cached blocks " + what);
  };
  if (!r.is_tail() && (find_child(r.parent, r.first_hash) == id) == r.corrupt) {
    return wrong(r.corrupt ? "is corrupt and found" : "is not found by its hash");
  }
  if (r.corrupt && r.references == 0) return wrong("is corrupt and has no holder");
  if (!r.is_tail() && (r.first_hash != hash_of(r, 0) || r.last_hash != hash_of(r, r.blocks.size() - 1))) {
    return wrong("knows its first or last hash wrongly");
  }
  if (r.is_tail() &&
      (!r.is_leaf() || r.count() != 1 || static_cast<size_t>(r.tail_id_count) >= block_size_)) {
    return wrong("is a tail with children, or not one block partly filled");
  }
  if (r.parent < 0) return r.depth == 0 ? absl::OkStatus() : wrong("begins at a root, but not with block 0");
  const RadixNode& parent = run(r.parent);
  if (parent.blocks.empty()) return wrong("hangs on nothing");
  if (r.depth != parent.depth + parent.count()) return wrong("does not begin where its parent ends");
  if (r.references > 0 && parent.references == 0) return wrong("is held but its parent is not");
  if (parent.corrupt && !r.corrupt) return wrong("hangs on a corrupt one");
  return absl::OkStatus();
}

Status RadixTree::verify_children(RadixNodeId parent, RadixNodeId first_child, int32_t& listed_count) const {
  for (RadixNodeId child = first_child, before = -1; child >= 0; child = run(child).next_sibling) {
    const RadixNode& r = run(child);
    if (r.parent != parent || r.previous_sibling != before || r.blocks.empty()) {
      return absl::InternalError("a list of runs is broken at " + std::to_string(child));
    }
    ++listed_count;
    before = child;
  }
  return absl::OkStatus();
}

Status RadixTree::verify() const {
  int32_t run_count = 0, listed_count = 0, unnamed_count = 0, block_count = 0;
  for (RadixNodeId id = 0; id < id_end(); ++id) {
    if (run(id).blocks.empty()) continue;
    ++run_count;
    unnamed_count += run(id).is_tail() || run(id).corrupt;
    block_count += run(id).count();
    TROUPE_RETURN_IF_ERROR(verify_run(id));
    TROUPE_RETURN_IF_ERROR(verify_children(id, run(id).first_child, listed_count));
  }
  for (const auto& [name, root] : root_by_name_) {
    const RadixNodeId first = roots_[static_cast<size_t>(root)].first_child;
    if (first < 0) return absl::InternalError("a root of cached blocks has none");
    TROUPE_RETURN_IF_ERROR(verify_children(as_parent(root), first, listed_count));
  }
  if (run_count != listed_count || block_count != block_count_ ||
      static_cast<size_t>(run_count - unnamed_count) != by_first_hash_.size() ||
      static_cast<size_t>(run_count) + free_runs_.size() != runs_.size() ||
      root_by_name_.size() + free_roots_.size() != roots_.size()) {
    return absl::InternalError("the tree of cached blocks has lost count of its runs, blocks or roots");
  }
  return absl::OkStatus();
}

}  // namespace troupe

#include "worker/schedule/block_tree.h"

#include <algorithm>
#include <array>
#include <string>

namespace troupe {

BlockTree::BlockTree(int32_t block_count, int32_t block_size)
    : block_size_(static_cast<size_t>(block_size)),
      nodes_(static_cast<size_t>(block_count)),
      by_hash_(block_count) {}

std::span<const TokenId> BlockTree::ids_of(BlockId block) const {
  return {ids_.data() + static_cast<size_t>(block) * block_size_, static_cast<size_t>(node(block).id_count)};
}

BlockId BlockTree::first_child_of(Hash128 parent) const {
  const BlockId block = find(parent);
  if (block >= 0) return node(block).first_child;
  const auto it = root_by_name_.find(parent);
  return it == root_by_name_.end() ? -1 : roots_[static_cast<size_t>(it->second)].first_child;
}

int32_t BlockTree::find_or_add_root(Hash128 name) {
  const auto [found, added] = root_by_name_.try_emplace(name, static_cast<int32_t>(roots_.size()));
  if (!added) return found->second;
  if (free_roots_.empty()) {
    roots_.emplace_back();
  } else {
    found->second = free_roots_.back();
    free_roots_.pop_back();
  }
  roots_[static_cast<size_t>(found->second)].name = name;
  return found->second;
}

void BlockTree::add(const NewBlock& block) {
  BlockNode& n = node(block.block);
  n = BlockNode{};
  n.hash = block.hash;
  n.parent = block.parent_block >= 0 ? block.parent_block : find(block.parent);
  n.depth = n.parent >= 0 ? node(n.parent).depth + 1 : 0;
  if (n.parent < 0) n.parent = as_parent(find_or_add_root(block.parent));
  n.id_count = static_cast<uint32_t>(block.ids.size()) & 0xfffff;
  // Memory for ids only where there are any.
  if (!block.ids.empty() && ids_.empty()) ids_.resize(nodes_.size() * block_size_);
  std::copy(block.ids.begin(), block.ids.end(), ids_.data() + static_cast<size_t>(block.block) * block_size_);
  if (!n.is_tail()) by_hash_.add(n.hash, block.block);
  BlockId& first = first_sibling(n);
  n.next_sibling = first;
  if (first >= 0) node(first).previous_sibling = block.block;
  first = block.block;
  ++size_;
}

void BlockTree::remove(BlockId block) {
  const BlockNode& n = node(block);
  if (n.next_sibling >= 0) node(n.next_sibling).previous_sibling = n.previous_sibling;
  if (n.previous_sibling >= 0) {
    node(n.previous_sibling).next_sibling = n.next_sibling;
  } else {
    first_sibling(n) = n.next_sibling;
    if (n.parent < 0 && n.next_sibling < 0) {
      root_by_name_.erase(root_of(n).name);
      free_roots_.push_back(-1 - n.parent);
    }
  }
  if (!n.is_tail()) by_hash_.remove(n.hash, block);
  --size_;
}

int32_t BlockTree::find_leading(std::span<const Hash128> hashes, int32_t guess) const {
  auto low = int32_t{0}, high = static_cast<int32_t>(hashes.size());  // so many are held; so many at most
  const auto holds = [&](int32_t index) { return holds_at(hashes[static_cast<size_t>(index)], index); };
  if (guess > 0 && guess <= high) {
    if (!holds(guess - 1)) {
      high = guess - 1;
    } else {
      low = guess;
      if (low < high && !holds(low)) return low;
    }
  }
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    if (holds(middle)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// By the links to parents from the last one on. A link must come from memory before the next can be asked
// for, so the path is walked in several parts side by side.
void BlockTree::find_path(std::span<const Hash128> hashes, std::vector<BlockId>& out) const {
  constexpr size_t kParts = 8;
  out.resize(hashes.size());
  if (hashes.empty()) return;
  size_t length = (hashes.size() + kParts - 1) / kParts;
  size_t parts = (hashes.size() + length - 1) / length;
  std::array<BlockId, kParts> at{};
  const auto end_of = [&](size_t part) { return std::min((part + 1) * length, hashes.size()); };
  for (size_t part = parts; part-- > 0;) {
    at[part] = find(hashes[end_of(part) - 1]);
    if (at[part] >= 0 && node(at[part]).depth == static_cast<int32_t>(end_of(part)) - 1) continue;
    // Not a chain after all: a trace that uses an id for two prefixes. What its last block hangs on is held.
    at[0] = find(hashes.back());
    length = hashes.size();
    parts = 1;
    break;
  }
  for (size_t step = 0; step < length; ++step) {
    for (size_t part = 0; part < parts; ++part) {
      if (end_of(part) - part * length <= step) continue;
      out[end_of(part) - 1 - step] = at[part];
      at[part] = node(at[part]).parent;
    }
  }
}

Status BlockTree::verify_node(BlockId block, const BlockPool& pool) const {
  const BlockNode& n = node(block);
  const auto wrong = [block](const char* what) {
    return absl::InternalError("cached block " + std::to_string(block) + " " + what);
  };
  if (!n.is_tail() && find(n.hash) != block) return wrong("is not the one its hash names");
  if (n.is_tail() && (!n.is_leaf() || n.id_count >= block_size_)) {
    return wrong("is a tail with children, or full");
  }
  if (n.parent >= 0 && !pool.is_cached(n.parent)) return wrong("has a parent that is not cached");
  if (n.depth != (n.parent >= 0 ? node(n.parent).depth + 1 : 0))
    return wrong("has not its parent's depth + 1");
  if (pool.reference_count(block) > 0 && n.parent >= 0 && pool.reference_count(n.parent) == 0) {
    return wrong("is in use but its parent is not");
  }
  for (BlockId child = n.first_child, before = -1; child >= 0; child = node(child).next_sibling) {
    if (node(child).parent != block || node(child).previous_sibling != before || !pool.is_cached(child)) {
      return wrong("has a broken list of children");
    }
    before = child;
  }
  return absl::OkStatus();
}

Status BlockTree::verify(const BlockPool& pool) const {
  int32_t cached_count = 0, parentless_count = 0, listed_count = 0;
  for (BlockId block = 0; block < pool.total_count(); ++block) {
    if (!pool.is_cached(block)) continue;
    ++cached_count;
    parentless_count += node(block).parent < 0;
    TROUPE_RETURN_IF_ERROR(verify_node(block, pool));
    for (BlockId child = node(block).first_child; child >= 0; child = node(child).next_sibling)
      ++listed_count;
  }
  if (cached_count != size_ || listed_count + parentless_count != cached_count) {
    return absl::InternalError("the prefix cache has lost count of its blocks");
  }
  return verify_roots(pool, parentless_count);
}

Status BlockTree::verify_roots(const BlockPool& pool, int32_t parentless_count) const {
  int32_t listed_count = 0;
  for (const auto& [name, root] : root_by_name_) {
    BlockId child = roots_[static_cast<size_t>(root)].first_child;
    for (; child >= 0 && listed_count <= parentless_count; child = node(child).next_sibling) {
      ++listed_count;
      if (node(child).parent != as_parent(root) || !pool.is_cached(child)) {
        return absl::InternalError("block " + std::to_string(child) + " is in a list of roots by mistake");
      }
    }
  }
  if (listed_count != parentless_count || root_by_name_.size() + free_roots_.size() != roots_.size()) {
    return absl::InternalError("the prefix cache has lost count of its roots");
  }
  return absl::OkStatus();
}

}  // namespace troupe

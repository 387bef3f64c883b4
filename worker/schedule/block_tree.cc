#include "worker/schedule/block_tree.h"

#include <algorithm>
#include <string>

namespace troupe {

BlockTree::BlockTree(int32_t block_count, int32_t block_size)
    : block_size_(static_cast<size_t>(block_size)), nodes_(static_cast<size_t>(block_count)) {}

std::span<const TokenId> BlockTree::ids_of(BlockId block) const {
  return {ids_.data() + static_cast<size_t>(block) * block_size_, static_cast<size_t>(node(block).id_count)};
}

BlockId BlockTree::find(Hash128 hash) const {
  const auto it = by_hash_.find(hash);
  return it == by_hash_.end() ? -1 : it->second;
}

BlockId BlockTree::first_child_of(Hash128 parent) const {
  const BlockId block = find(parent);
  if (block >= 0) return node(block).first_child;
  const auto it = roots_.find(parent);
  return it == roots_.end() ? -1 : it->second;
}

BlockId& BlockTree::first_sibling(const BlockNode& n) {
  return n.parent >= 0 ? node(n.parent).first_child : roots_[n.parent_hash];
}

void BlockTree::add(BlockId block, Hash128 hash, Hash128 parent, std::span<const TokenId> ids) {
  BlockNode& n = node(block);
  n = BlockNode{};
  n.hash = hash;
  n.parent_hash = parent;
  n.parent = find(parent);
  n.id_count = static_cast<int32_t>(ids.size());
  // Memory for ids only where there are any.
  if (!ids.empty() && ids_.empty()) ids_.resize(nodes_.size() * block_size_);
  std::copy(ids.begin(), ids.end(), ids_.data() + static_cast<size_t>(block) * block_size_);
  if (!n.is_tail()) by_hash_[hash] = block;
  if (n.parent < 0) roots_.try_emplace(n.parent_hash, -1);
  BlockId& first = first_sibling(n);
  n.next_sibling = first;
  if (first >= 0) node(first).previous_sibling = block;
  first = block;
  if (n.parent >= 0) ++node(n.parent).child_count;
  ++size_;
}

void BlockTree::remove(BlockId block) {
  const BlockNode& n = node(block);
  if (n.next_sibling >= 0) node(n.next_sibling).previous_sibling = n.previous_sibling;
  if (n.previous_sibling >= 0) {
    node(n.previous_sibling).next_sibling = n.next_sibling;
  } else {
    first_sibling(n) = n.next_sibling;
    if (n.parent < 0 && n.next_sibling < 0) roots_.erase(n.parent_hash);
  }
  if (n.parent >= 0) --node(n.parent).child_count;
  if (!n.is_tail()) by_hash_.erase(n.hash);
  --size_;
}

Status BlockTree::verify_node(BlockId block, const BlockPool& pool) const {
  const BlockNode& n = node(block);
  const auto wrong = [block](const char* what) {
    return absl::InternalError("cached block " + std::to_string(block) + " " + what);
  };
  if (!n.is_tail() && find(n.hash) != block) return wrong("is not the one its hash names");
  if (n.is_tail() && (n.child_count > 0 || n.id_count >= static_cast<int32_t>(block_size_))) {
    return wrong("is a tail with children, or full");
  }
  if (n.parent != find(n.parent_hash)) return wrong("has another parent than its hash says");
  if (n.parent >= 0 && !pool.is_cached(n.parent)) return wrong("has a parent that is not cached");
  if (pool.reference_count(block) > 0 && n.parent >= 0 && pool.reference_count(n.parent) == 0) {
    return wrong("is in use but its parent is not");
  }
  int32_t child_count = 0;
  for (BlockId child = n.first_child, before = -1; child >= 0; child = node(child).next_sibling) {
    if (node(child).parent != block || node(child).previous_sibling != before) {
      return wrong("has a broken list of children");
    }
    before = child;
    if (++child_count > n.child_count) break;
  }
  if (child_count != n.child_count) return wrong("has another number of children than it says");
  return absl::OkStatus();
}

Status BlockTree::verify(const BlockPool& pool) const {
  int32_t cached_count = 0, parentless_count = 0, root_count = 0;
  for (BlockId block = 0; block < pool.total_count(); ++block) {
    if (!pool.is_cached(block)) continue;
    ++cached_count;
    parentless_count += node(block).parent < 0;
    TROUPE_RETURN_IF_ERROR(verify_node(block, pool));
  }
  for (const auto& [hash, first] : roots_) {
    for (BlockId child = first; child >= 0 && root_count <= cached_count; child = node(child).next_sibling) {
      ++root_count;
      if (node(child).parent >= 0 || node(child).parent_hash != hash || !pool.is_cached(child)) {
        return absl::InternalError("block " + std::to_string(child) + " is in a list of roots by mistake");
      }
    }
  }
  if (cached_count != size_ || root_count != parentless_count) {
    return absl::InternalError("the prefix cache has lost count of its blocks");
  }
  return absl::OkStatus();
}

}  // namespace troupe

#include "worker/kv/cached_conversations.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"

namespace troupe {

// The runs from the root to the end of a conversation's branch.
struct CachedConversations::Branch {
  Hash128 session;
  RadixNodeId last = -1;
  uint64_t used_at = 0;
  int32_t end = 0;  // blocks

  bool precedes(const Branch& other) const {
    return used_at != other.used_at ? used_at < other.used_at : end < other.end;
  }
};

std::optional<CachedConversations::Branch> CachedConversations::branch_of(RadixNodeId id) const {
  const RadixNode& r = tree_.run(id);
  if (r.blocks.empty() || r.is_tail() || residency_ == nullptr) return std::nullopt;
  const auto owner = residency_->owner(r.extent);
  if (!owner || owner->kind != HolderKind::kSession) return std::nullopt;
  return Branch{owner->name, id, r.use.used_at, r.depth + r.count()};
}

// The partly filled block behind a run, the one used last; -1: there is none.
RadixNodeId CachedConversations::last_block_behind(RadixNodeId id) const {
  RadixNodeId partial = -1;
  for (RadixNodeId child = tree_.run(id).first_child; child >= 0; child = tree_.run(child).next_sibling) {
    const RadixNode& r = tree_.run(child);
    if (!r.is_tail() || r.corrupt) continue;
    if (partial < 0 || r.use.used_at > tree_.run(partial).use.used_at) partial = child;
  }
  return partial;
}

Conversation CachedConversations::describe(const Branch& branch) const {
  Conversation c;
  c.session = branch.session;
  c.token_count = branch.end * block_size_;
  const RadixNodeId partial = last_block_behind(branch.last);
  if (partial >= 0) c.token_count += static_cast<int32_t>(tree_.run(partial).tail_id_count);
  for (RadixNodeId id = branch.last; id >= 0; id = tree_.run(id).parent) {
    const RadixNode& r = tree_.run(id);
    const auto owner = residency_->owner(r.extent);
    if (c.set.is_zero() && owner && owner->kind == HolderKind::kSet) {
      c.set = owner->name;
      c.prefix_count = (r.depth + r.count()) * block_size_;
    }
    if (r.parent < 0) c.salt = tree_.root_name(id);
  }
  return c;
}

void CachedConversations::collect_blocks(const Branch& branch, Conversation& out) const {
  std::vector<RadixNodeId> way;
  for (RadixNodeId id = branch.last; id >= 0; id = tree_.run(id).parent) way.push_back(id);
  std::reverse(way.begin(), way.end());
  if (const RadixNodeId partial = last_block_behind(branch.last); partial >= 0) way.push_back(partial);
  bool all_known = true;
  for (const RadixNodeId id : way) {
    const RadixNode& r = tree_.run(id);
    all_known = all_known && r.has_ids;
    for (int32_t i = 0; i < r.count(); ++i) {
      if (!r.is_tail()) out.block_hashes.push_back(tree_.hash_of(r, static_cast<size_t>(i)));
      const auto ids = tree_.ids_of(id, i);
      out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    }
  }
  if (!all_known) out.ids.clear();
}

std::vector<Conversation> CachedConversations::list(size_t max_count) const {
  absl::flat_hash_map<Hash128, Branch> found;
  for (RadixNodeId id = 0; id < tree_.id_end(); ++id) {
    const auto branch = branch_of(id);
    if (!branch) continue;
    const auto [known, added] = found.try_emplace(branch->session, *branch);
    if (!added && known->second.precedes(*branch)) known->second = *branch;
  }
  std::vector<Branch> branches;
  for (const auto& [session, branch] : found) branches.push_back(branch);
  const auto later = [](const Branch& a, const Branch& b) {
    return a.used_at != b.used_at ? a.used_at > b.used_at : a.session < b.session;
  };
  const size_t count = std::min(max_count, branches.size());
  std::partial_sort(branches.begin(), branches.begin() + static_cast<std::ptrdiff_t>(count), branches.end(),
                    later);
  std::vector<Conversation> result;
  for (size_t i = 0; i < count; ++i) result.push_back(describe(branches[i]));
  return result;
}

std::optional<Conversation> CachedConversations::find(const Hash128& session) const {
  std::optional<Branch> last;
  for (RadixNodeId id = 0; id < tree_.id_end(); ++id) {
    const auto branch = branch_of(id);
    if (branch && branch->session == session && (!last || last->precedes(*branch))) last = branch;
  }
  if (!last) return std::nullopt;
  Conversation c = describe(*last);
  collect_blocks(*last, c);
  return c;
}

}  // namespace troupe

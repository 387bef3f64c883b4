#include "worker/kv/insertion.h"

#include "worker/kv/lookup.h"

namespace troupe {

void Insertion::insert(LockedPrefix& path, const PrefixBlocks& blocks) {
  while (static_cast<size_t>(path.count) < blocks.blocks.size()) {
    const RadixNodeId known =
        cache_.tree.find_child(path.run, blocks.hashes[static_cast<size_t>(path.count)]);
    if (known < 0) {
      add(path, blocks);
      return;
    }
    adopt(path, known, blocks);
  }
}

bool Insertion::insert_tail(const LockedPrefix& path, const PartlyFilledBlock& last) {
  RadixTree& tree = cache_.tree;
  if (path.run >= 0 && tree.run(path.run).corrupt) return false;
  const int32_t run_count = path.run >= 0 ? tree.run(path.run).count() : 0;
  const auto id_count = static_cast<int32_t>(last.ids.size());
  const PrefixMatch held{path.count, path.run, run_count};
  if (find_partial_block(tree, held, last.root, last.ids, id_count).block >= 0) return false;
  remove_covered(path, last.root, last.ids);
  const RadixNodeId id = tree.add(path.run, last.root, {{}, {&last.block, 1}, last.ids});
  tree.run(id).use = cache_.history.first_use(path.run, static_cast<uint32_t>(last.user));
  cache_.holds.idle(id);
  return true;
}

// Cached blocks take the place of the request's own, which are freed.
void Insertion::adopt(LockedPrefix& path, RadixNodeId known, const PrefixBlocks& blocks) {
  RadixTree& tree = cache_.tree;
  const auto begin = static_cast<size_t>(path.count);
  const auto own = blocks.blocks.subspan(begin);
  const size_t count = tree.common_count(tree.run(known), blocks.hashes.subspan(begin, own.size()));
  const auto taken = static_cast<int32_t>(count);
  const RadixNodeId id = taken < tree.run(known).count() ? cache_.leaves.split(known, taken) : known;
  cache_.holds.take(id, static_cast<uint32_t>(blocks.user));
  for (size_t i = 0; i < count; ++i) {
    cache_.pool.release(own[i]);
    own[i] = tree.run(id).blocks[i];
  }
  path = {id, path.count + taken};
}

// Inserts blocks that are not cached, in rows of blocks that were used alike.
void Insertion::add(LockedPrefix& path, const PrefixBlocks& blocks) {
  ++add_count_;
  UseHistory& history = cache_.history;
  const auto begin = static_cast<size_t>(path.count);
  const size_t end = blocks.blocks.size();
  if (!blocks.ids.empty()) remove_covered(path, blocks.root, blocks.ids.subspan(begin * block_size_));
  constexpr size_t kGroup = GhostList::kGroup;
  for (size_t i = begin / kGroup * kGroup; i < end; i += kGroup) {
    history.prefetch_remembered(blocks.hashes[i]);
  }
  RunUse use = history.first_use(path.run, static_cast<uint32_t>(blocks.user)), row;
  for (size_t at = begin; at < end;) {
    const size_t count = history.recall(use, blocks.hashes, at, end);
    if (at > begin && !history.is_alike(row, use)) place(path, blocks, {row, at});
    if (at == static_cast<size_t>(path.count)) row = use;
    at += count;
    use = history.use_behind(use);
  }
  place(path, blocks, {row, end});
}

// Appends a row to the path's run where nothing else hangs on that run or ends there, else adds a run.
void Insertion::place(LockedPrefix& path, const PrefixBlocks& blocks, const Row& row) {
  RadixTree& tree = cache_.tree;
  const auto begin = static_cast<size_t>(path.count);
  const size_t count = row.end - begin;
  RadixTree::Blocks added{blocks.hashes.subspan(begin, count), blocks.blocks.subspan(begin, count), {}};
  if (!blocks.ids.empty()) added.ids = blocks.ids.subspan(begin * block_size_, count * block_size_);
  const Residency::Extent extent = publish(path, blocks, added.hashes);
  const RadixNode* last = path.run >= 0 ? &tree.run(path.run) : nullptr;
  if (last != nullptr && last->references == 1 && last->is_leaf() && last->extent == extent &&
      last->planned == blocks.planned && cache_.history.is_alike(last->use, row.use)) {
    tree.append(path.run, added);
  } else {
    path.run = tree.add(path.run, blocks.root, added);
    RadixNode& r = tree.run(path.run);
    r.references = 1;
    r.use = row.use;
    r.extent = extent;
    r.planned = blocks.planned;
    if (r.planned) cache_.leaves.count_planned(1);
  }
  path.count += static_cast<int32_t>(count);
}

// Residency lists the blocks added behind a path, unless that is corrupt: then so are they.
Residency::Extent Insertion::publish(const LockedPrefix& path, const PrefixBlocks& blocks,
                                     std::span<const Hash128> added) {
  const RadixNode* last = path.run >= 0 ? &cache_.tree.run(path.run) : nullptr;
  if (cache_.residency == nullptr || (last != nullptr && last->corrupt)) return {};
  if (blocks.each_itself) return cache_.residency->cached_each(path.count, added);
  return cache_.residency->cached({path.count, static_cast<int32_t>(added.size())}, blocks.kind,
                                  blocks.holder, last != nullptr ? last->extent : Residency::Extent{});
}

// Frees idle blocks, partly filled, whose ids are the beginning of `by`: the block that comes in their place
// holds them too.
void Insertion::remove_covered(const LockedPrefix& path, Hash128 root, std::span<const TokenId> by) {
  if (by.empty()) return;  // without ids no block is kept partly filled
  const RadixTree& tree = cache_.tree;
  RadixNodeId child = tree.first_child_of(path.run, root);
  for (int i = 0; i < kPartialCandidatesMax && child >= 0; ++i) {
    const RadixNodeId next = tree.run(child).next_sibling;
    if (tree.run(child).listed && is_covered_tail(tree, child, by)) cache_.evictor.remove(child);
    child = next;
  }
}

}  // namespace troupe

#include "worker/kv/lookup.h"

#include <algorithm>

namespace troupe {

PrefixMatch find_prefix(const RadixTree& tree, std::span<const Hash128> hashes) {
  PrefixMatch match;
  while (!hashes.empty()) {
    const RadixNodeId next = tree.find_child(match.run, hashes[0]);
    if (next < 0) break;
    const RadixNode& r = tree.run(next);
    RadixTree::prefetch_rest(r);
    // A hash stands for all before it, too: where the last is the same, all are.
    const size_t count = std::min(r.blocks.size(), hashes.size());
    const Hash128& last = count == r.blocks.size() ? r.last_hash : tree.hash_of(r, count - 1);
    const bool all = last == hashes[count - 1];
    const size_t common = all ? count : tree.common_count(r, hashes);
    match = {match.count + static_cast<int32_t>(common), next, static_cast<int32_t>(common)};
    if (common < r.blocks.size()) break;
    hashes = hashes.subspan(common);
  }
  return match;
}

PartialMatch find_partial_block(const RadixTree& tree, const PrefixMatch& match, Hash128 root,
                                std::span<const TokenId> ids, int32_t count_min) {
  PartialMatch best;
  const auto compare = [&](RadixNodeId run, int32_t index) {
    const auto known = tree.ids_of(run, index);
    const auto end = std::mismatch(ids.begin(), ids.end(), known.begin(), known.end()).first;
    const auto count = static_cast<int32_t>(end - ids.begin());
    if (count < count_min || count <= best.count) return;
    best = {tree.run(run).blocks[static_cast<size_t>(index)], count, run};
  };
  if (match.run >= 0 && match.run_count < tree.run(match.run).count()) {
    compare(match.run, match.run_count);
    return best;
  }
  RadixNodeId child = tree.first_child_of(match.run, root);
  for (int i = 0; i < kPartialCandidatesMax && child >= 0; child = tree.run(child).next_sibling) {
    if (tree.run(child).corrupt) continue;
    compare(child, 0);
    ++i;
  }
  return best;
}

}  // namespace troupe

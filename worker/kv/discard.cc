// PrefixCache::discard() decides which blocks go when a request's logits were no numbers.
//
// One block that is no number makes all logits behind it so, and nothing shows which block it is: it may be
// the request's own (a prompt at which the model breaks) or one of the persona that thousands share (memory
// that failed). If only the own ones went, a bad block of a persona would fail every request to it for ever;
// if all went, one prompt at which the model breaks would empty the cache of a fleet. So blocks are trusted
// by what was drawn from them. The first run of the chain from which no request drew a token goes at once,
// with all that hangs on it; the ones before it have trust, of which each failure takes one and each request
// that drew a token restores all: a block that really is bad is gone after kTrust + 1 requests in a row have
// failed.
//
// What goes and is idle is evicted. What is held or pinned is corrupt: look-ups do not find it, residency
// does not list it, what its holders add behind it is corrupt too, and its last holder frees it.

#include <algorithm>
#include <vector>

#include "worker/kv/prefix_cache_impl.h"

namespace troupe {

void PrefixCache::Impl::Discard::chain(const Match& match, Hash128 root, std::span<const TokenId> ids) {
  RadixTree& radix = cache.tree;
  const bool whole = match.run < 0 || match.run_count == radix.run(match.run).count();
  const size_t tail_begin = std::min(static_cast<size_t>(match.count) * cache.block_size, ids.size());
  const auto of_tail = ids.subspan(tail_begin);
  for (RadixNodeId child = whole ? radix.first_child_of(match.run, root) : -1; child >= 0;) {
    const RadixNodeId next = radix.run(child).next_sibling;
    if (!of_tail.empty() && is_covered_tail(radix, child, of_tail)) mark_corrupt(child);
    child = next;
  }
  RadixNodeId first = -1;
  for (RadixNodeId id = match.run; id >= 0; id = radix.run(id).parent) {
    RadixNode& r = radix.run(id);
    if (r.trust == 0) first = id;
    if (r.trust > 0) --r.trust;
  }
  RadixNodeId last = whole ? match.run : -1;
  if (first >= 0) {
    last = radix.run(first).parent;
    mark_corrupt(first);
  }
  while (last >= 0 && radix.run(last).listed) {
    const RadixNodeId before = radix.run(last).parent;
    cut_idle(last);
    last = before;
  }
}

// A run and all behind it, the last first.
void PrefixCache::Impl::Discard::mark_corrupt(RadixNodeId id) {
  const RadixTree& radix = cache.tree;
  std::vector<RadixNodeId> runs{id};
  for (size_t i = 0; i < runs.size(); ++i) {
    for (RadixNodeId child = radix.run(runs[i]).first_child; child >= 0;
         child = radix.run(child).next_sibling) {
      runs.push_back(child);
    }
  }
  for (size_t i = runs.size(); i-- > 0;) mark_run_corrupt(runs[i]);
}

void PrefixCache::Impl::Discard::mark_run_corrupt(RadixNodeId id) {
  RadixNode& r = cache.tree.run(id);
  if (r.corrupt) return;
  if (r.references == 0) {
    cut_idle(id);
    return;
  }
  if (cache.residency != nullptr && !r.is_tail()) {
    cache.gone_hashes.resize(static_cast<size_t>(r.count()));
    cache.tree.last_hashes(r, cache.gone_hashes);
    cache.residency->evicted({r.extent, r.depth, r.blocks, cache.gone_hashes});
  }
  r.extent = {};
  cache.tree.mark_corrupt(id);
}

// REQUIRES: an idle leaf.
void PrefixCache::Impl::Discard::cut_idle(RadixNodeId id) {
  const RadixNode& r = cache.tree.run(id);
  if (!r.is_tail()) {
    cache.gone_hashes.resize(static_cast<size_t>(r.count()));
    cache.tree.last_hashes(r, cache.gone_hashes);
  }
  cache.cut(id, r.count());
}

}  // namespace troupe

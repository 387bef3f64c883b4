// The blocks that go when a request's logits were no numbers, and why these.
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

#include "worker/kv/discard.h"

#include <algorithm>
#include <vector>

namespace troupe {

void Discard::chain(const PrefixMatch& match, Hash128 root, std::span<const TokenId> ids) {
  const bool whole = match.run < 0 || match.run_count == tree_.run(match.run).count();
  const size_t tail_begin = std::min(static_cast<size_t>(match.count) * block_size_, ids.size());
  const auto of_tail = ids.subspan(tail_begin);
  for (RadixNodeId child = whole ? tree_.first_child_of(match.run, root) : -1; child >= 0;) {
    const RadixNodeId next = tree_.run(child).next_sibling;
    if (!of_tail.empty() && is_covered_tail(tree_, child, of_tail)) mark_corrupt(child);
    child = next;
  }
  RadixNodeId first = -1;
  for (RadixNodeId id = match.run; id >= 0; id = tree_.run(id).parent) {
    RadixNode& r = tree_.run(id);
    if (r.trust == 0) first = id;
    if (r.trust > 0) --r.trust;
  }
  RadixNodeId last = whole ? match.run : -1;
  if (first >= 0) {
    last = tree_.run(first).parent;
    mark_corrupt(first);
  }
  while (last >= 0 && tree_.run(last).listed) {
    const RadixNodeId before = tree_.run(last).parent;
    evictor_.remove(last);
    last = before;
  }
}

// A run and all behind it, the last first.
void Discard::mark_corrupt(RadixNodeId id) {
  std::vector<RadixNodeId> runs{id};
  for (size_t i = 0; i < runs.size(); ++i) {
    for (RadixNodeId child = tree_.run(runs[i]).first_child; child >= 0;
         child = tree_.run(child).next_sibling) {
      runs.push_back(child);
    }
  }
  for (size_t i = runs.size(); i-- > 0;) mark_run_corrupt(runs[i]);
}

void Discard::mark_run_corrupt(RadixNodeId id) {
  const RadixNode& r = tree_.run(id);
  if (r.corrupt) return;
  if (r.references == 0) {
    evictor_.remove(id);
    return;
  }
  evictor_.unpublish(id);
  tree_.mark_corrupt(id);
}

}  // namespace troupe

// PrefixCache: blocks that stay although no request uses them. Pinned blocks are never evicted; the planned
// prefixes of sets at home here are evicted when nothing else is left.

#include <algorithm>

#include "worker/kv/prefix_cache.h"
#include "worker/kv/prefix_cache_impl.h"

namespace troupe {

PrefixCache::Pin PrefixCache::pin(const Match& match, const PartialMatch& partial) {
  Impl& c = *impl_;
  Pin pin;
  if (match.run >= 0) {
    const bool whole = match.run_count == c.tree.run(match.run).count();
    pin.path = {whole ? match.run : c.split(match.run, match.run_count), match.count};
  }
  for (RadixNodeId id = pin.path.run; id >= 0; id = c.tree.run(id).parent) c.pin(id);
  if (partial.block < 0) return pin;
  pin.partial = c.tree.run(partial.run).count() > 1 ? c.split(partial.run, 1) : partial.run;
  c.pin(pin.partial);
  return pin;
}

void PrefixCache::unpin(const Pin& pin) {
  if (pin.partial >= 0) impl_->unpin(pin.partial);
  for (RadixNodeId id = pin.path.run; id >= 0;) {
    const RadixNodeId before = impl_->tree.run(id).parent;
    impl_->unpin(id);
    id = before;
  }
}

int32_t PrefixCache::pinned_count() const {
  return impl_->pinned_count;
}

int32_t PrefixCache::pinned_count(const Match& match) const {
  // All runs before a pinned one are pinned.
  for (RadixNodeId id = match.run; id >= 0; id = impl_->tree.run(id).parent) {
    const RadixNode& r = impl_->tree.run(id);
    if (r.pins > 0) return std::min(match.count, r.depth + r.count());
  }
  return 0;
}

void PrefixCache::set_planned(const LockedPrefix& path, int32_t count, bool planned) {
  if (!planned && impl_->planned_count == 0) return;
  for (RadixNodeId id = path.run; id >= 0;) {
    RadixNode& r = impl_->tree.run(id);
    id = r.parent;
    if (r.planned == planned || r.depth + r.count() > count) continue;
    r.planned = planned;
    impl_->planned_count += planned ? 1 : -1;
  }
}

void PrefixCache::Impl::pin(RadixNodeId id) {
  RadixNode& r = tree.run(id);
  if (r.references++ == 0) pool->add_cached(-r.count());
  if (r.pins++ == 0) pinned_count += r.count();
  if (r.listed) unlist(id);
}

void PrefixCache::Impl::unpin(RadixNodeId id) {
  RadixNode& r = tree.run(id);
  if (--r.pins == 0) pinned_count -= r.count();
  drop(id);
}

}  // namespace troupe

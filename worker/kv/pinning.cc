#include "worker/kv/pinning.h"

#include <algorithm>

namespace troupe {

PrefixPin Pinning::pin(const PrefixMatch& match, const PartialMatch& partial) {
  PrefixPin pin;
  if (match.run >= 0) pin.path = {holds_.whole_run(match), match.count};
  for (RadixNodeId id = pin.path.run; id >= 0; id = tree_.run(id).parent) pin_run(id);
  if (partial.block < 0) return pin;
  pin.partial = holds_.whole_run(partial);
  pin_run(pin.partial);
  return pin;
}

void Pinning::unpin(const PrefixPin& pin) {
  if (pin.partial >= 0) unpin_run(pin.partial);
  for (RadixNodeId id = pin.path.run; id >= 0;) {
    const RadixNodeId before = tree_.run(id).parent;
    unpin_run(id);
    id = before;
  }
}

int32_t Pinning::pinned_count(const PrefixMatch& match) const {
  // All runs before a pinned one are pinned.
  for (RadixNodeId id = match.run; id >= 0; id = tree_.run(id).parent) {
    const RadixNode& r = tree_.run(id);
    if (r.pins > 0) return std::min(match.count, r.depth + r.count());
  }
  return 0;
}

void Pinning::pin_run(RadixNodeId id) {
  RadixNode& r = tree_.run(id);
  holds_.take_unused(id);
  if (r.pins++ == 0) pinned_count_ += r.count();
}

void Pinning::unpin_run(RadixNodeId id) {
  RadixNode& r = tree_.run(id);
  if (--r.pins == 0) pinned_count_ -= r.count();
  holds_.drop(id);
}

}  // namespace troupe

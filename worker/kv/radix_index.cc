#include "worker/kv/radix_index.h"

#include <utility>

namespace troupe {

void RadixIndex::place(Entry entry) {
  size_t i = home_of(entry.tag);
  while (entries_[i].run >= 0) i = next(i);
  entries_[i] = entry;
}

// At least a third of the entries stay free, so that probes are short.
void RadixIndex::grow() {
  std::vector<Entry> old(entries_.size() * 2);
  std::swap(old, entries_);
  for (const Entry& entry : old) {
    if (entry.run >= 0) place(entry);
  }
}

void RadixIndex::add(Hash128 hash, RadixNodeId run) {
  if ((size_ + 1) * 3 > entries_.size() * 2) grow();
  place({tag_of(hash), run});
  ++size_;
}

void RadixIndex::remove(Hash128 hash, RadixNodeId run) {
  size_t hole = home_of(tag_of(hash));
  while (entries_[hole].run != run) hole = next(hole);
  // An entry that had to probe past the hole moves into it: find() stops at the first free entry.
  for (size_t i = next(hole); entries_[i].run >= 0; i = next(i)) {
    const size_t mask = entries_.size() - 1;
    const size_t from_home = (i - home_of(entries_[i].tag)) & mask;
    if (from_home < ((i - hole) & mask)) continue;
    entries_[hole] = entries_[i];
    hole = i;
  }
  entries_[hole] = {};
  --size_;
}

}  // namespace troupe

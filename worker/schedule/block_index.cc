#include "worker/schedule/block_index.h"

namespace troupe {

void BlockIndex::add(Hash128 hash, BlockId block) {
  const uint32_t tag = tag_of(hash);
  size_t i = home_of(tag);
  while (entries_[i].block >= 0) i = next(i);
  entries_[i] = {tag, block};
}

void BlockIndex::remove(Hash128 hash, BlockId block) {
  size_t hole = home_of(tag_of(hash));
  while (entries_[hole].block != block) hole = next(hole);
  // Whoever was put off past the hole moves into it, so that nobody is looked for across a gap.
  for (size_t i = next(hole); entries_[i].block >= 0; i = next(i)) {
    const size_t mask = entries_.size() - 1;
    const size_t from_home = (i - home_of(entries_[i].tag)) & mask;
    if (from_home < ((i - hole) & mask)) continue;
    entries_[hole] = entries_[i];
    hole = i;
  }
  entries_[hole] = {};
}

}  // namespace troupe

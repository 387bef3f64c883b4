#include "worker/kv/run_holds.h"

#include <algorithm>
#include <string>

#include "common/core/check.h"

namespace troupe {

RadixNodeId RunHolds::whole_run(const PrefixMatch& match) {
  const bool whole = match.run_count == tree_.run(match.run).count();
  return whole ? match.run : leaves_.split(match.run, match.run_count);
}

RadixNodeId RunHolds::whole_run(const PartialMatch& partial) {
  return tree_.run(partial.run).count() > 1 ? leaves_.split(partial.run, 1) : partial.run;
}

LockedPrefix RunHolds::hold(const PrefixMatch& match, uint64_t user, std::vector<BlockId>& out) {
  out.resize(static_cast<size_t>(match.count));
  if (match.run < 0) return {};
  const RadixNodeId last = whole_run(match);
  for (RadixNodeId id = last; id >= 0; id = tree_.run(id).parent) {
    take(id, static_cast<uint32_t>(user));
    const RadixNode& r = tree_.run(id);
    std::copy(r.blocks.begin(), r.blocks.end(), out.begin() + r.depth);
  }
  return {last, match.count};
}

void RunHolds::release(const LockedPrefix& path, bool drew) {
  for (RadixNodeId id = path.run; id >= 0;) {
    RadixNode& r = tree_.run(id);
    const RadixNodeId before = r.parent;
    if (drew) r.trust = RadixNode::kTrust;
    drop(id);
    id = before;
  }
}

void RunHolds::take(RadixNodeId id, uint32_t user) {
  const bool was_idle = tree_.run(id).references == 0;
  take_unused(id);
  history_.record_use(tree_.run(id), user, was_idle);
}

void RunHolds::take_unused(RadixNodeId id) {
  RadixNode& r = tree_.run(id);
  if (r.references++ == 0) pool_.add_cached(-r.count());
  if (r.listed) leaves_.remove(id);
}

void RunHolds::drop(RadixNodeId id) {
  RadixNode& r = tree_.run(id);
  TROUPE_CHECK(r.references > 0, "run " + std::to_string(id) + " is dropped without a reference");
  if (--r.references == 0) idle(id);
}

void RunHolds::idle(RadixNodeId id) {
  RadixNode& r = tree_.run(id);
  pool_.add_cached(r.count());
  if (r.corrupt) {
    evictor_.remove(id);
    return;
  }
  for (int lessons = history_.record_idle(r); lessons > 0; --lessons) {
    history_.learn();
    leaves_.retire_planned();
  }
  leaves_.add_if_idle_leaf(id);
}

}  // namespace troupe

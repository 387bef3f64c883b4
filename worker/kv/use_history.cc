#include "worker/kv/use_history.h"

#include <algorithm>

namespace troupe {

namespace {

// The usual time between uses: the mean of the last eight or so.
void add_use(RunUse& use, uint64_t ticks) {
  use.interval +=
      (static_cast<float>(ticks) - use.interval) / static_cast<float>(std::min<uint32_t>(use.use_count, 8));
  if (use.use_count < 255) ++use.use_count;
}

}  // namespace

void UseHistory::record_use(RadixNode& r, uint32_t user, bool was_idle) {
  if (was_idle && !r.is_tail()) score_.record_hits(class_of(r.use), ages_of(r));
  if (user != r.use.user) {
    r.use.user = user;
    r.use.shared = true;
  } else if (was_idle) {
    r.use.returning = true;
  }
  add_use(r.use, now_ - r.use.used_at);
  r.use.used_at = now_;
}

int UseHistory::record_idle(RadixNode& r) {
  now_ += static_cast<uint64_t>(r.count());
  r.use.idle_since = now_;
  return score_.tick(r.count());
}

// A lesson needs to know how much lies idle and at which ages: a sample of the cached and of the remembered
// blocks shows it.
void UseHistory::learn() {
  constexpr size_t kSamples = 512;
  constexpr size_t kAhead = 8;  // samples whose memory is on its way: they lie far apart
  const auto sample = [&](size_t count, auto fetch, auto each) {
    const size_t step = (count + kSamples - 1) / kSamples;
    for (size_t i = step == 0 ? 0 : lesson_count_ % step; i < count; i += step) {
      fetch(std::min(i + kAhead * step, count - 1));
      each(i, static_cast<double>(step));
    }
  };
  sample(
      static_cast<size_t>(tree_.id_end()), [&](size_t i) { tree_.prefetch(static_cast<RadixNodeId>(i)); },
      [&](size_t i, double weight) {
        const RadixNode& r = tree_.run(static_cast<RadixNodeId>(i));
        if (r.blocks.empty() || r.is_tail() || r.references > 0) return;
        score_.record_idle(class_of(r.use), ages_of(r), weight);
      });
  sample(
      ghosts_.size(), [&](size_t i) { ghosts_.prefetch_at(i); },
      [&](size_t i, double weight) {
        const auto [count, known] = ghosts_.at(i, now_);
        if (!known) return;
        score_.record_idle(class_of(*known), {now_ - known->idle_since, static_cast<int32_t>(count)}, weight);
      });
  ++lesson_count_;
  score_.learn();
}

RunUse UseHistory::first_use(RadixNodeId before, uint32_t user) const {
  RunUse use;
  if (before >= 0) use = use_behind(tree_.run(before).use);
  use.user = user;
  use.used_at = now_;
  return use;
}

// A block that a returning session adds behind its own is as likely to be wanted again.
RunUse UseHistory::use_behind(const RunUse& before) const {
  RunUse use;
  use.user = before.user;
  use.used_at = now_;
  use.returning = before.returning && !before.shared;
  return use;
}

void UseHistory::remember(const GhostList::Row& row, const RunUse& use, uint64_t idle_since) {
  ghosts_.add(row, {.idle_since = idle_since,
                    .user = use.user,
                    .interval = use.interval,
                    .use_count = use.use_count,
                    .returning = use.returning,
                    .shared = use.shared});
}

// A block that was evicted and is still remembered is not new.
size_t UseHistory::recall(RunUse& use, std::span<const Hash128> hashes, size_t begin, size_t end) {
  const auto found = ghosts_.take(hashes, begin, end, now_);
  if (!found.block) return found.count;
  const GhostEntry& known = *found.block;
  score_.record_hits(class_of(known), {now_ - known.idle_since, static_cast<int32_t>(found.count)});
  const bool same_user = GhostList::is_same_user(known, use.user);
  use.returning = use.returning || known.returning || same_user;
  use.shared = known.shared || !same_user;
  use.interval = known.interval;
  use.use_count = static_cast<uint8_t>(known.use_count);
  add_use(use, now_ - known.idle_since);
  return found.count;
}

}  // namespace troupe

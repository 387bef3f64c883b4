#pragma once

// The worth of keeping an idle block: learned from how often blocks like it, idle for as long, are wanted
// again. Pure; not thread-safe.
//
// Ages are in ticks of the cache's own clock (blocks that became idle), so nothing here depends on how fast
// the machine is.

#include <array>
#include <cstddef>
#include <cstdint>

namespace troupe {

// Classes of idle blocks, by what shows how likely a block is to be wanted again.
using IdleClass = uint8_t;
inline constexpr IdleClass kNewClass = 0;  // one request used it, of a session that was not seen to come back
inline constexpr IdleClass kReturningClass = 1;  // its session came back for it, or for the block before it
// Blocks that several sessions used, by the usual time between two uses: from a sixteenth of a turnover (as
// many ticks as the cache has blocks) up to more than eight turnovers, one octave a class.
inline constexpr IdleClass kFirstSharedClass = 2;
inline constexpr size_t kIdleClassCount = 11;

class EvictionScore {
 public:
  // `block_count`: the size of the cache; how fast it forgets.
  explicit EvictionScore(int32_t block_count);

  // Class of a block that several sessions use, every `interval` ticks or so.
  IdleClass shared_class(double interval) const;
  // Blocks idle for this many ticks, one more for every further one of them.
  struct Ages {
    uint64_t first = 0;
    int32_t count = 1;  // blocks
  };
  // These blocks are wanted again, whether they are still in the cache or only remembered.
  void record_hits(IdleClass idle_class, Ages ages) {
    seen_[idle_class] = true;
    count(hits_[idle_class], ages, 1);
  }
  // The clock goes on by `ticks`. Returns how many lessons are due.
  int tick(int32_t ticks);
  // Before a lesson: these blocks, times `weight`, lie idle, or evicted and remembered.
  void record_idle(IdleClass idle_class, Ages ages, double weight) {
    seen_[idle_class] = true;
    count(idle_[idle_class], ages, weight * static_cast<double>(ticks_per_lesson_));
  }
  void learn();

  // Expected hits for each tick the block is kept on, over the best time to keep it: the block of the least
  // value is the one to evict. As of the last lesson; worked out when it is first asked for, because a cache
  // that has room learns but asks nothing.
  double of(IdleClass idle_class, uint64_t age) {
    if (is_due_[idle_class]) value_class(idle_class);
    return values_[idle_class][bucket_of(age)];
  }
  // The youngest age from which on, up to `age`, a block is worth the same.
  uint64_t same_value_from(uint64_t age) const { return begin_of(bucket_of(age)); }

 private:
  // Two buckets an octave: [0, 1), [1, 2), [2, 3), [3, 4), [4, 6), [6, 8), …
  static constexpr size_t kBucketCount = 72;
  using Row = std::array<double, kBucketCount>;
  using Histogram = std::array<Row, kIdleClassCount>;

  size_t bucket_of(uint64_t age) const;
  static uint64_t begin_of(size_t bucket) {
    return bucket < 4 ? bucket : (2 + (bucket & 1)) << (bucket / 2 - 1);
  }
  void count(Row& row, Ages ages, double by) const;
  void set_prior(int32_t block_count);
  double smooth(const Row& row, size_t bucket) const;
  void value_class(size_t idle_class);

  Histogram hits_{};
  Histogram idle_{};        // blocks × ticks
  Histogram prior_hits_{};  // what holds while little was seen
  Histogram prior_idle_{};
  Histogram learned_hits_{}, learned_idle_{};  // what was seen as of the last lesson
  Histogram values_{};                         // by that; of the classes that are due, of an earlier one
  std::array<bool, kIdleClassCount> is_due_{};
  std::array<bool, kIdleClassCount>
      seen_{};  // of which anything was seen: the others' values are the prior's
  std::array<double, kBucketCount> widths_{};
  double turnover_;
  size_t last_bucket_;  // ages beyond thirty-two turnovers are all the same
  uint64_t ticks_per_lesson_ = 1;
  uint64_t ticks_ = 0;
};

}  // namespace troupe

#pragma once

// Statistics of each set: the length of its prefix, and its share of the work, decayed. The share decides
// whether a set is hot; one gateway's own sample is as good for that as all of them (measured at 1/8 and
// 1/32). The planner wants loads of the whole fleet: SetLoadMerger adds up what workers report.

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/block_hash.h"
#include "common/core/lru_map.h"
#include "common/core/time.h"

namespace troupe::route {

struct SetLoad {
  Hash128 set;
  double work = 0;     // decayed tokens; only their proportions matter
  int64_t tokens = 0;  // of its prefix; 0: not known
  std::string model;
};

// The planner's food: the same numbers on every gateway give the same table on every gateway.
struct SetLoads {
  uint64_t epoch = 0;  // names the numbers; 0: this gateway's own sample
  std::vector<SetLoad> sets;
};

// Not thread-safe.
class SetStats {
 public:
  SetStats(size_t sets_max, Duration half_life, Duration tick);

  // So much work of this set was sent off.
  void note(Hash128 set, std::string_view model, int64_t work_tokens, TimePoint now);
  // It was so much more work than noted, or less. Does nothing for a set not known.
  void correct(Hash128 set, int64_t work_tokens, TimePoint now);
  // A worker's own count of the prefix. Does nothing for a set not known.
  void learn_tokens(Hash128 set, int64_t tokens);
  int64_t tokens(Hash128 set) const;  // 0: not known
  double share(Hash128 set) const;    // of all work noted, decayed; 0..1
  size_t size() const { return sets_.size(); }
  // All sets that still have a noticeable share.
  SetLoads loads();

 private:
  struct Entry {
    std::string model;
    double work = 0;  // inflated: see scale_
    int64_t tokens = 0;
  };
  void advance(TimePoint now);

  double half_life_s_;
  Duration tick_;
  LruMap<Entry> sets_;
  double total_ = 0;
  // Work is added times 2^(t / half life) instead of decaying what was added before; t moves in ticks.
  double scale_ = 1;
  TimePoint tick_at_{};
};

// Adds up workers' own counters of work per set. Counters only rise within a worker's epoch; another epoch
// begins at zero.
class SetLoadMerger {
 public:
  SetLoadMerger(Duration half_life, size_t sets_max) : half_life_(half_life), sets_(sets_max) {}

  struct Counter {
    Hash128 set;
    int64_t work_tokens_total = 0;
    int64_t tokens = 0;  // of the prefix, as the worker counts them
  };
  void report(uint32_t worker, uint64_t epoch, std::string_view model, std::span<const Counter> counters);
  void forget(uint32_t worker) { workers_.erase(worker); }  // another one has its number now
  // The next epoch's loads: what came since the last call, added to the decayed rest.
  SetLoads take(TimePoint now);

 private:
  struct Entry {
    SetLoad load;
    double fresh = 0;
  };
  struct Worker {
    uint64_t epoch = 0;
    absl::flat_hash_map<Hash128, int64_t> totals;  // as of its last report
  };
  Duration half_life_;
  LruMap<Entry> sets_;
  absl::flat_hash_map<uint32_t, Worker> workers_;
  uint64_t epoch_ = 0;
  TimePoint taken_at_{};
};

}  // namespace troupe::route

#pragma once

// Carries the prefix cache's contents and each set's cost from the compute thread to their readers (GET
// /v1/residency, GET /v1/load). The compute thread never waits for a reader: until the last changes are
// taken, new ones are merged at the source, each set and session once (residency.h), so a slow reader costs
// nothing and sees fewer, larger changes.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/api/api.h"
#include "common/core/mutex.h"
#include "common/core/time.h"
#include "worker/kv/residency.h"
#include "worker/schedule/set_work.h"

namespace troupe {

class ResidencyPublisher {
 public:
  // `wake` (any thread) makes the compute thread call publish() soon, even when it has nothing to compute.
  explicit ResidencyPublisher(std::function<void()> wake);

  // Compute thread, after every step; `rests`: no step follows for now.
  void publish(Residency& residency, const SetWork& work, bool rests, TimePoint now);

  // The functions below are thread-safe.
  // Identifies the life of the cache: random, because a cache is empty at every start.
  const std::string& epoch() const { return epoch_; }
  // Calls `listener` on the compute thread when there is something to take, once until it is taken. It must
  // not block nor call this object, and must live as long as the engine runs. Set at most once.
  void listen(std::function<void()> listener);
  // Appends the changes since the last call, in order; each entry states what is held now.
  void take(std::vector<Resident>& changes);
  // Fills in epoch and sets, which are at most a tenth of a second old.
  void describe(LoadReport& report) const;

 private:
  const std::function<void()> wake_;
  const std::string epoch_;
  TimePoint work_published_at_{};  // compute thread only

  mutable Mutex mutex_;
  std::function<void()> listener_ ABSL_GUARDED_BY(mutex_);
  std::vector<Resident> changes_ ABSL_GUARDED_BY(mutex_);
  // The cache has changes that wait for changes_ to be taken.
  bool more_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<SetWork::Total> work_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe

#pragma once

// Has pinned prefixes computed anew where the worker that held one died, or began again with an empty cache:
// one at a time, at the worker that its requests would go to (route/placement/pin_book.h says which are
// lost).

#include "common/core/log.h"
#include "common/core/metrics.h"
#include "common/core/time.h"
#include "common/net/task_group.h"
#include "gateway/cluster/fleet.h"
#include "gateway/route/placement/pin_book.h"

namespace troupe {

class PinKeeper {
 public:
  struct Parts {
    Executor executor;
    Fleet& fleet;
    route::Router& router;
    Metrics& metrics;
    const Clock& clock;
    const Logger& log;
  };
  PinKeeper(const route::PinOptions& options, const Parts& parts);

  // One endless task in `group`.
  void start(TaskGroup& group) { group.spawn(run()); }
  route::PinBook& book() { return book_; }

 private:
  Task<void> run();
  Task<void> compute(route::Pin pin);
  route::NodeIndex target_of(const route::Pin& pin);

  const Parts parts_;
  route::PinBook book_;
  Gauge& kept_;
  Counter& computed_;
  Counter& failed_;
};

}  // namespace troupe

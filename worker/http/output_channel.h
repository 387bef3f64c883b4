#pragma once

// Holds an answer's pieces between the engine's text-out thread and the coroutine that sends them. It is the
// only object both sides share; the request itself is owned by its coroutine.
//
// Bound: a client that does not read leaves its pieces here while its stream is computed to the end, so a
// mailbox holds at most the request's max_tokens, and there are as many mailboxes as admitted requests. One
// slow client never slows the engine down, because the batch is shared by all.

#include <boost/asio/basic_waitable_timer.hpp>
#include <memory>
#include <vector>

#include "common/core/mutex.h"
#include "common/core/time.h"
#include "common/net/task.h"
#include "worker/engine/engine.h"

namespace troupe {

class OutputChannel : public std::enable_shared_from_this<OutputChannel> {
 public:
  explicit OutputChannel(Executor executor);

  // Any thread; never blocks for long. Wakes the waiter once, however many pieces come in between.
  void put(EngineOutput piece);

  // The functions below run on the executor's thread only, in one coroutine.
  // Returns true when there is a piece to take, false when the deadline
  // passed first. Cancellation throws system_error(operation_aborted).
  Task<bool> wait(Deadline deadline);
  std::vector<EngineOutput> take();

 private:
  using Timer = asio::basic_waitable_timer<std::chrono::steady_clock,
                                           asio::wait_traits<std::chrono::steady_clock>, Executor>;
  bool has_pieces() const;

  Executor executor_;
  Timer timer_;  // armed only during wait(); cancelled to wake the waiter
  mutable Mutex mutex_;
  std::vector<EngineOutput> pieces_ ABSL_GUARDED_BY(mutex_);
  bool wake_posted_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace troupe

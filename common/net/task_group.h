#pragma once

// Owner of coroutines, so that none is detached. A group spawns tasks, then is closed, cancelled and joined;
// destroying a group that still runs tasks is an assert. All calls on the executor's thread.

#include <boost/asio/cancellation_signal.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include "common/net/task.h"

namespace troupe {

// The reason a task was cancelled: the same word in logs, metrics and tests.
enum class CancelReason { kNone, kClientGone, kClientSlow, kDeadline, kOverload, kShutdown };
std::string_view cancel_reason_name(CancelReason reason);

class TaskGroup {
 public:
  explicit TaskGroup(Executor executor);
  ~TaskGroup();  // REQUIRES: idle
  TaskGroup(const TaskGroup&) = delete;
  TaskGroup& operator=(const TaskGroup&) = delete;

  // Starts a task; returns false (and drops the task unstarted) once closed. An exception out of a task goes
  // to `on_error` if set, unless it is that of its cancellation; it never stops the group. (An abort without
  // a cancellation of the task is an error.)
  bool spawn(Task<void> task);
  // The same with a signal that the caller also keeps, to cancel this one task: the group cannot see whether
  // that was done, so it reports no abort.
  bool spawn(Task<void> task, std::shared_ptr<asio::cancellation_signal> signal);
  void close();       // no new tasks
  void cancel();      // terminal cancellation to every running task
  Task<void> join();  // waits for the last task; REQUIRES: not awaited by a task of this group
  size_t size() const;

  std::function<void(std::string_view what)> on_error;

 private:
  struct State;
  bool spawn(Task<void> task, std::shared_ptr<asio::cancellation_signal> signal, bool may_abort);
  std::shared_ptr<State> state_;
};

}  // namespace troupe

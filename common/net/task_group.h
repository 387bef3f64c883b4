#pragma once

// Owner of coroutines: nothing is detached and forgotten. A group is spawned into, then closed, cancelled,
// and joined; destroying a group that still runs tasks is an assert. All calls on the executor's thread.

#include <boost/asio/cancellation_signal.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include "common/net/task.h"

namespace troupe {

// Why a task was told to stop: the same word in logs, metrics and tests.
enum class CancelReason { kNone, kClientGone, kDeadline, kOverload, kShutdown };
std::string_view cancel_reason_name(CancelReason reason);

class TaskGroup {
 public:
  explicit TaskGroup(Executor executor);
  ~TaskGroup();  // REQUIRES: idle
  TaskGroup(const TaskGroup&) = delete;
  TaskGroup& operator=(const TaskGroup&) = delete;

  // Starts a task; false (and the task is dropped unstarted) once closed. An exception out of a task goes
  // to `on_error` if set, unless it is that of its cancellation; it never takes the group down. (A task that
  // is gone because somebody else cut its wait short is an error: nobody told it to stop.)
  bool spawn(Task<void> task);
  // The same with a signal the caller keeps too, to cancel this one task alone: whether that was done is not
  // known here, so an abort is nothing to report.
  bool spawn(Task<void> task, std::shared_ptr<asio::cancellation_signal> signal);
  void close();       // no new tasks
  void cancel();      // terminal cancellation to every running task
  Task<void> join();  // until the last one is done; REQUIRES: not awaited by a task of this group
  size_t size() const;

  std::function<void(std::string_view what)> on_error;

 private:
  struct State;
  bool spawn(Task<void> task, std::shared_ptr<asio::cancellation_signal> signal, bool may_abort);
  std::shared_ptr<State> state_;
};

}  // namespace troupe

// Each task has a cancellation signal of its own (a signal reaches one coroutine at a time); the group's
// cancel() emits them all. Every completion handler holds State with all that must outlive a running task
// (signals, counters), so a group whose io_context is destroyed first leaves nothing dangling.

#include "common/net/task_group.h"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <cassert>
#include <exception>
#include <list>
#include <utility>
#include <vector>

#include "common/net/timer.h"

namespace troupe {

using SignalPtr = std::shared_ptr<asio::cancellation_signal>;

struct TaskGroup::State {
  explicit State(Executor ex) : executor(ex), idle(ex) { idle.expires_at(TimePoint::max()); }

  Executor executor;
  struct Running {
    SignalPtr signal;
    bool may_abort;  // was cancelled, or perhaps was
  };
  std::list<Running> running;
  bool closed = false;
  Timer idle;  // cancelled, which wakes every joiner, when the last task ends
  TaskGroup* owner = nullptr;

  void report(const std::exception_ptr& error, bool may_abort) const {
    if (owner == nullptr || !owner->on_error) return;
    try {
      std::rethrow_exception(error);
    } catch (const boost::system::system_error& e) {
      if (e.code() != asio::error::operation_aborted || !may_abort) owner->on_error(e.what());
    } catch (const std::exception& e) {
      owner->on_error(e.what());
    } catch (...) {
      owner->on_error("an exception that is no std::exception");
    }
  }

  struct Done {
    std::shared_ptr<State> state;
    std::list<Running>::iterator entry;

    void operator()(const std::exception_ptr& error) const {
      const bool may_abort = entry->may_abort;
      state->running.erase(entry);
      if (error) state->report(error, may_abort);
      if (state->running.empty()) state->idle.cancel();
    }
  };
};

std::string_view cancel_reason_name(CancelReason reason) {
  switch (reason) {
    case CancelReason::kNone:
      return "none";
    case CancelReason::kClientGone:
      return "client_gone";
    case CancelReason::kClientSlow:
      return "client_slow";
    case CancelReason::kDeadline:
      return "deadline";
    case CancelReason::kOverload:
      return "overload";
    case CancelReason::kShutdown:
      return "shutdown";
  }
  return "unknown";
}

TaskGroup::TaskGroup(Executor executor) : state_(std::make_shared<State>(executor)) {
  state_->owner = this;
}

TaskGroup::~TaskGroup() {
  assert(state_->running.empty() && "TaskGroup destroyed before join()");
  state_->owner = nullptr;
}

bool TaskGroup::spawn(Task<void> task) {
  return spawn(std::move(task), std::make_shared<asio::cancellation_signal>(), false);
}

bool TaskGroup::spawn(Task<void> task, SignalPtr signal) {
  return spawn(std::move(task), std::move(signal), true);
}

bool TaskGroup::spawn(Task<void> task, SignalPtr signal, bool may_abort) {
  if (state_->closed) return false;
  const auto slot = signal->slot();
  const auto entry = state_->running.insert(state_->running.end(), {std::move(signal), may_abort});
  asio::co_spawn(state_->executor, std::move(task),
                 asio::bind_cancellation_slot(slot, State::Done{state_, entry}));
  return true;
}

void TaskGroup::close() {
  state_->closed = true;
}

void TaskGroup::cancel() {
  // A task may end and leave the list while its signal is emitted, so this iterates over a copy.
  std::vector<SignalPtr> signals;
  for (State::Running& task : state_->running) {
    task.may_abort = true;
    signals.push_back(task.signal);
  }
  for (const SignalPtr& signal : signals) signal->emit(asio::cancellation_type::terminal);
}

Task<void> TaskGroup::join() {
  const std::shared_ptr<State> state = state_;
  while (!state->running.empty()) {
    boost::system::error_code ignored;
    auto token = asio::redirect_error(use_task, ignored);
    co_await state->idle.async_wait(token);
    const auto cancellation = co_await asio::this_coro::cancellation_state;
    if (cancellation.cancelled() != asio::cancellation_type::none) {
      throw boost::system::system_error(asio::error::operation_aborted);
    }
  }
}

size_t TaskGroup::size() const {
  return state_->running.size();
}

}  // namespace troupe

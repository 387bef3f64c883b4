#pragma once

// Sleep of a task that has nothing to do until a time or until wake(): an idle process then does not wake at
// all, where a polling tick would wake it fifty times a second.

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>

#include "common/core/time.h"
#include "common/net/timer.h"

namespace troupe {

// Holds one sleeping task. All calls on the executor's thread.
class WakeableTimer {
 public:
  explicit WakeableTimer(Executor executor) : timer_(executor) {}

  // Sleeps until `at` (TimePoint::max(): for ever) or until wake(). Throws operation_aborted if the task
  // itself is cancelled.
  Task<void> sleep_until(TimePoint at) {
    timer_.expires_at(at);
    boost::system::error_code woken;
    auto token = asio::redirect_error(use_task, woken);
    co_await timer_.async_wait(token);
    const auto state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none)
      throw boost::system::system_error(asio::error::operation_aborted);
  }

  // For periodic work: sleeps for `most`, or until wake() but no less than `least` (which no wake()
  // shortens). A wake() counts from the end of the last rest on.
  Task<void> rest(Duration least, Duration most) {
    const TimePoint begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() < begin + least) co_await sleep_until(begin + least);
    if (!woken_) co_await sleep_until(begin + most);
    woken_ = false;
  }

  // Makes the task check again soon, if it sleeps; otherwise it checks before it sleeps.
  void wake() {
    woken_ = true;
    timer_.cancel();
  }

 private:
  Timer timer_;
  bool woken_ = false;  // since the last rest
};

}  // namespace troupe

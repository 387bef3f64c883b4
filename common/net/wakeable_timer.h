#pragma once

// How a task sleeps that has nothing to do until a time comes or somebody has news for it: an idle process
// then does not wake at all, where a tick would wake it fifty times a second.

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>

#include "common/core/time.h"
#include "common/net/timer.h"

namespace troupe {

// One task sleeps here. All calls on the executor's thread.
class WakeableTimer {
 public:
  explicit WakeableTimer(Executor executor) : timer_(executor) {}

  // Until `at` (TimePoint::max(): for ever) or until wake(). Throws operation_aborted where the task itself
  // is cancelled.
  Task<void> sleep_until(TimePoint at) {
    timer_.expires_at(at);
    boost::system::error_code woken;
    auto token = asio::redirect_error(use_task, woken);
    co_await timer_.async_wait(token);
    const auto state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none)
      throw boost::system::system_error(asio::error::operation_aborted);
  }

  // For a task that has work every `most`, sooner where there is news, and never more often than every
  // `least` (of which no wake() takes anything): news counts from the end of the last rest on.
  Task<void> rest(Duration least, Duration most) {
    const TimePoint begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() < begin + least) co_await sleep_until(begin + least);
    if (!woken_) co_await sleep_until(begin + most);
    woken_ = false;
  }

  // The task looks again soon, if it sleeps; if it does not, it will look before it sleeps.
  void wake() {
    woken_ = true;
    timer_.cancel();
  }

 private:
  Timer timer_;
  bool woken_ = false;  // since the last rest
};

}  // namespace troupe

#include "worker/http/output_channel.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <tuple>
#include <utility>

namespace troupe {

OutputChannel::OutputChannel(Executor executor) : executor_(executor), timer_(executor) {}

void OutputChannel::put(EngineOutput piece) {
  {
    const MutexLock lock(mutex_);
    pieces_.push_back(std::move(piece));
    if (wake_posted_) return;
    wake_posted_ = true;
  }
  asio::post(executor_, [self = shared_from_this()] {
    {
      const MutexLock lock(self->mutex_);
      self->wake_posted_ = false;
    }
    self->timer_.cancel();
  });
}

bool OutputChannel::has_pieces() const {
  const MutexLock lock(mutex_);
  return !pieces_.empty();
}

// No wake-up is lost: put() posts it to this thread, so it runs either before has_pieces() is checked or
// while the timer is awaited.
Task<bool> OutputChannel::wait(Deadline deadline) {
  const auto token = asio::as_tuple(use_task);
  while (!has_pieces()) {
    timer_.expires_at(deadline.at);
    const auto waited = co_await timer_.async_wait(token);
    const auto error = std::get<0>(waited);
    if (!error) co_return false;
    const auto cancellation = co_await asio::this_coro::cancellation_state;
    if (cancellation.cancelled() != asio::cancellation_type::none) throw boost::system::system_error(error);
  }
  co_return true;
}

std::vector<EngineOutput> OutputChannel::take() {
  const MutexLock lock(mutex_);
  return std::exchange(pieces_, {});
}

}  // namespace troupe

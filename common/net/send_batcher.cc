#include "common/net/send_batcher.h"

#include <boost/asio/post.hpp>
#include <utility>

namespace troupe {

// Runs after all handlers that are queued now, and after the next look at epoll.
struct SendBatcher::Reached {
  SendBatcher* turn;
  void operator()() const { turn->resume_all(); }
};

SendBatcher::SendBatcher(asio::execution_context& context)
    : service(context), io_(static_cast<asio::io_context&>(context)) {}

void SendBatcher::add(Waiter&& waiter) {
  waiting_.push_back(std::move(waiter));
  if (waiting_.size() == 1) asio::post(io_.get_executor(), Reached{this});
}

// A coroutine that waits again meanwhile waits for the end of the next turn.
void SendBatcher::resume_all() {
  resuming_.swap(waiting_);
  for (Waiter& waiter : resuming_) {
    Waiter resumed = std::move(waiter);
    resumed(boost::system::error_code());
  }
  resuming_.clear();
}

// The io_context is being destroyed: drops the waiting coroutines.
void SendBatcher::shutdown() {
  const std::vector<Waiter> dropped = std::exchange(waiting_, {});
}

}  // namespace troupe

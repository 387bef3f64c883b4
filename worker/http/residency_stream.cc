#include "worker/http/residency_stream.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>

namespace troupe {

namespace {

TimePoint now() {
  return std::chrono::steady_clock::now();
}

ResidencyItem item_of(const Resident& resident) {
  return {resident.kind, resident.name, resident.tokens, resident.pinned};
}

}  // namespace

// Lists a subscriber for the life of its coroutine, however that ends.
class ResidencyStream::Subscription {
 public:
  Subscription(ResidencyStream& stream, Subscriber& subscriber) : stream_(stream), subscriber_(subscriber) {
    stream_.subscribers_.push_back(&subscriber_);
    stream_.subscribers_gauge_.Increment();
  }
  ~Subscription() {
    std::erase(stream_.subscribers_, &subscriber_);
    stream_.subscribers_gauge_.Decrement();
  }
  Subscription(const Subscription&) = delete;
  Subscription& operator=(const Subscription&) = delete;

 private:
  ResidencyStream& stream_;
  Subscriber& subscriber_;
};

ResidencyStream::ResidencyStream(Executor executor, ResidencyPublisher& residency_publisher, Metrics& metrics,
                                 const Options& options)
    : executor_(executor),
      residency_publisher_(residency_publisher),
      options_(options),
      subscribers_gauge_(metrics.gauge("troupe_residency_subscribers", "Streams of GET /v1/residency open.")),
      changes_total_(metrics.counter("troupe_residency_changes_total",
                                     "Changes told of what sets and sessions hold in the prefix cache.")),
      cut_off_total_(metrics.counter("troupe_residency_cut_off_total",
                                     "Subscribers to residency that fell behind and were cut off.")),
      gather_timer_(executor) {}

void ResidencyStream::start() {
  residency_publisher_.listen([this] { asio::post(executor_, [this] { on_news(); }); });
}

void ResidencyStream::close() {
  closed_ = true;
  gather_timer_.cancel();
  for (Subscriber* subscriber : subscribers_) subscriber->timer.cancel();
}

void ResidencyStream::on_news() {
  if (closed_) return;
  const TimePoint at = pulled_at_ + options_.gather;
  if (at <= now()) return pull();
  gather_timer_.expires_at(at);
  gather_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && !closed_) pull();
  });
}

void ResidencyStream::pull() {
  pulled_at_ = now();
  changes_.clear();
  residency_publisher_.take(changes_);
  for (const Resident& change : changes_) append(change);
  while (log_bytes_ > options_.log_bytes_max) {
    log_bytes_ -= log_.front().size();
    log_.pop_front();
  }
  for (Subscriber* subscriber : subscribers_) subscriber->timer.cancel();
}

void ResidencyStream::append(const Resident& change) {
  const ResidencyItem item = item_of(change);
  if (item.tokens > 0) {
    held_[{item.kind, item.name}] = {item.tokens, item.pinned};
  } else {
    held_.erase({item.kind, item.name});
  }
  const auto kind = change.grew ? ResidencyEvent::Kind::kAdmitted : ResidencyEvent::Kind::kEvicted;
  append_residency_event(log_.emplace_back(), kind, residency_publisher_.epoch(), ++seq_, {&item, 1});
  log_bytes_ += log_.back().size();
  changes_total_.Increment();
}

bool ResidencyStream::cut_off(const Subscriber& subscriber) const {
  return seq_ - subscriber.sent_seq > log_.size();
}

// Appends every event that the subscriber has not received. REQUIRES: not cut off.
void ResidencyStream::collect(Subscriber& subscriber, std::string& bytes) const {
  const auto missing = static_cast<size_t>(seq_ - subscriber.sent_seq);
  for (size_t i = log_.size() - missing; i < log_.size(); ++i) bytes += log_[i];
  subscriber.sent_seq = seq_;
}

std::string ResidencyStream::snapshot() const {
  std::vector<ResidencyItem> items;
  items.reserve(held_.size());
  for (const auto& [key, held] : held_) items.push_back({key.first, key.second, held.tokens, held.pinned});
  std::string bytes;
  append_residency_event(bytes, ResidencyEvent::Kind::kSnapshot, residency_publisher_.epoch(), seq_, items);
  return bytes;
}

// Waits until there is something to send, the stream is closed, or a heartbeat is due.
Task<void> ResidencyStream::wait(Subscriber& subscriber) {
  subscriber.timer.expires_after(options_.heartbeat);
  boost::system::error_code woken;
  co_await subscriber.timer.async_wait(asio::redirect_error(use_task, woken));
}

Task<void> ResidencyStream::serve(HttpCall& call) {
  if (closed_) {
    const ApiError error = ApiError::unavailable("the worker is shutting down");
    co_await call.fail(error);
    co_return;
  }
  if (subscribers_.size() >= options_.subscribers_max) {
    const ApiError error = ApiError::overloaded("residency has all the subscribers it may have", 1);
    co_await call.fail(error);
    co_return;
  }
  Subscriber subscriber(executor_);
  const Subscription subscription(*this, subscriber);
  co_await call.start_events();
  const bool head_only = call.request().method == "HEAD";
  std::string bytes = snapshot();
  subscriber.sent_seq = seq_;
  while (!closed_ && !head_only) {
    co_await call.exchange().write(bytes);
    bytes.clear();
    if (subscriber.sent_seq == seq_ && !closed_) {
      co_await wait(subscriber);
      if (subscriber.sent_seq == seq_ && !closed_) bytes = ": hb\n\n";
    }
    if (cut_off(subscriber)) {
      cut_off_total_.Increment();
      break;
    }
    collect(subscriber, bytes);
  }
  call.exchange().close_after();
  co_await call.exchange().finish();
}

}  // namespace troupe

// Callbacks change state and wake the one waiter; the waiting loops then check the state again. A callback
// does nothing else, so a coroutine resumes from one place: wake(), called last by an Asio callback.

#include "common/net/channel.h"

#include <poll.h>

#include <boost/asio/post.hpp>
#include <cassert>
#include <cstring>
#include <utility>

#include "common/net/file_limit.h"

namespace troupe {

namespace {

bool has_room(Socket& socket) {
  pollfd item{socket.native_handle(), POLLOUT, 0};
  return ::poll(&item, 1, 0) > 0;
}

}  // namespace

void Pieces::advance(size_t bytes) {
  while (bytes > 0 && begin_ < end_) {
    const size_t step = std::min(bytes, items_[begin_].size());
    items_[begin_] += step;
    bytes -= step;
    if (items_[begin_].size() == 0) ++begin_;
  }
}

struct Channel::PeerReset {
  std::shared_ptr<Channel> self;

  explicit PeerReset(std::shared_ptr<Channel> channel) : self(std::move(channel)) {}
  PeerReset(PeerReset&&) = default;
  PeerReset& operator=(PeerReset&&) = delete;
  ~PeerReset() {
    if (self) self->abandon();
  }

  void operator()(const ErrorCode&) {
    const std::shared_ptr<Channel> channel = std::move(self);
    if (channel->closed_) return;
    channel->broken_ = true;
    channel->wake();
  }
  static void note_end(Channel& channel) {
    channel.ended_ = true;
    if (!channel.half_close_allowed_) return;
    channel.socket_.async_wait(Socket::wait_error, PeerReset(channel.shared_from_this()));
  }
};

// The callback of the outstanding read. Destroyed uncalled (when the io_context is destroyed) it drops the
// waiter: that coroutine owns this channel, and the two would keep each other alive.
struct Channel::ReadDone {
  std::shared_ptr<Channel> self;

  explicit ReadDone(std::shared_ptr<Channel> channel) : self(std::move(channel)) {}
  ReadDone(ReadDone&&) = default;
  ReadDone& operator=(ReadDone&&) = delete;
  ~ReadDone() {
    if (self) self->abandon();
  }

  // Over TLS: the socket or OpenSSL has input.
  void operator()(const ErrorCode& error) {
    const std::shared_ptr<Channel> channel = std::move(self);
    channel->on_readable(error);
  }
  void operator()() { (*this)(ErrorCode()); }

  void operator()(const ErrorCode& error, size_t bytes) {
    const std::shared_ptr<Channel> channel = std::move(self);
    channel->watched_.readable = false;
    if (channel->closed_) return channel->wake();
    channel->end_ += bytes;
    channel->bytes_received_ += bytes;
    if (error == asio::error::eof) {
      PeerReset::note_end(*channel);
    } else if (error) {
      channel->broken_ = true;
    }
    if (!channel->waiter_) channel->watch();
    channel->wake();
  }
};

struct Channel::WriteReady {
  std::shared_ptr<Channel> self;

  void operator()(const ErrorCode& error) const {
    self->watched_.writable = false;
    if (error && !self->closed_) self->send_broken_ = true;
    if (self->waiter_) self->wake();
  }
};

struct Channel::ConnectDone {
  std::shared_ptr<Channel> self;

  void operator()(const ErrorCode& error) const {
    self->connected_ = error;
    self->wake();
  }
};

struct Channel::TimerFired {
  std::shared_ptr<Channel> self;

  void operator()(const ErrorCode& error) const {
    if (error || self->closed_) return;
    self->armed_until_ = TimePoint::max();
    if (self->deadline_ == TimePoint::max()) return;
    if (std::chrono::steady_clock::now() < self->deadline_) return self->arm(self->deadline_);
    self->expired_ = true;
    self->wake();
  }
};

Channel::Channel(Socket socket, size_t buffer_bytes, bool half_close)
    : socket_(std::move(socket)),
      turn_end_(asio::use_service<SendBatcher>(socket_.get_executor().context())),
      timer_(socket_.get_executor()),
      buffer_(new char[buffer_bytes]),
      capacity_(buffer_bytes),
      half_close_allowed_(half_close) {}

// Cancellation resumes the coroutine through the queue, with operation_aborted.
void Channel::suspend(Waiter&& waiter) {
  assert(!waiter_ && "two waiters on one connection");
  auto slot = asio::get_associated_cancellation_slot(waiter);
  waiter_.emplace(std::move(waiter));
  if (slot.is_connected()) slot.assign([this](asio::cancellation_type) { cancel_wait(); });
}

void Channel::cancel_wait() {
  if (!waiter_) return;
  auto resume = [waiter = std::move(*waiter_)]() mutable { waiter(asio::error::operation_aborted); };
  waiter_.reset();
  asio::post(socket_.get_executor(), std::move(resume));
}

void Channel::abandon() {
  closed_ = true;
  if (!waiter_) return;
  asio::get_associated_cancellation_slot(*waiter_).clear();
  const std::optional<Waiter> dropped = std::exchange(waiter_, std::nullopt);
}

void Channel::wake() {
  if (waiter_) {
    Waiter waiter = std::move(*waiter_);
    waiter_.reset();
    waiter(ErrorCode());  // runs the coroutine, which may hold the last reference to this channel
  } else if (!closed_ && on_unwatched) {
    on_unwatched();
  }
}

Task<ErrorCode> Channel::connect(Tcp::endpoint peer) {
  const std::shared_ptr<Channel> self = shared_from_this();
  ErrorCode error;
  socket_.open(peer.protocol(), error);
  if (!error && is_kept_file(socket_.native_handle(), KeptFiles::kHalf)) error = asio::error::no_descriptors;
  if (error) co_return error;
  socket_.async_connect(peer, ConnectDone{self});
  while (!connected_) {
    if (expired_) co_return ErrorCode(asio::error::timed_out);
    co_await wait();
  }
  if (!*connected_) {
    socket_.set_option(Tcp::no_delay(true), error);
    if (!error) socket_.non_blocking(true, error);
    if (error) co_return error;
  }
  co_return *connected_;
}

std::optional<ChannelEvent> Channel::poll_event(uint64_t received) const {
  if (bytes_received_ != received) return ChannelEvent::kInput;
  if (broken_ || closed_) return ChannelEvent::kBroken;
  if (ended_) return ChannelEvent::kEnd;
  if (expired_) return ChannelEvent::kTimeout;
  return std::nullopt;
}

Task<ChannelEvent> Channel::more() {
  assert(!input_full());
  const uint64_t before = bytes_received_;
  std::optional<ChannelEvent> event;
  while (!(event = poll_event(before))) co_await next();
  co_return *event;
}

size_t Channel::read_now(char* to, size_t bytes_max) {
  if (watched_.readable || input_ended() || begin_ != end_) return 0;
  if (tls_) return read_records_into(to, bytes_max);
  ErrorCode error;
  const size_t bytes = socket_.read_some(asio::mutable_buffer(to, bytes_max), error);
  bytes_received_ += bytes;
  if (error == asio::error::eof) {
    PeerReset::note_end(*this);
  } else if (error && error != asio::error::would_block) {
    broken_ = true;
  }
  return bytes;
}

bool Channel::has_unread() {
  if (tls_ && !input_ended() && tls_->has_buffered()) return true;
  ErrorCode error;
  return !input_ended() && socket_.available(error) > 0 && !error;
}

void Channel::watch() {
  if (watched_.readable || input_ended() || input_full()) return;
  if (begin_ == end_) {
    begin_ = end_ = 0;
  } else if (begin_ > 0 && capacity_ - end_ < capacity_ / 2) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  watched_.readable = true;
  if (tls_) return watch_readable();
  const asio::mutable_buffer room(buffer_.get() + end_, capacity_ - end_);
  socket_.async_read_some(room, ReadDone(shared_from_this()));
}

bool Channel::write_now(Pieces& pieces) {
  if (tls_) return write_records(pieces);
  ErrorCode error;
  while (!pieces.empty() && !send_broken_ && !closed_) {
    const size_t written = socket_.write_some(pieces, error);
    pieces.advance(written);
    if (error == asio::error::would_block) break;
    if (error) send_broken_ = true;
  }
  return pieces.empty();
}

Task<WriteEvent> Channel::write(Pieces& pieces, const WriteOptions& options) {
  const bool timed = options.progress_timeout > Duration::zero();
  for (;;) {
    watch();  // the wake-up left no read outstanding, and nothing else would start one
    const size_t left_before = asio::buffer_size(pieces);
    // Once it is late only room that the kernel announces shows that the peer reads: asked for a write, it
    // takes a little more in any case.
    if (expired_ && !has_room(socket_)) co_return ended() ? WriteEvent::kPeerGone : WriteEvent::kTimeout;
    if (write_now(pieces)) co_return WriteEvent::kWritten;
    if (ended()) co_return WriteEvent::kPeerGone;
    if (options.stop_on_input && !input().empty()) co_return WriteEvent::kInterrupted;
    const bool progress = asio::buffer_size(pieces) < left_before || deadline_ == TimePoint::max();
    if (timed && progress) set_deadline(std::chrono::steady_clock::now() + options.progress_timeout);
    if (expired_) co_return WriteEvent::kTimeout;
    watch_writable();
    co_await wait();
  }
}

void Channel::watch_readable() {
  if (tls_->has_buffered()) {
    asio::post(socket_.get_executor(), ReadDone(shared_from_this()));
  } else {
    socket_.async_wait(Socket::wait_read, ReadDone(shared_from_this()));
  }
}

void Channel::watch_writable() {
  if (watched_.writable) return;
  watched_.writable = true;
  socket_.async_wait(Socket::wait_write, WriteReady{shared_from_this()});
}

void Channel::set_deadline(TimePoint at) {
  deadline_ = at;
  expired_ = false;
  if (at < armed_until_) arm(at);
}

void Channel::arm(TimePoint at) {
  armed_until_ = at;
  timer_.expires_at(at);
  timer_.async_wait(TimerFired{shared_from_this()});
}

void Channel::shutdown_send() {
  send_close_notify();
  ErrorCode ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
}

void Channel::close() {
  if (closed_) return;
  closed_ = true;
  ErrorCode ignored;
  socket_.close(ignored);
  timer_.cancel();
}

}  // namespace troupe

#pragma once

// One TCP connection, at either end: an input buffer, one deadline, one waiter. Private to common/net.
//
// Reads are not awaited one by one. A read into the buffer is kept outstanding by callback (watch()) while
// the coroutine does other work, so a disconnect is seen at once, pipelined bytes wait in order, and an idle
// pooled connection notices its end. The cost is one recv a message that finds nothing: Asio tries before it
// waits, and has to, because edge-triggered epoll reports bytes and an end that came together only once.
// Waiting for readiness instead (async_wait) costs an epoll_ctl. A coroutine awaits more() for input and
// write() for output. There is at most one waiter; an event without one goes to on_unwatched. The buffer is
// reserved once and bounds the memory a peer can occupy; when it is full no read is outstanding and TCP holds
// the peer back.
//
// The deadline is a stored time; the one timer re-checks it when it fires and is re-armed only for an earlier
// one, so a deadline an operation costs a comparison.
//
// TLS (secure()) changes nothing for the caller but two things: input is read when the socket reports some,
// straight from OpenSSL into the buffer or the caller's memory, and small pieces are gathered into one
// record. An end that the peer has not announced counts as a broken connection: bytes may be missing.
//
// All calls on the executor's thread. Hold it by shared_ptr: pending callbacks do too, until close().

#include <array>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "common/core/time.h"
#include "common/net/send_batcher.h"
#include "common/net/task.h"
#include "common/net/timer.h"
#include "common/net/tls_session.h"

namespace troupe {

using Tcp = asio::ip::tcp;
using Socket = asio::basic_stream_socket<Tcp, Executor>;
using ErrorCode = boost::system::error_code;

// Up to four pieces of memory to write in one go; written bytes are taken off the front.
class Pieces {
 public:
  void add(std::string_view bytes) {
    if (!bytes.empty()) items_[end_++] = asio::const_buffer(bytes.data(), bytes.size());
  }
  bool empty() const { return begin_ == end_; }
  size_t bytes() const {
    size_t sum = 0;
    for (const asio::const_buffer& item : *this) sum += item.size();
    return sum;
  }
  void advance(size_t bytes);

  using value_type = asio::const_buffer;
  using const_iterator = const asio::const_buffer*;
  const_iterator begin() const { return items_.data() + begin_; }
  const_iterator end() const { return items_.data() + end_; }

 private:
  std::array<asio::const_buffer, 4> items_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

enum class ChannelEvent { kInput, kEnd, kBroken, kTimeout };
enum class WriteEvent { kWritten, kInterrupted, kPeerGone, kTimeout };

struct WriteOptions {
  Duration progress_timeout = Duration::zero();  // > 0: renews the deadline at every progress
  bool stop_on_input = false;                    // returns kInterrupted once there is input
};

class Channel : public std::enable_shared_from_this<Channel> {
  // The awaiting coroutine's handler itself, without a Task around it: that would be one frame for every
  // wait, cold by the time it is freed.
  using Waiter = asio::detail::awaitable_async_op_handler<void(ErrorCode), Executor>;
  struct StartWait {
    Channel* channel;
    void operator()(Waiter&& waiter) const { channel->suspend(std::move(waiter)); }
  };
  using Wait = asio::deferred_async_operation<void(ErrorCode), StartWait>;

 public:
  // `half_close`: the end of input alone is not the end of the peer, which may still read. What is sent to
  // one that does not is answered by a reset, and then ended() is true, with a call of on_unwatched.
  Channel(Socket socket, size_t buffer_bytes, bool half_close = false);
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Waits for the connection. Returns Asio's error (timed_out once the deadline has passed).
  Task<ErrorCode> connect(Tcp::endpoint peer);

  // Uses TLS from here on. REQUIRES: connected, nothing read or written yet.
  void secure(std::unique_ptr<TlsSession> session) { tls_ = std::move(session); }
  // Comes first over TLS. timed_out: the deadline passed;
  // connection_aborted: tls()->failure() has the reason.
  Task<ErrorCode> handshake();
  const TlsSession* tls() const { return tls_.get(); }  // null: there is none
  // Continues in plain text after a failed handshake.
  void leave_tls() { tls_.reset(); }

  std::string_view input() const { return {buffer_.get() + begin_, end_ - begin_}; }
  void consume(size_t bytes) { begin_ += bytes; }
  bool input_full() const { return end_ - begin_ == capacity_; }
  uint64_t bytes_received() const { return bytes_received_; }
  // Bytes (or an end) have arrived that the event loop has not handed over yet.
  bool has_unread();

  // Reads bytes from the socket past the input buffer: for large bodies, which skip it. Returns 0 while a
  // read is outstanding or input() is not consumed: those bytes come first.
  size_t read_now(char* to, size_t bytes_max);

  // Waits until there is more input than now. REQUIRES: !input_full().
  Task<ChannelEvent> more();
  // more() in parts, without a coroutine of its own: returns what happened since bytes_received() was
  // `received`; if nothing yet, co_await next() and check again.
  std::optional<ChannelEvent> poll_event(uint64_t received) const;
  Wait next() {
    watch();
    return wait();
  }
  // Keeps a read outstanding, if there is room.
  void watch();

  // Awaited before a send, so that sends which follow at once join it.
  auto send_batcher() { return turn_end_.reached(); }
  // Writes as much as goes out without waiting; true if all did. A dead peer shows in ended().
  bool write_now(Pieces& pieces);
  // Writes the rest, waiting for the socket. `pieces` and its memory must live until it returns.
  Task<WriteEvent> write(Pieces& pieces, const WriteOptions& options);

  void set_deadline(TimePoint at);
  void clear_deadline() { set_deadline(TimePoint::max()); }
  bool expired() const { return expired_; }

  // The peer is gone (end of input or an error), or the connection was closed here.
  bool ended() const { return (ended_ && !half_close_allowed_) || broken_ || closed_ || send_broken_; }
  bool input_ended() const { return ended_ || broken_ || closed_; }
  // Ends the sending side. Over TLS it first announces the end, which the peer would otherwise take for a
  // broken connection; REQUIRES: nothing was left out.
  void shutdown_send();
  // Announces the end over TLS only, before a close() in good order.
  void send_close_notify();
  void close();

  Socket& socket() { return socket_; }

  // Receives input, end or deadline without a waiter. Called from the event loop, never from inside a call.
  std::function<void()> on_unwatched;

 private:
  struct ReadDone;
  struct PeerReset;
  struct WriteReady;
  struct ConnectDone;
  struct TimerFired;

  // Waits for any change of state. REQUIRES: no other waiter.
  Wait wait() {
    return asio::async_initiate<const asio::deferred_t&, void(ErrorCode)>(StartWait{this}, asio::deferred);
  }
  void suspend(Waiter&& waiter);
  void cancel_wait();
  void abandon();
  void wake();
  void arm(TimePoint at);
  void watch_writable();

  // Defined in channel_tls.cc.
  void watch_readable();
  void on_readable(const ErrorCode& error);
  bool read_records();
  size_t read_records_into(char* to, size_t bytes_max);
  bool write_records(Pieces& pieces);
  void note(TlsSession::State read);

  Socket socket_;
  SendBatcher& turn_end_;
  Timer timer_;
  std::unique_ptr<TlsSession> tls_;
  const std::unique_ptr<char[]> buffer_;
  const size_t capacity_;
  const bool half_close_allowed_;
  size_t begin_ = 0;
  size_t end_ = 0;
  uint64_t bytes_received_ = 0;

  std::optional<Waiter> waiter_;
  TimePoint deadline_ = TimePoint::max();
  TimePoint armed_until_ = TimePoint::max();
  std::optional<ErrorCode> connected_;
  bool expired_ = false;
  struct {
    bool readable = false, writable = false;
  } watched_;  // an asynchronous operation is outstanding
  bool ended_ = false;
  bool broken_ = false;
  bool send_broken_ = false;  // separate from ended input: an answer may still lie in the socket
  bool closed_ = false;
};

}  // namespace troupe

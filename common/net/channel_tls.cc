// The TLS side of a channel. A readable socket need not mean input: half a record or a ticket for resumption
// wakes no waiter.

#include <algorithm>
#include <cstring>

#include "common/net/channel.h"

namespace troupe {
namespace {

// Returns the next record's plain text: pieces smaller than a record
// are gathered, a large one is used in place.
std::string_view next_record(const Pieces& pieces, char* gathered) {
  const asio::const_buffer& first = *pieces.begin();
  if (first.size() >= TlsSession::kRecordBytesMax || pieces.begin() + 1 == pieces.end())
    return {static_cast<const char*>(first.data()), first.size()};
  size_t size = 0;
  for (const asio::const_buffer& piece : pieces) {
    const size_t step = std::min(piece.size(), TlsSession::kRecordBytesMax - size);
    std::memcpy(gathered + size, piece.data(), step);
    size += step;
  }
  return {gathered, size};
}

}  // namespace

Task<ErrorCode> Channel::handshake() {
  const std::shared_ptr<Channel> self = shared_from_this();
  for (;;) {
    if (closed_ || broken_) co_return ErrorCode(asio::error::connection_reset);
    if (expired_) co_return ErrorCode(asio::error::timed_out);
    const TlsSession::State state = tls_->handshake();
    if (state == TlsSession::State::kDone) co_return ErrorCode();
    if (state == TlsSession::State::kWantsInput) {
      watch();
    } else if (state == TlsSession::State::kWantsOutput) {
      watch_writable();
    } else {
      co_return ErrorCode(asio::error::connection_aborted);
    }
    co_await wait();
  }
}

void Channel::on_readable(const ErrorCode& error) {
  watched_.readable = false;
  if (closed_) return wake();
  if (error) broken_ = true;
  const bool has_events = error || read_records();
  if (!waiter_ || !has_events) watch();
  if (has_events) wake();
}

// Returns whether the channel's user has something to do.
bool Channel::read_records() {
  if (!tls_) return false;                // TLS was left meanwhile
  if (!tls_->established()) return true;  // the handshake reads by itself
  const uint64_t before = bytes_received_;
  TlsSession::State state = TlsSession::State::kDone;
  do {
    size_t bytes = 0;
    state = tls_->read(buffer_.get() + end_, capacity_ - end_, bytes);
    end_ += bytes;
    bytes_received_ += bytes;
    note(state);
  } while (state == TlsSession::State::kDone && end_ < capacity_ && tls_->has_buffered());
  return bytes_received_ != before || input_ended();
}

size_t Channel::read_records_into(char* to, size_t bytes_max) {
  size_t got = 0;
  TlsSession::State state = TlsSession::State::kDone;
  while (got < bytes_max && state == TlsSession::State::kDone) {
    size_t bytes = 0;
    state = tls_->read(to + got, bytes_max - got, bytes);
    got += bytes;
    note(state);
  }
  bytes_received_ += got;
  return got;
}

void Channel::note(TlsSession::State read) {
  if (read == TlsSession::State::kEnd) ended_ = true;
  // A read never has to write first: renegotiation is off.
  if (read == TlsSession::State::kBroken || read == TlsSession::State::kWantsOutput) broken_ = true;
}

bool Channel::write_records(Pieces& pieces) {
  char gathered[TlsSession::kRecordBytesMax];
  while (!pieces.empty() && !send_broken_ && !closed_) {
    size_t written = 0;
    const TlsSession::State state = tls_->write(next_record(pieces, gathered), written);
    pieces.advance(written);
    if (state == TlsSession::State::kWantsOutput) break;
    if (state != TlsSession::State::kDone) send_broken_ = true;
  }
  return pieces.empty();
}

void Channel::send_close_notify() {
  if (tls_ && !closed_) tls_->end_of_data();
}

}  // namespace troupe

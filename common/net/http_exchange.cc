// Writes answers. Head and first body bytes leave in one system call; a chunk is size, bytes and CRLF
// gathered in place.

#include <stdexcept>

#include "common/net/connection_shares.h"
#include "common/net/http_connection.h"

namespace troupe {
namespace {

constexpr std::string_view kAnswerStart = "HTTP/1.1 ";

bool has_no_body(int status) {
  return status < 200 || status == 204 || status == 304;
}

}  // namespace

void ServerExchange::reset() {
  reason = CancelReason::kNone;
  state_ = State::kFresh;
  out_.clear();
  chunked_ = bodiless_ = close_after_ = head_sent_ = false;
  bytes_sent_ = 0;
  keeps_alive_ = true;
}

std::string remote_address_of(const Socket& socket) {
  ErrorCode error;
  const auto peer = socket.remote_endpoint(error);
  return error ? std::string() : peer.address().to_string() + ":" + std::to_string(peer.port());
}

std::string share_of(const Socket& socket) {
  ErrorCode error;
  const auto peer = socket.remote_endpoint(error);
  return error ? std::string() : share_of(peer.address());
}

std::string ServerExchange::remote_address() const {
  if (remote_address_.empty()) remote_address_ = remote_address_of(channel_.socket());
  return remote_address_;
}

void ServerExchange::build_head(int status, const HeaderList& headers, BodyFraming framing, uint64_t length) {
  if (state_ != State::kFresh) throw std::logic_error("a second answer to one request");
  bodiless_ = has_no_body(status) || head.request.method == "HEAD";
  if (has_no_body(status)) framing = BodyFraming::kNone;
  chunked_ = framing == BodyFraming::kChunked;
  const bool leaves = context_.draining || context_.closes_after_answers;
  keeps_alive_ = head.request.keep_alive && !close_after_ && !leaves && framing != BodyFraming::kUntilClose;
  const HeaderList cors = cors_headers(context_.options.cors_origins, head.request);
  AnswerHeadSpec spec;
  spec.status = status;
  spec.headers = &headers;
  spec.more = &cors;
  spec.framing = framing;
  spec.content_length = length;
  spec.keep_alive = keeps_alive_;
  spec.http_1_0 = head.http_1_0;
  spec.date = context_.date.at(std::time(nullptr));
  out_.clear();
  append_answer_head(out_, spec);
  out_.erase(0, probed_);
}

void ServerExchange::probe_peer() {
  const bool is_fresh = state_ == State::kFresh && out_.empty() && probed_ == 0;
  const bool is_between_chunks =
      state_ == State::kStreaming && head_sent_ && chunked_ && !bodiless_ && out_.empty() && pieces_.empty();
  if (!is_fresh && !is_between_chunks) return;
  Pieces probe;
  probe.add(is_fresh ? kAnswerStart : std::string_view("0"));
  channel_.write_now(probe);
  if (is_fresh) probed_ = kAnswerStart.size() - probe.bytes();
}

Task<void> ServerExchange::respond(int status, const HeaderList& headers, std::string body) {
  build_head(status, headers, BodyFraming::kLength, body.size());
  pieces_ = Pieces();
  pieces_.add(out_);
  if (!bodiless_) pieces_.add(body);
  co_await channel_.send_batcher();
  if (!send_now()) co_await rest();
  state_ = State::kDone;
}

void ServerExchange::respond_now(int status, const HeaderList& headers, std::string_view body,
                                 bool keep_alive) {
  close_after_ = !keep_alive;
  build_head(status, headers, BodyFraming::kLength, body.size());
  Pieces pieces;
  pieces.add(out_);
  if (!bodiless_) pieces.add(body);
  head_sent_ = true;
  probed_ = 0;
  const size_t bytes = pieces.bytes();
  if (!channel_.write_now(pieces)) return;
  bytes_sent_ += bytes;
  state_ = State::kDone;
}

Task<void> ServerExchange::start(int status, const HeaderList& headers) {
  // HTTP/1.0 has no chunks: the end of the connection ends the body.
  build_head(status, headers, head.http_1_0 ? BodyFraming::kUntilClose : BodyFraming::kChunked, 0);
  state_ = State::kStreaming;
  co_return;
}

Task<void> ServerExchange::write(std::string_view bytes) {
  if (state_ != State::kStreaming) throw std::logic_error("write() without start()");
  const bool has_body = !bodiless_ && !bytes.empty();
  if (has_body && chunked_) append_chunk_head(out_, bytes.size());
  pieces_ = Pieces();
  pieces_.add(out_);
  if (has_body) pieces_.add(bytes);
  if (has_body && chunked_) pieces_.add("\r\n");
  co_await channel_.send_batcher();
  if (!send_now()) co_await rest();
}

Task<void> ServerExchange::finish() {
  if (state_ != State::kStreaming) throw std::logic_error("finish() without start()");
  if (chunked_ && !bodiless_) out_.append("0\r\n\r\n");
  pieces_ = Pieces();
  pieces_.add(out_);
  if (!send_now()) co_await rest();
  state_ = State::kDone;
}

// Bytes that the socket does not take wait in out_, and goes first in the next write.
bool ServerExchange::send_ahead(int status, const HeaderList& headers, std::string_view bytes) {
  if (!pieces_.empty() || state_ == State::kDone) return false;
  if (state_ == State::kStreaming && head_sent_ && !out_.empty()) return false;
  if (state_ == State::kFresh) {
    build_head(status, headers, head.http_1_0 ? BodyFraming::kUntilClose : BodyFraming::kChunked, 0);
    state_ = State::kStreaming;
  }
  if (!bodiless_ && chunked_) append_chunk_head(out_, bytes.size());
  if (!bodiless_) out_.append(bytes);
  if (!bodiless_ && chunked_) out_.append("\r\n");
  Pieces pieces;
  pieces.add(out_);
  head_sent_ = true;
  probed_ = 0;
  const size_t size = out_.size();
  channel_.write_now(pieces);
  out_.erase(0, size - pieces.bytes());
  bytes_sent_ += size - out_.size();
  return true;
}

void ServerExchange::cut() {
  reason = CancelReason::kClientGone;
  channel_.close();
}

bool ServerExchange::send_now() {
  if (pieces_.empty()) return true;
  head_sent_ = true;
  probed_ = 0;
  bytes_sent_ += pieces_.bytes();
  if (!channel_.write_now(pieces_)) return false;
  out_.clear();
  return true;
}

Task<void> ServerExchange::rest() {
  WriteOptions options;
  options.progress_timeout = context_.options.write_timeout;
  const WriteEvent event = co_await channel_.write(pieces_, options);
  channel_.clear_deadline();
  out_.clear();
  if (event == WriteEvent::kWritten) co_return;
  bytes_sent_ -= pieces_.bytes();
  cut();
  if (event == WriteEvent::kTimeout) reason = CancelReason::kClientSlow;
  throw boost::system::system_error(event == WriteEvent::kTimeout ? asio::error::timed_out
                                                                  : asio::error::connection_reset);
}

}  // namespace troupe

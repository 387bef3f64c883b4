// A request's body: of known length or chunked, within its own bounds and those of all bodies together.

#include <algorithm>

#include "common/core/append_by.h"
#include "common/json/text.h"
#include "common/net/chunk_decoder.h"
#include "common/net/http_connection.h"

namespace troupe {
namespace {

constexpr size_t kBodyBytesKept = 64u << 10;  // an idle connection keeps its body's memory up to this
// Size of the steps in which a body of known length gets memory ahead of its bytes.
constexpr size_t kBodyStepBytes = 256u << 10;
constexpr size_t kMuchAtOnce = 8u << 10;

}  // namespace

Task<bool> HttpConnection::read_body() {
  const RequestHead& head = exchange_.head;
  if (head.framing == BodyFraming::kLength && head.content_length > context_->options.body_bytes_max) {
    HttpFault fault;
    fault.http_status = 413;
    fault.message = "body over " + std::to_string(context_->options.body_bytes_max) + " bytes";
    co_await refuse(std::move(fault));
    co_return false;
  }
  start_deadline(context_->options.body_timeout);
  if (head.expect_continue && channel_->input().empty()) {
    Pieces pieces;
    pieces.add("HTTP/1.1 100 Continue\r\n\r\n");
    const WriteOptions options;
    const WriteEvent event = co_await channel_->write(pieces, options);
    if (event != WriteEvent::kWritten) co_return false;
  }
  if (head.framing == BodyFraming::kLength) co_return co_await read_sized_body();
  co_return co_await read_chunked_body();
}

Task<bool> HttpConnection::read_sized_body() {
  std::string& body = exchange_.head.request.body;
  const size_t size = static_cast<size_t>(exchange_.head.content_length);
  body.reserve(std::min(size, kBodyStepBytes) + kJsonPaddingBytes);
  for (;;) {
    const std::string_view input = channel_->input().substr(0, size - body.size());
    body.append(input);
    channel_->consume(input.size());
    if (input.size() >= kMuchAtOnce) read_straight_into(body, size);  // there may be more
    auto overflow = hold_body();
    if (overflow) {
      co_await refuse(std::move(*overflow));
      co_return false;
    }
    if (body.size() == size) co_return true;
    const ChannelEvent event = co_await channel_->more();
    if (event == ChannelEvent::kInput) continue;
    if (event == ChannelEvent::kTimeout) {
      HttpFault fault;
      fault.http_status = 408;
      fault.message = "body did not arrive in time";
      co_await refuse(std::move(fault));
    }
    co_return false;
  }
}

// Reads the body's bytes that the socket has. Memory grows with the bytes that came, one step ahead, not with
// the claimed length.
void HttpConnection::read_straight_into(std::string& body, size_t size) {
  size_t room = 0, got = 0;
  do {
    room = std::min(size - body.size(), kBodyStepBytes);
    if (room == 0) return;
    body.reserve(body.size() + room + kJsonPaddingBytes);
    got = append_by(body, room, [&](char* to) { return channel_->read_now(to, room); });
  } while (got == room);
}

Task<bool> HttpConnection::read_chunked_body() {
  ChunkDecoder decoder(context_->options.body_bytes_max);
  std::string& body = exchange_.head.request.body;
  for (;;) {
    channel_->consume(decoder.decode(channel_->input(), body));
    auto overflow = hold_body();
    if (!overflow && decoder.state() == ChunkDecoder::State::kDone) co_return true;
    HttpFault fault;
    if (overflow) {
      fault = std::move(*overflow);
    } else if (decoder.state() == ChunkDecoder::State::kTooLarge) {
      fault.http_status = 413;
      fault.message = "body over " + std::to_string(context_->options.body_bytes_max) + " bytes";
    } else if (decoder.state() == ChunkDecoder::State::kMalformed) {
      fault.message = std::string("malformed chunked body: ").append(decoder.error());
    } else {
      const ChannelEvent event = co_await channel_->more();
      if (event == ChannelEvent::kInput) continue;
      if (event != ChannelEvent::kTimeout) co_return false;
      fault.http_status = 408;
      fault.message = "body did not arrive in time";
    }
    co_await refuse(std::move(fault));
    co_return false;
  }
}

// Charges the body's growth to the server's total: connections_max
// bodies of body_bytes_max would exceed any machine.
std::optional<HttpFault> HttpConnection::hold_body() {
  const uint64_t bytes = exchange_.head.request.body.size();
  context_->body_bytes_held += bytes - body_bytes_held_;
  body_bytes_held_ = bytes;
  if (context_->body_bytes_held <= context_->options.bodies_bytes_max) return std::nullopt;
  return HttpFault{503, "too many large bodies at once: try again later"};
}

void HttpConnection::release_body() {
  context_->body_bytes_held -= body_bytes_held_;
  body_bytes_held_ = 0;
  std::string& body = exchange_.head.request.body;
  if (body.capacity() > kBodyBytesKept) std::string().swap(body);
}

}  // namespace troupe

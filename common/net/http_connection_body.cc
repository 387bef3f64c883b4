// A request's body: of known length or chunked, compressed or not, within its own bounds and its share of
// those of all bodies together.

#include <algorithm>

#include "common/core/append_by.h"
#include "common/json/text.h"
#include "common/net/chunk_decoder.h"
#include "common/net/http_connection.h"
#include "common/net/inflater.h"

namespace troupe {
namespace {

constexpr size_t kBodyBytesKept = 64u << 10;  // an idle connection keeps its body's memory up to this
// Size of the steps in which a body of known length gets memory ahead of its bytes.
constexpr size_t kBodyStepBytes = 256u << 10;
constexpr size_t kMuchAtOnce = 8u << 10;

HttpFault too_large(size_t bytes_max) {
  return HttpFault{413, "body over " + std::to_string(bytes_max) + " bytes"};
}

HttpFault too_late() {
  return HttpFault{408, "body did not arrive in time"};
}

}  // namespace

Task<bool> HttpConnection::read_body() {
  const RequestHead& head = exchange_.head;
  if (head.framing == BodyFraming::kLength && head.content_length > context_->options.body_bytes_max) {
    HttpFault fault = too_large(context_->options.body_bytes_max);
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
  bool whole = false;
  if (head.framing == BodyFraming::kLength) {
    whole = co_await read_sized_body();
  } else {
    whole = co_await read_chunked_body();
  }
  if (whole && head.coding != ContentCoding::kIdentity) whole = co_await inflate_body();
  body_share_.on_its_way = false;
  co_return whole;
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
    auto overflow = hold_body(body.size());
    if (!overflow && body.size() == size) co_return true;
    if (!overflow) {
      const ChannelEvent event = co_await channel_->more();
      if (event == ChannelEvent::kInput && !body_share_.lost) continue;
      if (event != ChannelEvent::kInput && event != ChannelEvent::kTimeout) co_return false;
      overflow = body_share_.lost ? hold_body(0) : too_late();
    }
    co_await refuse(std::move(*overflow));
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
    auto overflow = hold_body(body.size());
    if (!overflow && decoder.state() == ChunkDecoder::State::kDone) co_return true;
    HttpFault fault;
    if (overflow) {
      fault = std::move(*overflow);
    } else if (decoder.state() == ChunkDecoder::State::kTooLarge) {
      fault = too_large(context_->options.body_bytes_max);
    } else if (decoder.state() == ChunkDecoder::State::kMalformed) {
      fault.message = std::string("malformed chunked body: ").append(decoder.error());
    } else {
      const ChannelEvent event = co_await channel_->more();
      if (event == ChannelEvent::kInput && !body_share_.lost) continue;
      if (event != ChannelEvent::kInput && event != ChannelEvent::kTimeout) co_return false;
      fault = too_late();
      if (auto lost = hold_body(body.size())) fault = std::move(*lost);
    }
    co_await refuse(std::move(fault));
    co_return false;
  }
}

// Replaces the body by what it was before it was compressed, as if the client had sent that. Others have
// their turn after each step; meanwhile the body may be given up for theirs.
Task<bool> HttpConnection::inflate_body() {
  HttpRequest& request = exchange_.head.request;
  Inflater inflater(exchange_.head.coding, context_->options.body_bytes_max);
  std::string plain;
  std::string_view packed = request.body;
  Inflater::State state = Inflater::State::kMore;
  std::optional<HttpFault> fault;
  while (!fault) {
    state = inflater.step(packed, plain);
    fault = hold_body(request.body.size() + plain.size());
    if (state != Inflater::State::kMore || fault) break;
    co_await asio::post(exchange_.executor(), use_task);
    if (!channel_->socket().is_open()) co_return false;
    if (body_share_.lost) fault = hold_body(0);
  }
  if (state == Inflater::State::kTooLarge) fault = too_large(context_->options.body_bytes_max);
  if (state == Inflater::State::kMalformed)
    fault = HttpFault{400, "the body is not what Content-Encoding says, or it is cut off"};
  if (fault) {
    co_await refuse(std::move(*fault));
    co_return false;
  }
  plain.reserve(plain.size() + kJsonPaddingBytes);
  request.body = std::move(plain);
  std::erase_if(request.headers, [](const auto& header) { return header.first == "content-encoding"; });
  co_return !hold_body(request.body.size());
}

// Charges the body's growth to the server's total: connections_max bodies of body_bytes_max would exceed any
// machine.
std::optional<HttpFault> HttpConnection::hold_body(uint64_t bytes) {
  BodyShares& bodies = context_->bodies;
  const TimePoint now = std::chrono::steady_clock::now();
  if (!body_share_.lost) bodies.hold(body_share_, bytes, now);
  while (!body_share_.lost) {
    BodyShares::Share* const share = bodies.too_much(body_share_, context_->options.bodies_bytes_max, now);
    if (share == nullptr) return std::nullopt;
    // Its memory is free at once; its client is refused when its task has woken.
    HttpConnection& loser = *static_cast<BodyShare*>(share)->connection;
    loser.release_body();
    loser.body_share_.lost = true;
    loser.channel_->set_deadline(now);
  }
  return HttpFault{503, "too many large bodies at once: try again later"};
}

void HttpConnection::release_body() {
  context_->bodies.release(body_share_);
  body_share_.lost = false;
  std::string& body = exchange_.head.request.body;
  if (body.capacity() > kBodyBytesKept) std::string().swap(body);
}

}  // namespace troupe

#include "common/net/inflater.h"

#include <zlib.h>

#include <algorithm>

#include "common/core/append_by.h"

namespace troupe {
namespace {

constexpr int kWindowBits = 15;
constexpr int kGzipHeader = 16;  // added to the window's bits

// The two bytes that zlib's format begins with. Some clients send the bare deflate format under its name.
bool has_zlib_header(std::string_view bytes) {
  if (bytes.size() < 2) return false;
  const auto first = static_cast<unsigned char>(bytes[0]), second = static_cast<unsigned char>(bytes[1]);
  return (first & 0x0f) == Z_DEFLATED && (first * 256 + second) % 31 == 0;
}

}  // namespace

struct Inflater::Stream {
  z_stream z{};
  bool begun = false;
  bool member_ended = false;

  ~Stream() {
    if (begun) inflateEnd(&z);
  }
};

Inflater::Inflater(ContentCoding coding, size_t bytes_max)
    : coding_(coding), left_(bytes_max), stream_(std::make_unique<Stream>()) {}

Inflater::~Inflater() = default;

bool Inflater::begin(std::string_view packed) {
  if (stream_->begun) return true;
  int bits = kWindowBits + kGzipHeader;
  if (coding_ == ContentCoding::kDeflate) bits = has_zlib_header(packed) ? kWindowBits : -kWindowBits;
  stream_->begun = inflateInit2(&stream_->z, bits) == Z_OK;
  return stream_->begun;
}

// Another member may follow in a gzip body (RFC 1952, 2.2).
bool Inflater::begin_member(std::string_view packed) {
  if (coding_ != ContentCoding::kGzip || packed.empty()) return false;
  stream_->member_ended = false;
  return inflateReset(&stream_->z) == Z_OK;
}

Inflater::State Inflater::step(std::string_view& packed, std::string& out) {
  if (!begin(packed)) return State::kMalformed;
  if (stream_->member_ended && !begin_member(packed))
    return packed.empty() ? State::kDone : State::kMalformed;
  z_stream& z = stream_->z;
  const size_t taken = std::min(packed.size(), kPackedStepBytes);
  // zlib reads through a pointer to what is not const.
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  z.avail_in = static_cast<uInt>(taken);
  const size_t room = std::min(kStepBytes, left_) + 1;  // one more shows that there is too much
  int result = Z_OK;
  const size_t made = append_by(out, room, [&](char* to) {
    z.next_out = reinterpret_cast<Bytef*>(to);
    z.avail_out = static_cast<uInt>(room);
    result = inflate(&z, Z_NO_FLUSH);
    return room - z.avail_out;
  });
  packed.remove_prefix(taken - z.avail_in);
  if (made > left_) return State::kTooLarge;
  left_ -= made;
  if (result != Z_OK && result != Z_STREAM_END) return State::kMalformed;
  stream_->member_ended = result == Z_STREAM_END;
  return stream_->member_ended && packed.empty() ? State::kDone : State::kMore;
}

}  // namespace troupe

// A state machine: one step for each framing byte, and whole runs of data.

#include "common/net/chunk_decoder.h"

#include <algorithm>

namespace troupe {
namespace {

constexpr size_t kSizeDigitsMax = 15;
constexpr size_t kOverheadBytesMax = 16u << 10;

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool is_text(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte >= 0x20 && byte != 0x7f) || byte == '\t';
}

}  // namespace

size_t ChunkDecoder::decode(std::string_view in, std::string& out) {
  size_t used = 0;
  while (used < in.size() && state_ == State::kMore) {
    if (step_ != Step::kData) {
      step_byte(in[used++]);
      continue;
    }
    const size_t take = static_cast<size_t>(std::min<uint64_t>(chunk_left_, in.size() - used));
    out.append(in.substr(used, take));
    used += take;
    chunk_left_ -= take;
    if (chunk_left_ == 0) step_ = Step::kDataCr;
  }
  return used;
}

void ChunkDecoder::step_byte(char c) {
  switch (step_) {
    case Step::kSize:
      return size_byte(c);
    case Step::kExtension:
      if (c == '\r') {
        step_ = Step::kSizeLf;
      } else if (!is_text(c)) {
        fail("control character in a chunk extension");
      } else {
        count_overhead();
      }
      return;
    case Step::kSizeLf:
      return c == '\n' ? end_size_line() : fail("chunk size line does not end in CRLF");
    case Step::kData:
      return;
    case Step::kDataCr:
      step_ = Step::kDataLf;
      return c == '\r' ? void() : fail("chunk is longer than its size");
    case Step::kDataLf:
      step_ = Step::kSize;
      return c == '\n' ? void() : fail("chunk does not end in CRLF");
    case Step::kTrailer:
      if (c == '\r') {
        step_ = Step::kTrailerLf;
      } else if (!is_text(c)) {
        fail("control character in a trailer");
      } else {
        ++line_bytes_;
        count_overhead();
      }
      return;
    case Step::kTrailerLf:
      if (c != '\n') return fail("trailer line does not end in CRLF");
      if (line_bytes_ == 0) {
        state_ = State::kDone;
        return;
      }
      line_bytes_ = 0;
      step_ = Step::kTrailer;
      return;
  }
}

void ChunkDecoder::size_byte(char c) {
  const int digit = hex_digit(c);
  if (digit >= 0) {
    if (++line_bytes_ > kSizeDigitsMax) return fail("chunk size has too many digits");
    chunk_left_ = chunk_left_ * 16 + static_cast<uint64_t>(digit);
    return;
  }
  if (line_bytes_ == 0) return fail("chunk size is not a hexadecimal number");
  if (c == '\r') {
    step_ = Step::kSizeLf;
  } else if (c == ';') {
    step_ = Step::kExtension;
    count_overhead();
  } else {
    fail("chunk size is not a hexadecimal number");
  }
}

void ChunkDecoder::end_size_line() {
  line_bytes_ = 0;
  if (chunk_left_ == 0) {
    step_ = Step::kTrailer;
    return;
  }
  if (chunk_left_ > body_bytes_max_ - body_bytes_) {
    state_ = State::kTooLarge;
    return;
  }
  body_bytes_ += chunk_left_;
  step_ = Step::kData;
}

void ChunkDecoder::fail(std::string_view error) {
  state_ = State::kMalformed;
  error_ = error;
}

void ChunkDecoder::count_overhead() {
  if (++overhead_bytes_ > kOverheadBytesMax) fail("chunk extensions and trailers are too long");
}

}  // namespace troupe

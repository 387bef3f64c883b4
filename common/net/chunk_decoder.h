#pragma once

// Removes chunked transfer coding from a body: bytes in, body bytes out, no socket. Strict (RFC 9112 §7.1):
// hex sizes of at most 15 digits, CRLF only. Extensions and trailers are dropped, and bounded, because an
// endless one would cost the sender nothing.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

class ChunkDecoder {
 public:
  enum class State { kMore, kDone, kTooLarge, kMalformed };

  explicit ChunkDecoder(uint64_t body_bytes_max = UINT64_MAX) : body_bytes_max_(body_bytes_max) {}

  // Appends the decoded part of `in` to `out` and returns how many bytes of `in` it used (all of them while
  // kMore; bytes after the body are left).
  size_t decode(std::string_view in, std::string& out);
  State state() const { return state_; }
  std::string_view error() const { return error_; }  // when kMalformed

 private:
  enum class Step { kSize, kExtension, kSizeLf, kData, kDataCr, kDataLf, kTrailer, kTrailerLf };
  void step_byte(char c);
  void size_byte(char c);
  void end_size_line();
  void fail(std::string_view error);
  void count_overhead();

  const uint64_t body_bytes_max_;
  uint64_t body_bytes_ = 0;
  uint64_t chunk_left_ = 0;
  size_t overhead_bytes_ = 0;  // extensions and trailers
  size_t line_bytes_ = 0;      // digits of a size, bytes of a trailer line
  Step step_ = Step::kSize;
  State state_ = State::kMore;
  std::string_view error_;
};

}  // namespace troupe

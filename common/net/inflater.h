#pragma once

// Decompresses a request's body (Content-Encoding gzip or deflate), no further than a bound: a few bytes can
// expand a thousandfold. Pure; one per body.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "common/net/http_head.h"

namespace troupe {

class Inflater {
 public:
  enum class State { kMore, kDone, kMalformed, kTooLarge };

  // REQUIRES: `coding` is not kIdentity. A body may become `bytes_max` long.
  Inflater(ContentCoding coding, size_t bytes_max);
  ~Inflater();
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Appends what the next bytes of `packed`, all the rest of a body, make to `out`, at most kStepBytes, and
  // takes them off its front, at most kPackedStepBytes: blocks may be packed that make nothing. kMore: call
  // again. A body that ends too early is malformed.
  State step(std::string_view& packed, std::string& out);

  static constexpr size_t kStepBytes = 256u << 10;
  static constexpr size_t kPackedStepBytes = 64u << 10;  // 10 ms of a processor at worst

 private:
  struct Stream;
  bool begin(std::string_view packed);
  bool begin_member(std::string_view packed);

  const ContentCoding coding_;
  size_t left_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace troupe

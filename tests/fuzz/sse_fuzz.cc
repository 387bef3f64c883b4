// Any split of a stream gives the same events, and no event is larger than the bound. The first byte of the
// input seeds the split.

#include <cstdlib>
#include <string>
#include <vector>

#include "common/api/sse.h"

namespace {

constexpr size_t kEventBytesMax = 64;

struct Seen {
  std::vector<std::string> log;
  bool ok = true;
};

void feed(troupe::SseParser& parser, std::string_view bytes, Seen& seen) {
  const auto status = parser.feed(
      bytes,
      [&seen](const troupe::SseEvent& e) {
        if (e.data.size() > kEventBytesMax) std::abort();
        seen.log.push_back(e.event + "\x01" + e.data + "\x01" + e.id);
      },
      [&seen](std::string_view comment) { seen.log.push_back("\x02" + std::string(comment)); });
  if (seen.ok && !status.ok()) seen.ok = false;
  if (!seen.ok && status.ok() && !bytes.empty()) std::abort();  // failed parsers stay failed
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  Seen whole, split;
  troupe::SseParser whole_parser(kEventBytesMax), split_parser(kEventBytesMax);
  feed(whole_parser, text, whole);
  uint32_t state = data[0] + 1u;
  for (size_t at = 0; at < text.size();) {
    state = state * 1664525u + 1013904223u;
    const size_t piece = 1 + (state >> 24) % 7;
    feed(split_parser, text.substr(at, piece), split);
    at += piece;
  }
  if (whole.log != split.log || whole.ok != split.ok) std::abort();
  return 0;
}

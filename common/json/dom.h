#pragma once

// simdjson's tape with our strictness, for json.cc and the parsers that read the tape directly. It pulls in
// simdjson's large header, so include it only in .cc files and private headers.

#include <simdjson.h>

#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"
#include "common/json/json.h"
#include "common/json/text.h"

namespace troupe {

namespace dom = simdjson::dom;

// Parses strictly into a tape that lives until the next parse() or release(). Not thread-safe; keep one a
// worker thread, because its buffers make the next parse cheap.
class StrictJson {
 public:
  explicit StrictJson(int depth_max = JsonLimits{}.depth_max) : depth_max_(depth_max) {}

  // Returns the root of a document that passed every check of json.h.
  StatusOr<dom::element> parse(JsonText json, size_t bytes_max);

  // Frees the buffers of a large body (they are ~15 × the text); small ones are kept.
  void release_large();

 private:
  // The path to a value, as links on the stack: spelled out only for an error.
  struct Step {
    const Step* parent;
    std::string_view key;  // an object's key; data() is null for an array's item
    size_t index;
    int depth;  // number of open brackets at the value, its own included
  };
  static std::string path_text(const Step* step);

  // Checks depth and duplicate keys of `value`, to which `step` leads.
  Status check_value(dom::element value, const Step& step);
  Status check_object(dom::object object, const Step& step);
  Status too_deep(std::string_view where) const;
  // Returns the duplicate key; its data() is null if there is none.
  std::string_view duplicate_key(dom::object object);

  int depth_max_;
  dom::parser parser_;
  std::vector<std::string_view> keys_;  // scratch of duplicate_key
};

// This thread's parser for small texts: allocating its buffers would cost more than such a parse. Its tape
// lives until the thread's next small parse.
inline constexpr size_t kSmallJsonBytes = 4096;
StrictJson& small_json();

// Returns at most `bytes_max` bytes of `text`, whole characters, "…" if cut. For messages.
std::string clip_text(std::string_view text, size_t bytes_max = 64);
// Returns the position of the text's first error, as " at byte N", or empty if this second look finds none.
// Only for messages, after the strict parse has refused the text.
std::string locate_json_error(std::string_view text, int depth_max);

}  // namespace troupe

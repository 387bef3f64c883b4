#pragma once

// What json.cc and parse.cc share, and nobody else needs: simdjson's tape behind our strictness. Private
// to common/core (it pulls in simdjson's large header).

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
// thread of work, its buffers are what makes the next parse cheap.
class StrictJson {
 public:
  explicit StrictJson(int depth_max = JsonLimits{}.depth_max) : depth_max_(depth_max) {}

  // The root of a document in which every check of json.h has passed.
  StatusOr<dom::element> parse(JsonText json, size_t bytes_max);

  // Gives back buffers that one large body made (they are ~15 × the text); small ones are kept.
  void release_large();

 private:
  // The way to a value, as links on the stack: spelled out only for an error.
  struct Step {
    const Step* parent;
    std::string_view key;  // of an object's field; data() is null for an array's item
    size_t index;
    int depth;  // of the value's own brackets, from 1
  };
  static std::string path_text(const Step* step);

  // Depth and duplicate keys of `value`, to which `step` leads.
  Status check_value(dom::element value, const Step& step);
  Status check_object(dom::object object, const Step& step);
  Status too_deep(std::string_view where) const;
  // The key that occurs twice, or nullptr data.
  std::string_view duplicate_key(dom::object object);

  int depth_max_;
  dom::parser parser_;
  std::vector<std::string_view> keys_;  // scratch of duplicate_key
};

// This thread's parser for small texts: making its buffers would cost more than such a parse. What it has
// parsed lives until the thread's next small parse.
inline constexpr size_t kSmallJsonBytes = 4096;
StrictJson& small_json();

// At most `bytes_max` bytes of `text`, whole characters, "…" where something is cut. For messages.
std::string clip_text(std::string_view text, size_t bytes_max = 64);
// Where the first error of `text` lies, as " at byte N", or empty where this second look finds none. Only for
// messages, after the strict parse has refused the text.
std::string locate_json_error(std::string_view text, int depth_max);

}  // namespace troupe

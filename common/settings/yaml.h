#pragma once

// A settings file as a flat list of dotted keys. For settings*.cc, and code that has to know which keys a
// file has.

#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"

namespace troupe {

struct YamlEntry {
  enum class Kind { kPlain, kQuoted, kNull, kList, kEmptyMap };
  std::string key;                 // "limits.body_bytes"; within a list's map "upstreams.0.url"
  std::string text;                // kPlain, kQuoted
  std::vector<std::string> items;  // kList
  size_t maps = 0;                 // kList: items that are maps, whose own entries follow
  Kind kind = Kind::kNull;
  int line = 0;  // from 1
};

inline constexpr size_t kYamlBytesMax = 1u << 20;
inline constexpr int kYamlDepthMax = 16;

// In file order. Refused with "file:line: ": syntax errors, duplicate keys, anchors, aliases, tags, a second
// document, a root that is no map, lists in lists, lists of both scalars and maps, more than kYamlBytesMax or
// kYamlDepthMax.
StatusOr<std::vector<YamlEntry>> flatten_yaml(std::string_view text, std::string_view file_name);

}  // namespace troupe

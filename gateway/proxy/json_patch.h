#pragma once

// A client's body with some of its members replaced: the gateway's decisions for a request that the worker
// reads in the request itself. All other bytes stay as they came.

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

struct JsonPatch {
  std::string_view name;
  std::string json = {};    // its value, as it is written
  bool takes_away = false;  // the member is only taken away
};

// `body` without its outermost members of these names, however they are spelt there, and with these at its
// end. REQUIRES: `body` is one JSON object, as the strict parser takes it.
std::string with_members(std::string_view body, std::span<const JsonPatch> members);

// The elements of the array that is the outermost member of this name, as they are written in `body`; none
// where there is no such array. REQUIRES: as above.
std::vector<std::string_view> array_items(std::string_view body, std::string_view name);

}  // namespace troupe

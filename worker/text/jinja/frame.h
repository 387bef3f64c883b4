#pragma once

// The variables of a rendering, by scope.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/text/jinja/value.h"

namespace troupe::jinja {

// Variables of one scope; others are looked up in the parent.
struct Frame {
  explicit Frame(std::shared_ptr<Frame> parent_frame) : parent(std::move(parent_frame)) {}
  void set(std::string_view name, Value value);
  // Adds to `passed`, if given, the number of variables visited.
  const Value* find(std::string_view name, int64_t* passed = nullptr) const;

  std::shared_ptr<Frame> parent;
  std::vector<std::pair<std::string, Value>> variables;
};
using FramePtr = std::shared_ptr<Frame>;

}  // namespace troupe::jinja

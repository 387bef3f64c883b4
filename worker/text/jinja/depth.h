#pragma once

// Counts all recursion of a rendering: expressions, blocks, macros. Its limit is Python's, a thousand calls,
// which is long before the stack overflows.

#include "worker/text/jinja/runtime.h"

namespace troupe::jinja {

class Runtime::Depth {
 public:
  explicit Depth(Runtime& runtime) : depth_(runtime.depth_) {
    if (depth_ >= kMax) throw JinjaError("recursion of more than 1000 levels");
    ++depth_;
  }
  ~Depth() { --depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  static constexpr int kMax = 1000;
  int& depth_;
};

}  // namespace troupe::jinja

#pragma once

// A chat's fields about its thoughts: vLLM's, and OpenRouter's `reasoning`, which says the same in one
// object. Private to common/api.

#include <optional>
#include <string>
#include <string_view>

#include "common/api/read.h"

namespace troupe {

class GivenThinking {
 public:
  // Whether take() reads a field of that name.
  static bool knows(std::string_view name);
  Fault take(std::string_view name, dom::element value, GenerateRequest& request);
  // After all fields: what `reasoning` says holds where no field of its own says it.
  void settle(GenerateRequest& request) const;

 private:
  Fault take_member(std::string_view name, dom::element value);

  bool has_own_budget_ = false;
  // Members of `reasoning`.
  std::optional<int32_t> token_count_max_;
  std::string effort_;
  bool is_enabled_ = true, is_excluded_ = false;
};

}  // namespace troupe

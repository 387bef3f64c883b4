#include "worker/input/prepared_request.h"

#include <algorithm>

namespace troupe {

CacheBreak PromptPlaces::break_at(int64_t token) const {
  const auto behind = std::upper_bound(message_ends.begin(), message_ends.end(), token);
  const auto last = static_cast<int32_t>(message_ends.size()) - 1;
  const int32_t message = std::min(static_cast<int32_t>(behind - message_ends.begin()), last);
  return {message < fixed_count ? message : message + left_out, token};
}

}  // namespace troupe

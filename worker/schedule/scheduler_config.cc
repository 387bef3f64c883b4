#include "worker/schedule/scheduler_config.h"

#include <algorithm>
#include <string>

namespace troupe {

Status check_possible(const SchedulerConfig& config, int64_t prompt_count, int64_t max_new_count) {
  if (prompt_count < 1) return invalid_argument("the prompt is empty; it needs at least one token");
  if (max_new_count < 1) return invalid_argument("the number of tokens to generate must be at least 1");
  const auto prompt_text = [&] { return "the prompt has " + std::to_string(prompt_count) + " tokens; "; };
  const int64_t new_count = std::min(max_new_count, config.max_model_len - prompt_count);
  if (new_count < 1) {
    return invalid_argument(prompt_text() + "with one token to generate at most " +
                            std::to_string(config.max_model_len - 1) + " fit the model's length");
  }
  // The last token is never fed back, so its KV is never stored.
  const int64_t capacity = int64_t{config.block_count} * config.block_size;
  if (prompt_count + new_count - 1 > capacity) {
    return invalid_argument(prompt_text() + "with " + std::to_string(new_count) +
                            " to generate they do not fit the KV cache of " + std::to_string(capacity));
  }
  return absl::OkStatus();
}

Batching batching_of(std::string_view name) {
  if (name == "separate") return Batching::kSeparate;
  if (name == "static") return Batching::kStatic;
  return Batching::kMerged;
}

}  // namespace troupe

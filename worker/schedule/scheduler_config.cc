#include "worker/schedule/scheduler_config.h"

#include <algorithm>
#include <string>

namespace troupe {

namespace {

// The last token is never fed back, so its KV is never stored.
int64_t blocks_of(const SchedulerConfig& config, int64_t prompt_count, int64_t new_count) {
  return (prompt_count + new_count - 1 + config.block_size - 1) / config.block_size;
}

Status check_companion(const SchedulerConfig& config, int64_t prompt_count, int64_t new_count,
                       int64_t companion_count) {
  if (std::min({config.max_num_seqs, config.max_num_batched_tokens, config.max_waiting}) < 2) {
    return invalid_argument(
        "with guidance a request takes two sequences of a step and two places in the queue");
  }
  const int64_t most = most_new_beside_companion(config, config.block_count, prompt_count, companion_count);
  if (new_count <= most) return absl::OkStatus();
  return invalid_argument("the prompt has " + std::to_string(prompt_count) + " tokens and the negative one " +
                          std::to_string(companion_count) + "; with " + std::to_string(new_count) +
                          " to generate behind both they do not fit the KV cache of " +
                          std::to_string(int64_t{config.block_count} * config.block_size));
}

}  // namespace

int64_t most_new_beside_companion(const SchedulerConfig& config, int64_t blocks, int64_t prompt_count,
                                  int64_t companion_count) {
  int64_t fits = 0, too_many = blocks * config.block_size + 2;
  while (fits + 1 < too_many) {
    const int64_t middle = (fits + too_many) / 2;
    const int64_t needed =
        blocks_of(config, prompt_count, middle) + blocks_of(config, companion_count, middle);
    (needed <= blocks ? fits : too_many) = middle;
  }
  return fits;
}

Status check_possible(const SchedulerConfig& config, int64_t prompt_count, int64_t max_new_count,
                      int64_t companion_count) {
  if (prompt_count < 1) return invalid_argument("the prompt is empty; it needs at least one token");
  if (max_new_count < 1) return invalid_argument("the number of tokens to generate must be at least 1");
  const auto prompt_text = [&] {
    return (companion_count > prompt_count ? "the negative prompt has " : "the prompt has ") +
           std::to_string(std::max(prompt_count, companion_count)) + " tokens; ";
  };
  const int64_t new_count =
      std::min(max_new_count, config.max_model_len - std::max(prompt_count, companion_count));
  if (new_count < 1) {
    return invalid_argument(prompt_text() + "with one token to generate at most " +
                            std::to_string(config.max_model_len - 1) + " fit the model's length");
  }
  const int64_t capacity = int64_t{config.block_count} * config.block_size;
  if (prompt_count + new_count - 1 > capacity) {
    return invalid_argument(prompt_text() + "with " + std::to_string(new_count) +
                            " to generate they do not fit the KV cache of " + std::to_string(capacity));
  }
  if (companion_count > 0) return check_companion(config, prompt_count, new_count, companion_count);
  return absl::OkStatus();
}

Batching batching_of(std::string_view name) {
  if (name == "separate") return Batching::kSeparate;
  if (name == "static") return Batching::kStatic;
  return Batching::kMerged;
}

}  // namespace troupe

#pragma once

// A node as a file: configs/sim/NAME.yaml says how fast one machine computes one model and how many tokens of
// KV it holds. Every key but step.prefill_context_ns (0) is required, so that a file says all there is to its
// node; a node that cannot be is refused by the key's name.

#include <cstdint>
#include <string>
#include <string_view>

#include "common/core/status.h"
#include "worker/schedule/scheduler_config.h"
#include "worker/schedule/step_time.h"

namespace troupe {

struct NodeProfile {
  std::string name;  // the file's, without .yaml
  StepCosts costs;

  int64_t kv_cache_tokens = 0;
  int64_t block_size = 0;
  int64_t max_num_seqs = 0;
  int64_t max_num_batched_tokens = 0;
  int64_t max_model_len = 0;
};

// `file_name` is for errors ("file:line: …") and the profile's name.
StatusOr<NodeProfile> parse_node_profile(std::string_view yaml, std::string_view file_name);

// `name_or_path`: a path if it ends in .yaml, else the name of a file in configs/sim of the source tree or
// the installation (program_path.h). An unknown name is answered with those there are.
StatusOr<NodeProfile> load_node_profile(const std::string& name_or_path);

// `rules` with such a node's figures: its memory, and its limits of steps and lengths. All else stays.
SchedulerConfig scheduler_config(const NodeProfile& profile, SchedulerConfig rules = {});

}  // namespace troupe

#pragma once

// The limits and choices of a scheduler.

#include <cstdint>
#include <string_view>

#include "common/core/status.h"
#include "common/core/time.h"

namespace troupe {

// The blocks that an admission leaves free for running requests, so that it does not cause a preemption soon
// after.
enum class OutputReserve : uint8_t {
  kNone,       // one block each
  kPredicted,  // as many as their answers are expected to take, by the lengths of their set's answers so far
  kMax,        // as many as their max_new_count allows
};

// How a step is formed.
enum class Batching : uint8_t {
  kMerged,    // decodes and prompt chunks side by side
  kSeparate,  // either: prompt chunks as long as there is a prompt to compute, else a token for each decode
  // As kSeparate, and no request joins the running ones before all of them have ended: their places stay
  // empty. The requests that wait then are admitted at once, as far as there is room, and a prefix that
  // several of them share and that is not cached is computed by each. A preempted request comes with the next
  // batch.
  kStatic,
};
// REQUIRES: "merged", "separate" or "static".
Batching batching_of(std::string_view name);

struct SchedulerConfig {
  int32_t block_size = 16;               // tokens
  int32_t block_count = 0;               // KV budget
  int32_t max_num_seqs = 64;             // running at once
  int32_t max_num_batched_tokens = 512;  // a step's tokens
  int32_t max_waiting = 1024;
  int32_t max_model_len = 2048;
  int32_t max_passes = 16;  // younger requests admitted past the oldest waiting one that does not fit
  bool enable_prefix_caching = true;
  Batching batching = Batching::kMerged;
  // How long a prefill chunk may make a step in which others decode; zero: as long as it takes. Concerns
  // merged steps only.
  Duration tpot_budget{};
  OutputReserve output_reserve = OutputReserve::kPredicted;
  int32_t max_sets = 256;  // sets whose answers' lengths and work are kept apart

  // For a simulator that computes nothing (fast_forward.h). A worker leaves all of it off.
  struct Simulation {
    // Batches count the decodes of requests without ids instead of listing them, and commit() takes no tokens
    // for them; they end by their max_new_count.
    bool count_decodes = false;
    // Residency publishes blocks of requests without a session under their own hashes, for a trace that names
    // no conversations. Otherwise they belong to no holder.
    bool name_blocks = false;
    // set_work() stays empty; the simulator counts on its own.
    bool skip_set_work = false;
  };
  Simulation simulation = {};
};

// Whether a request of these lengths can ever run: kInvalidArgument says what would have to be shorter.
// Scheduler::add() checks the same; this is for a caller that must answer before it can reach the scheduler.
// `companion_count`: length of NewRequest::companion without emitted ids; 0: it has none.
Status check_possible(const SchedulerConfig& config, int64_t prompt_count, int64_t max_new_count,
                      int64_t companion_count = 0);
// The most tokens that an answer behind two prompts may have, each with KV of its own in `blocks`; below one
// where the prompts alone do not fit.
int64_t most_new_beside_companion(const SchedulerConfig& config, int64_t blocks, int64_t prompt_count,
                                  int64_t companion_count);

}  // namespace troupe

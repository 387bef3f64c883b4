#pragma once

// How long a node takes for a step, by the figures of one machine with one model and by the batch. A worker
// without a model sleeps for that time and the simulator counts with it, so both see the same node.
//
//   memory  = weights + decode_context · Σ KV tokens that the decodes read
//           + prefill_context · Σ tokens before a prefill chunk, once a chunk
//   compute = prefill_token · prefill tokens + prefill_pair · Σ their context + decode_token · decodes
//   step    = overhead + (overlaps ? max(memory, compute) : memory + compute)
//
// A GPU streams its weights and KV while its tensor cores work, so the slower of the two counts (a roofline);
// a CPU core does one after the other.

#include <cstdint>

#include "common/core/time.h"
#include "worker/schedule/batch.h"

namespace troupe {

struct StepCosts {
  bool overlaps = true;
  double overhead_us = 0;         // a step's own: launches, scheduling, sampling
  double weights_us = 0;          // reading the weights once
  double decode_token_us = 0;     // the products of one decode
  double decode_context_ns = 0;   // reading one token's KV for one decode
  double prefill_context_ns = 0;  // the same for one prefill chunk, however many tokens it has
  double prefill_token_us = 0;    // the products of one prompt token
  double prefill_pair_ns = 0;     // attention of one prompt token to one token of its context
};

// The quantities of a batch that its cost depends on. The sum of two loads is the load of both in one step.
struct StepLoad {
  int64_t decode_count = 0;
  int64_t decode_context_tokens = 0;   // Σ over decodes of the tokens they attend to, their own included
  int64_t prefill_context_tokens = 0;  // Σ over prefill chunks of the tokens before them
  int64_t prefill_tokens = 0;
  int64_t prefill_pairs = 0;  // Σ over prefill tokens of the same
  int64_t scored_rows = 0;    // prefill tokens whose logits are wanted; node profiles put no price on them

  void add_decode(int64_t context_count);
  void add_prefill(int64_t start, int64_t count);  // tokens [start, start + count) of one prompt
};
StepLoad step_load(const Batch& batch);

// Rises with every field of `load`, up to a day. Not for an empty batch: that is no step.
Duration step_duration(const StepCosts& costs, const StepLoad& load);

}  // namespace troupe

#pragma once

// One merged step: prefill chunks and decodes in one forward pass. Data only; the runner turns it into
// tensors.

#include <cstdint>
#include <span>
#include <vector>

#include "worker/schedule/request.h"

namespace troupe {

// Rows of an item, counted from the item's first.
struct RowRange {
  int32_t first = 0;
  int32_t count = 0;
};

// Part of one request in a step: compute KV for ids [start, start + count) and, if `samples`, the logits of
// the last. The spans point into the scheduler's request and stay valid until the next call into the
// scheduler.
struct BatchItem {
  RequestId id = 0;
  std::span<const TokenId> ids;  // the `count` new ids; empty for a request without ids
  int32_t count = 0;
  int32_t start = 0;     // position of ids[0]; KV of [0, start) is in the blocks already
  bool samples = false;  // the chunk reaches the last known id
  // It is of the companion of request `id`: no token is drawn from it. Where it samples, the item before it
  // is the request's, which samples, too.
  bool is_companion = false;
  RowRange scored = {};             // rows whose logits score the next id; every row of a prompt once
  int32_t sample_position = 0;      // number of tokens emitted before the one sampled now (generator key)
  std::span<const BlockId> blocks;  // covers at least start + count tokens
};

// A copy to be made before the step: the whole KV of block `from` into block `to`. `from` stays as it is for
// others; `to` belongs to an item of this step, which goes on in it behind the tokens it shares.
struct KvCopy {
  BlockId from = -1;
  BlockId to = -1;
};

// The token that a step drew for one item that samples; of a companion's all but the id is ignored.
struct StepToken {
  RequestId id = 0;
  TokenId token = 0;
  bool finished = false;  // stop token: do not schedule further (max_new_count is the scheduler's own check)
  bool corrupt = false;   // no token could be drawn: finished as well, and its KV must serve no other request
  // A provisional request's, else as they are here. The answer's first `settled_count` tokens stay for good;
  // the count never falls. `kept_count`, not below zero: those behind the first so many, `token` among them,
  // are taken back, and the next token drawn is that of position kept_count. REQUIRES: settled_count <=
  // kept_count.
  int32_t settled_count = 0;
  int32_t kept_count = -1;
  // Tokens of the answer behind `token` that nothing has to be drawn for: the next steps compute all of them,
  // in chunks, and draw behind the last. REQUIRES: no step is in flight; at most Scheduler::tokens_left() of
  // them; the request has ids and no companion, and is not provisional.
  std::span<const TokenId> run = {};
};

struct Batch {
  std::vector<BatchItem> items;
  std::vector<KvCopy> copies;
  int32_t token_count = 0;   // sum of the items' counts
  int32_t decode_count = 0;  // items with exactly one id that sample and have emitted before
  // Requests that had to give way for this step, youngest first: they wait again.
  std::vector<RequestId> preempted;
  // In a simulation (SchedulerConfig::Simulation::count_decodes): decodes that are counted beside the items,
  // and the tokens that they attend to, their own included. token_count contains the former.
  int32_t counted_decodes = 0;
  int64_t counted_context_tokens = 0;
  bool empty() const { return items.empty() && counted_decodes == 0; }
};

}  // namespace troupe

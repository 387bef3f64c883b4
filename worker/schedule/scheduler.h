#pragma once

// Decides what the next step computes. Data in, batch out: no threads, no clock, no device; `now` is an
// argument.
//
//   add() → waiting ──admit──▶ prefill (chunks) ──▶ decode ──▶ finish()
//                ▲                       │  out of blocks
//                └──── preempted (youngest first; recomputed, its prefix usually still cached)
//
// The rules:
// - A step holds the decodes first, then prefill chunks up to max_num_batched_tokens; beside decodes no more
//   of these than tpot_budget allows (the cost of a step is learned, step_cost.h).
// - The oldest prefill gets at least half of the prefill tokens; the rest goes first to the requests that
//   need fewer. So a long prompt neither starves nor holds up the others.
// - Only uncached tokens are charged. The last id of a prompt is always computed, since its logits are
//   needed: cached_count <= ids.size() - 1.
// - A waiting request that needs a block which a running request computes right now waits for it instead of
//   computing it again (one cold prefix is computed once). Where a cached block only begins as the request's
//   next block does, the request goes on in a copy of it (Batch::copies).
// - A request behind one that does not fit may pass it if it fits itself; the oldest waiting request cannot
//   be passed for ever (max_passes). add() refuses requests that can never run.
// - A draw may bring further tokens that are known without one (StepToken::run). Each step computes one of
//   them, as if it had been drawn, and beyond that as many as a chunk of a prompt may have; prefills come
//   behind them.
// - Tokens of a provisional request may be taken back until they are settled (StepToken): what is computed of
//   them counts for nothing and is never cached. The KV that stays is as if they had not been.
// - A request with a companion (NewRequest) takes two places, and the two are admitted and preempted as one.
//   Chunks compute all of both prompts but their last ids, which come together, with the decodes.
// - Requests in the background get what all others leave (background_prefill.h).
// These rules are those of merged steps; the other ways to form steps (Batching) are there to be compared.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/core/status.h"
#include "worker/kv/conversations.h"
#include "worker/kv/residency.h"
#include "worker/schedule/batch.h"
#include "worker/schedule/request.h"
#include "worker/schedule/scheduler_config.h"
#include "worker/schedule/scheduler_stats.h"
#include "worker/schedule/set_work.h"

namespace troupe {

class FastForward;

class Scheduler {
 public:
  explicit Scheduler(const SchedulerConfig& config);
  ~Scheduler();

  // The request waits from now on. kInvalidArgument: it can never run (too long for max_model_len or for all
  // blocks together; empty prompt; a known id; no room beside what is pinned). kResourceExhausted:
  // max_waiting is reached, or its pin would leave no room for another request. max_new_count is cut to what
  // max_model_len leaves.
  Status add(NewRequest request);
  // Plans the next step; it is empty when there is nothing to compute. Valid until commit() or advance().
  // REQUIRES: no step is in flight.
  const Batch& plan(TimePoint now);
  // The step was computed. `tokens`: one entry for each item with `samples`, in the batch's order. Requests
  // that finish (stop token, max_new_count or max_model_len reached) are removed and their blocks cached;
  // `finished` lists them.
  void commit(std::span<const StepToken> tokens, TimePoint now, std::vector<RequestId>& finished);
  // commit() in two, for a caller that launches a step while the one before is still being computed:
  //   plan 1, advance, plan 2, resolve 1, advance, plan 3, resolve 2, advance, …
  // advance(): the step counts as computed. Each request that samples has one more id from now on, whose
  // value is not known: until resolve() it is -1 - i of the i-th item that samples, and so the next batch
  // names it. A request that has all its tokens by their number has ended. REQUIRES: decodes are listed.
  void advance();
  // `tokens` of the step that was advanced last, as for commit(); those of requests that were removed since
  // are ignored. A request that a stop token ended may be in the step in flight, which counts for nothing.
  void resolve(std::span<const StepToken> tokens, TimePoint now, std::vector<RequestId>& finished);
  // The step failed: nothing of it counts; its blocks' contents are undefined again. Its copies will come
  // again.
  void abandon();
  // Drops a request wherever it is (client gone, stop string); unknown ids are ignored. REQUIRES: no step is
  // in flight, between plan() and commit() or advance().
  void remove(RequestId id);

  // Makes blocks pinned under this name (ScheduleSpec::pin) evictable again. REQUIRES: no step is in flight.
  void unpin(Hash128 name);
  // The names that blocks are pinned under; the count grows as they change.
  std::vector<Hash128> pins() const;
  uint64_t pin_change_count() const;

  // How many tokens its answer may still get; 0 for an unknown id.
  int32_t tokens_left(RequestId id) const;
  // Tokens found cached at first admission, for usage; -1 while never admitted.
  int32_t cached_count(RequestId id) const;
  const SchedulerStats& stats() const;
  // How much of each set and session is cached; the caller takes the changes.
  Residency& residency();
  // The conversations that are cached, as PrefixCache's functions of these names.
  std::vector<Conversation> conversations(size_t max_count) const;
  std::optional<Conversation> conversation(const Hash128& session) const;
  // Tokens computed for each set; decodes that are counted are not part of it.
  const SetWork& set_work() const;
  // Walks everything and checks the invariants (block conservation, tables, references). For tests and idle
  // ticks.
  Status verify() const;

  // For a simulator: many steps at once.
  FastForward& fast_forward();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe

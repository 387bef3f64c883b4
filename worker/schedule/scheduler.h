#pragma once

// Decides what the next step computes. Data in, batch out: no threads, no clock, no device; `now` is an
// argument.
//
//   add() → waiting ──admit──▶ prefill (chunks) ──▶ decode ──▶ finish()
//                ▲                       │  out of blocks
//                └──── preempted (youngest first; recomputed, its prefix usually still cached)
//
// Rules: decodes first, then prefill chunks up to max_batched_tokens, and beside decodes no more than
// tpot_budget allows (the cost of a step is learned, step_cost.h); the oldest prefill gets at least half of
// them, the rest goes first to those that need fewer: a long prompt neither starves nor holds up the others.
// Only uncached tokens are charged; a
// waiting request that needs a block which a running request is computing right now waits for it instead of
// computing it again (one cold prefix, computed once); a request behind one that does not fit may pass it as
// long as it fits itself, but the oldest waiting request cannot be passed for ever (ageing bound). Impossible
// requests are refused by add(). What is computed ahead of use, in the background, gets what all others leave
// (background_prefill.cc). Where a cached block begins as a request's next block does, the request goes
// on in a copy of it (Batch::copies). The last id of a prompt is always computed (its logits are needed), so
// cached_count <= ids.size() - 1. So it is with merged steps; the other ways to form them (Batching) are
// there to be compared with.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "common/core/status.h"
#include "worker/kv/conversations.h"
#include "worker/kv/residency.h"
#include "worker/schedule/batch.h"
#include "worker/schedule/request.h"
#include "worker/schedule/set_work.h"

namespace troupe {

// What an admission leaves free for those that run, so that it is not paid for by a preemption soon.
enum class OutputReserve : uint8_t {
  kNone,       // one block each
  kPredicted,  // what their answers are expected to take, by the lengths of their set's answers so far
  kMax,        // what their max_new_count allows
};

// What a step is formed of.
enum class Batching : uint8_t {
  kMerged,    // decodes and prompt chunks side by side
  kSeparate,  // either: prompt chunks as long as there is a prompt to compute, a token for each decode then
  // The same, and nobody joins those who run before all of them have ended: their places stay empty. Whoever
  // waits when the last has ended is admitted at once, as far as there is room, and what several of them
  // share without its being cached each computes. One that is preempted comes with the next batch.
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
  // Blocks of requests without a session are told of under their own hashes: how a simulator follows a trace
  // that names no conversations. Else they are nobody's.
  bool name_blocks = false;
  Batching batching = Batching::kMerged;
  // How long a prefill chunk may make a step in which others decode; zero: as long as it takes. Only merged
  // steps are such.
  Duration tpot_budget{};
  OutputReserve output_reserve = OutputReserve::kPredicted;
  int32_t max_sets = 256;      // whose answers' lengths and whose work are told apart
  bool count_set_work = true;  // off: set_work() stays empty, for who counts on his own
  // Off: batches count the decodes of requests without ids instead of listing them, and commit() takes no
  // tokens for them; they end by their max_new_count. For who computes nothing.
  bool itemize_decodes = true;
};

// Whether a request of these lengths can ever run: kInvalidArgument says what would have to be shorter.
// Scheduler::add() asks the same; who must answer before the scheduler can be asked calls this.
Status check_possible(const SchedulerConfig& config, int64_t prompt_count, int64_t max_new_count);

// What a step gave for one item that samples.
struct StepToken {
  RequestId id = 0;
  TokenId token = 0;
  bool finished = false;  // stop token: do not schedule further (max_new_count is the scheduler's own check)
};

struct SchedulerStats {
  int32_t running = 0, waiting = 0;
  int64_t pending_prefill_tokens = 0;  // uncached prompt tokens not computed yet, waiting ones included
  // Of these, what is in the background: it gives way to whoever comes.
  int32_t background_running = 0, background_waiting = 0;
  int64_t background_pending_tokens = 0;
  int32_t blocks_total = 0, blocks_free = 0, blocks_cached = 0, blocks_used = 0;
  int32_t blocks_pinned = 0;  // of those that are used
  int64_t preemptions_total = 0;
  int64_t computed_tokens_total = 0;      // all ids whose KV own steps computed
  int64_t prefix_query_tokens_total = 0;  // tokens looked up at first admission
  int64_t prefix_hit_tokens_total = 0;    // of those, found
  int64_t prefix_copied_tokens_total =
      0;  // of those, in a block that was copied because only part of it fits
  int64_t evicted_blocks_total = 0;
  int64_t evicted_shared_blocks_total = 0;  // of those, used by several sessions
  int64_t budget_limited_steps_total = 0;   // whose prefill tpot_budget cut
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerConfig& config);
  ~Scheduler();

  // kInvalidArgument: can never run (too long for max_model_len or for all blocks together; empty prompt;
  // a known id; no room for it beside what is pinned); kResourceExhausted: max_waiting reached, or its pin
  // would leave no room for a request that is here. max_new_count is cut to what max_model_len leaves.
  Status add(NewRequest request, TimePoint now);
  // The next step; empty when there is nothing to compute. Holds until commit() or advance().
  const Batch& plan(TimePoint now);
  // The step was computed. `tokens`: one entry for each item with `samples`, in the batch's order. Requests
  // that finish (stop token, max_new_count or max_model_len reached) are removed and their blocks cached;
  // they are what `finished` then lists.
  void commit(std::span<const StepToken> tokens, TimePoint now, std::vector<RequestId>& finished);
  // commit() in two, for who launches a step while the one before is still being computed:
  //   plan 1, advance, plan 2, resolve 1, advance, plan 3, resolve 2, advance, …
  // advance(): the step counts as computed. Of those that sample one more id is known to be there, not which:
  // until resolve() it is -1 - i of the i-th item that samples, and so the next batch names it. Who has all
  // its tokens by their number has ended. REQUIRES: itemize_decodes
  void advance();
  // `tokens` of the step that was advanced last, as for commit(); those of requests that were removed since
  // are not looked at. One that a stop token ended may be in the step in flight: it counts for nothing.
  void resolve(std::span<const StepToken> tokens, TimePoint now, std::vector<RequestId>& finished);
  // Of the step in flight and those behind it, as long as nothing is added: so many at least leave nothing to
  // tell but a token for each of the batch's counted decodes. Whoever has time to come back later may let
  // them go by at once. 0 where decodes are listed, or prefill is cut for their sake.
  int64_t uneventful_steps() const;
  // So many of them were computed, and the next one is in flight: as if by commit() and plan().
  void pass(int64_t steps);
  // Of a fleet's many nodes one is far from the processor when its turn comes: fetches what the end of a step
  // will look at. The counted decode that ends next, 0 where there is none.
  RequestId fetch_ahead() const;
  // The step failed: nothing of it counts; its blocks' contents are undefined again. Its copies will come
  // again.
  void abandon();
  // Client gone or stop string: drops a request wherever it is; unknown ids are ignored. Not while a step is
  // in flight: between plan() and commit() or advance().
  void remove(RequestId id);

  // What was pinned under this name (NewRequest::pin) may be evicted again. Not while a step is in flight.
  void unpin(Hash128 name);

  // For usage: tokens found cached at first admission, -1 while never admitted.
  int32_t cached_count(RequestId id) const;
  const SchedulerStats& stats() const;
  // What the cache holds of each set and session; its changes are the caller's to take.
  Residency& residency();
  // What the cache holds of conversations (PrefixCache).
  std::vector<Conversation> conversations(size_t max_count) const;
  std::optional<Conversation> conversation(const Hash128& session) const;
  // What was computed for each set, but for decodes that are only counted.
  const SetWork& set_work() const;
  // Walks everything and asserts the invariants (block conservation, tables, references). For tests and idle
  // ticks.
  Status verify() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe

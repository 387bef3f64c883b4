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
// - Requests in the background get what all others leave (background_prefill.h).
// These rules are those of merged steps; the other ways to form steps (Batching) are there to be compared.

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

class FastForward;

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
  Batching batching = Batching::kMerged;
  // How long a prefill chunk may make a step in which others decode; zero: as long as it takes. Only merged
  // steps are such.
  Duration tpot_budget{};
  OutputReserve output_reserve = OutputReserve::kPredicted;
  int32_t max_sets = 256;  // whose answers' lengths and whose work are told apart

  // For a simulator that computes nothing (fast_forward.h). A worker leaves all of it off.
  struct Simulation {
    // Batches count the decodes of requests without ids instead of listing them, and commit() takes no tokens
    // for them; they end by their max_new_count.
    bool count_decodes = false;
    // Residency tells blocks of requests without a session under their own hashes, for a trace that names no
    // conversations. Otherwise they belong to nobody.
    bool name_blocks = false;
    // set_work() stays empty; the simulator counts on its own.
    bool skip_set_work = false;
  };
  Simulation simulation = {};
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
  // Client gone or stop string: drops a request wherever it is; unknown ids are ignored. Not while a step is
  // in flight: between plan() and commit() or advance().
  void remove(RequestId id);

  // What was pinned under this name (ScheduleSpec::pin) may be evicted again. Not while a step is in flight.
  void unpin(Hash128 name);

  // For usage: tokens found cached at first admission, -1 while never admitted.
  int32_t cached_count(RequestId id) const;
  const SchedulerStats& stats() const;
  // What the cache holds of each set and session; its changes are the caller's to take.
  Residency& residency();
  // What the cache holds of conversations (PrefixCache).
  std::vector<Conversation> conversations(size_t max_count) const;
  std::optional<Conversation> conversation(const Hash128& session) const;
  // What was computed for each set; decodes that are counted are not part of it.
  const SetWork& set_work() const;
  // Walks everything and asserts the invariants (block conservation, tables, references). For tests and idle
  // ticks.
  Status verify() const;

  // For a simulator: many steps at once.
  FastForward& fast_forward();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe

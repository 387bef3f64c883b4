#pragma once

// A request as the scheduler knows it. The scheduler owns the token ids (prompt and emitted), because a
// preempted request is recomputed from them. A simulator's requests have no ids: nothing computes them, and
// hashes name from the start what their blocks hold.
//
// Three lengths, in this order at all times:  computed_count <= known_count <= prompt_count + max_new_count.
//   [0, cached_count)                KV found in the prefix cache at (last) admission; of the last block
//                                    perhaps only a part, which is copied
//   [cached_count, computed_count)   KV computed by own steps
//   [computed_count, known_count)    still to be computed; one id while decoding, or one and a run behind it

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/core/block_hash.h"
#include "common/core/time.h"
#include "worker/kv/types.h"

namespace troupe {

// The demands of a request on the scheduler and its cache: one struct, which the request carries from the
// engine on.
struct ScheduleSpec {
  Hash128 salt;     // root of the prefix chain: requests of different salts never share KV
  Hash128 set;      // zero: none
  Hash128 session;  // zero: none
  // Not zero: when the request ends, what is cached of its prompt is pinned under this name, until
  // Scheduler::unpin().
  Hash128 pin;
  int32_t prefix_count = 0;  // leading tokens of the prompt that are the set's
  bool planned = false;      // the set is at home here: its prefix is evicted after all else
  // No client reads along: the request is computed with what all others leave, gives way to them, and no
  // other request waits for a block that it computes.
  bool background = false;
  // The request wants as many tokens as fit: where pins leave less room its max_new_count is cut.
  bool cut_to_fit = false;
  // Tokens of the answer may be taken back until they are settled (StepToken): no block is cached or
  // announced for more of it, and whether it has all its tokens is decided once they are known.
  bool provisional = false;
};

struct NewRequest {
  RequestId id = 0;
  std::vector<TokenId> prompt;  // not empty, but for a request without ids
  int32_t max_new_count = 1;    // >= 1
  // The last ids of `prompt` that are emitted already: the answer goes on behind them, as that of a preempted
  // request does. Fewer than the prompt's ids and than max_new_count.
  int32_t emitted_count = 0;
  bool scores_prompt = false;  // the logits of all its prompt are wanted, so all of it is computed
  // Not empty: a second sequence, its companion, begins with these ids and goes on with the answer of this
  // one, whose emitted ids are its last ones, too. Both are computed side by side: admitted, preempted and
  // freed together, and the logits of both come from one step. REQUIRES: not in the background
  std::vector<TokenId> companion;
  ScheduleSpec spec;

  // In a simulation, for a request without ids (prompt empty): the prompt's length, and the hashes of the
  // full blocks of prompt and answer as far as they are known. No request finds an answer's block beyond
  // them.
  int32_t prompt_count = 0;
  std::vector<Hash128> block_hashes;
};

// Bit of the id by which a request's companion is kept. No caller's ids have it (the simulator's have the one
// above).
inline constexpr RequestId kCompanionBit = RequestId{1} << 62;

// Bit of arrival_index that makes a request in the background younger than every other.
inline constexpr uint64_t kBackgroundArrival = uint64_t{1} << 63;

enum class RequestPhase : uint8_t { kWaiting, kPrefill, kDecode };

struct alignas(64) ScheduledRequest {
  // All that a step reads of a request that only decodes: one line of memory.
  RequestId id = 0;
  uint64_t arrival_index = 0;   // older is smaller; the youngest is preempted first
  std::vector<BlockId> blocks;  // block table: ids [i*block_size, (i+1)*block_size) live in blocks[i]
  int32_t known_count = 0;      // prompt and emitted
  int32_t computed_count = 0;
  // Set for a decode that is counted (counted_decodes.h): the step at which none of its ids was computed, had
  // it decoded all along. Its lengths are then those of the last CountedDecodes::materialize().
  static constexpr int64_t kNotCounted = std::numeric_limits<int64_t>::min();
  int64_t zero_step = kNotCounted;
  int32_t prompt_count = 0;
  RequestPhase phase = RequestPhase::kWaiting;
  bool scores_prompt = false;
  bool stopped = false;  // by a stop token, while it was in the step in flight
  bool corrupt = false;  // then: StepToken::corrupt
  // Not below zero: the answer's tokens behind the first so many are taken back once no step is in flight.
  int32_t rewind_to = -1;

  std::vector<TokenId> ids;    // known_count of them, or none
  int32_t sampled_index = -1;  // of the last id, while its token is not known (Scheduler::advance)
  int32_t max_new_count = 0;
  // Its companion, or the request that it is the companion of; else null.
  ScheduledRequest* partner = nullptr;
  bool is_companion = false;
  int32_t cached_count = 0;
  int32_t first_cached_count = -1;  // at first admission: what usage.cached_tokens reports
  int32_t preemption_count = 0;
  int32_t settled_count = 0;  // of the emitted ids of a provisional request
  int32_t scored_count = 0;   // leading ids whose rows were scored; a preemption takes nothing of it back
  ScheduleSpec spec;          // prefix_count is at most prompt_count
  uint64_t user = 0;          // its user to the prefix cache: its session, or itself alone
  std::vector<Hash128> block_hashes;  // chained hash of each full block of ids, from the salt on
  LockedPrefix path;                  // the leading ones of `blocks` are the cache's, the others its own
  BlockId copy_from = -1;             // held until a step has copied it into the block of cached_count
  RadixNodeId copy_run = -1;          // run of copy_from, which is its only block
  int32_t announced = -1;             // index of the block that others wait for; below zero: none
  int32_t announce_end = 0;           // end of the blocks that it may announce

  // While waiting: what the last look-up in the prefix cache found. It is repeated once the cache changed.
  uint64_t lookup_change_count = ~uint64_t{0};  // PrefixCache::change_count() then
  int32_t lookup_found_count = 0;               // leading blocks found
  PartialMatch lookup_partial;                  // a block that begins as the next one does
  bool lookup_awaits = false;                   // the next block is being computed by another request
  int32_t passed_count = 0;                     // younger requests admitted while this one did not fit
  int32_t held_count = 0;      // steps in which it fitted, but no prefill tokens were left for it
  int32_t expected_count = 0;  // tokens it is expected to emit in all
  int32_t expected_until = 0;  // emitted tokens up to which that holds
  int64_t pending_tokens = 0;  // its share of SchedulerStats::pending_prefill_tokens
  int32_t pin_blocks = 0;      // blocks that its pin may come to

  bool in_background() const { return arrival_index >= kBackgroundArrival; }
  bool is_counted() const { return zero_step != kNotCounted; }
  int32_t rest_count() const { return known_count - computed_count; }  // ids still to be computed
  // The ids that chunks compute; the last ones of two partners are computed side by side.
  int32_t chunked_count() const { return rest_count() - (partner != nullptr ? 1 : 0); }
  int32_t emitted_count() const { return known_count - prompt_count; }     // tokens of the answer so far
  RequestId caller_id() const { return is_companion ? partner->id : id; }  // by which the caller knows it
  // Whether its partner will compute the block of this hash next. It cannot wait for that: both run, or none.
  bool partner_announces(Hash128 hash) const {
    return partner != nullptr && partner->announced >= 0 &&
           partner->block_hashes[static_cast<size_t>(partner->announced)] == hash;
  }
  bool has_all_tokens() const { return emitted_count() >= max_new_count; }
  // The first ids that no rewind takes back, of `count`, without the last of them: it may have to be computed
  // again, so its block stays the request's own.
  int32_t lasting_of(int32_t count) const {
    return spec.provisional ? std::min(count, prompt_count + settled_count - 1) : count;
  }
};

}  // namespace troupe

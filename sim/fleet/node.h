#pragma once

// A node of the simulated fleet: the worker's own scheduler and prefix cache, in which a step takes as long
// as the profile says and nothing is computed. Requests are known by the hashes of their blocks, not by token
// ids: what an answer will consist of is in the trace.
//
// Most steps bring each request another token and nothing else: those are gone through when the simulation
// looks (catch_up), and the node's next event is the end of the first step that may bring more.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/core/status.h"
#include "common/core/time.h"
#include "gateway/route/fleet/load_tracker.h"
#include "gateway/route/fleet/set_stats.h"
#include "sim/fleet/conservation.h"
#include "sim/fleet/decode_gaps.h"
#include "worker/kv/residency.h"
#include "worker/schedule/node_profile.h"
#include "worker/schedule/scheduler.h"

namespace troupe::sim {

class SimNode {
 public:
  // `rules`: of its scheduler, as far as the profile has no figures for them.
  SimNode(const NodeProfile& profile, const SchedulerConfig& rules);

  struct NewSimRequest {
    RequestId id = 0;
    int32_t prompt_tokens = 0;
    int32_t prefix_tokens = 0;  // of the set
    int32_t new_tokens = 1;     // to answer
    Hash128 set, session;
    bool planned = false;         // the set is at home here
    bool background = false;      // behind all that is answered
    std::vector<Hash128> blocks;  // one a full block of prompt and answer
  };
  // Errors as Scheduler::add(). REQUIRES: interrupt() at `now`.
  Status add(NewSimRequest sim_request, TimePoint now);
  // The gateway has cancelled it: no more of it is computed or reported. Unknown ids, of what has
  // just been answered, are ignored. REQUIRES: interrupt() at `now`, and no step runs.
  void cancel(RequestId id);

  // Plans the next step if none runs and there is work. When to call end_step(): at its end, or that of a
  // later step if all before it bring nothing but a token for each request.
  std::optional<TimePoint> begin_step(TimePoint now);
  // Steps that ended before `now` are over. All that follows is of the time of the last catch_up().
  void catch_up(TimePoint now);
  // The same; something is about to change what the steps behind the one that runs are. When to call
  // end_step() instead, if that is earlier now.
  std::optional<TimePoint> interrupt(TimePoint now);
  // A request's first token here, its last, or both. Those between are only counted.
  struct Token {
    RequestId id = 0;
    bool first = false, last = false;
    int32_t cached_tokens = 0;  // with the first: found at first admission
    int32_t tokens = 0;         // with the last: given here
    Duration longest_gap{};     // with the last: between two of them
  };
  // The step whose end begin_step() or interrupt() returned last is over. Valid until the next call.
  const std::vector<Token>& end_step(TimePoint now);
  struct Progress {
    int32_t tokens = 0;  // given here
    TimePoint last{};    // of them, if any
    Duration longest_gap{};
  };
  Progress progress(RequestId id) const;  // zero if it is not here
  bool stepping() const { return stepping_; }
  // Fetches the memory that the end of its step will need. The request that will have a token then, or one of
  // them; 0: that is not known.
  RequestId fetch_ahead() const;

  // Changes of what is resident since the last call. Appends.
  void take_changes(std::vector<Resident>& out);
  void snapshot(std::vector<Resident>& out) const;
  route::NodeReport report() const;
  // The conversations that a worker of ours reports, as Scheduler's.
  std::vector<Conversation> conversations() const {
    return scheduler_->conversations(static_cast<size_t>(kConversationsPerPlace * profile_.max_num_seqs));
  }
  std::optional<Conversation> conversation(const Hash128& session) const {
    return scheduler_->conversation(session);
  }
  // Work done for each set since the node's start.
  void set_counters(std::vector<route::SetLoadMerger::Counter>& out) const;

  void set_slowdown(double factor) { slowdown_ = factor; }
  const SchedulerStats& stats() const { return scheduler_->stats(); }
  int64_t work_tokens() const { return work_tokens_; }
  Status verify() const { return scheduler_->verify(); }
  const PromptSums& prompt_sums() const { return prompt_sums_; }
  // Requests here whose id is one to count.
  int64_t count_of(bool (*is_one)(RequestId)) const {
    return std::count_if(requests_.begin(), requests_.end(),
                         [&](const auto& entry) { return is_one(entry.first); });
  }

 private:
  struct SimRequest {
    int32_t new_tokens = 0, prompt_tokens = 0, prefix_tokens = 0;
    int32_t computed = 0;  // of its prompt, by steps before the one that ends it; -1: it has given way
    Hash128 set;
    int32_t emitted = 0;  // before it began to decode without a break
    DecodeGaps::Since decodes{};
    TimePoint last{};  // token before the break
    Duration longest_gap{};
  };
  struct SetWork {
    int64_t work_tokens = 0;
    int32_t prefix_tokens = 0;
  };

  Duration duration_of(const StepLoad& load) const;
  void step_over(TimePoint at);
  void sampled(RequestId id, int32_t last_computed, TimePoint now);
  void ended(RequestId id);
  Progress progress_of(const SimRequest& sim_request) const;

  NodeProfile profile_;
  std::unique_ptr<Scheduler> scheduler_;
  absl::flat_hash_map<RequestId, SimRequest> requests_;
  absl::flat_hash_map<Hash128, SetWork> set_work_;
  std::vector<Token> tokens_;
  std::vector<StepToken> step_tokens_;
  std::vector<int32_t> step_computed_;  // by the same index: tokens that the step computes for it
  std::vector<RequestId> finished_;
  bool stepping_ = false;
  int32_t counted_decodes_ = 0;  // of the step that runs
  int64_t uneventful_ = 0;       // it and the next ones, which are no events
  // Ends of the step that begin_step() planned, and of the uneventful ones behind it.
  std::vector<TimePoint> step_ends_;
  size_t next_end_ = 0;  // of the step that runs
  DecodeGaps gaps_;
  double slowdown_ = 1;
  int64_t work_tokens_ = 0;
  PromptSums prompt_sums_;
};

}  // namespace troupe::sim

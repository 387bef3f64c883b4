#pragma once

// Takes in what came of a step, in two halves: that it was computed, which is known when it is launched, and
// the tokens that were drawn. Between the two a request's last id is a placeholder for its token; blocks that
// are cached or hashed were computed a step earlier, so their ids are known by then. Pure; not thread-safe.

#include <memory>
#include <span>
#include <vector>

#include "common/core/time.h"
#include "worker/schedule/planned_step.h"
#include "worker/schedule/scheduler_state.h"

namespace troupe {

class StepCommit {
 public:
  // Both must outlive this.
  StepCommit(SchedulerState* state, PlannedStep* step) : state_(*state), step_(*step) {}

  // The step in flight counts as computed. `finished` gets the counted decodes that end; resolve() reports
  // the ends of others. REQUIRES: the step before it is resolved.
  void advance(std::vector<RequestId>& finished);
  // `tokens` of the step that was advanced last, one for each item that samples, in order. Appends to
  // `finished`. REQUIRES: advance() came before.
  void resolve(std::span<const StepToken> tokens, TimePoint now, std::vector<RequestId>& finished);
  // The step in flight failed: nothing of it counts.
  void abandon();
  // The request ends (SchedulerState::end), even if its token is not known yet.
  void end(ScheduledRequest& request, bool complete);

 private:
  // An item that sampled in the step that was advanced last.
  struct Sampled {
    RequestId id;
    ScheduledRequest* request;  // null: it is gone, and left `remains`
    bool ended;                 // by the number of its tokens
    std::unique_ptr<SchedulerState::Remains> remains = nullptr;
  };

  void advance_counted(std::vector<RequestId>& finished);
  void advance_item(ScheduledRequest& request, const BatchItem& item);
  void advance_companion(ScheduledRequest& companion);
  static void set_token(ScheduledRequest& request, const StepToken& token);
  void append_run(ScheduledRequest& request, std::span<const TokenId> run);
  void settle(ScheduledRequest& request, const StepToken& token);
  void end_stopped();
  void learn_cost(TimePoint now);

  SchedulerState& state_;
  PlannedStep& step_;
  bool unresolved_ = false;
  std::vector<Sampled> sampled_;
  std::vector<ScheduledRequest*> ended_;  // scratch of advance()
  // When no step is in flight these end, by a stop token, and tokens of those are taken back.
  std::vector<ScheduledRequest*> stopped_, rewound_;
  StepLoad advanced_load_;
  TimePoint advanced_at_{};  // when the step that was advanced last was planned
  TimePoint resolved_at_ = TimePoint::min();
};

}  // namespace troupe

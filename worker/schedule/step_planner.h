#pragma once

// Plans one step, and lives as long as that takes: built, asked for its plan() once, gone. What a plan has to
// remember while it is made (tokens left, whose turn it is) is therefore never left over from another one.

#include <cstddef>
#include <cstdint>

#include "worker/schedule/admission_reserve.h"
#include "worker/schedule/background_prefill.h"
#include "worker/schedule/planned_step.h"
#include "worker/schedule/scheduler_state.h"

namespace troupe {

class StepPlanner {
 public:
  // `step` is empty. All must outlive this.
  StepPlanner(SchedulerState* state, BackgroundPrefill* background, PlannedStep* step);

  // Fills the step: admits, chunks, grows and preempts.
  void plan();

 private:
  using Request = ScheduledRequest;

  void plan_merged();
  bool plan_prompts();
  void plan_decodes();
  void list_decodes();
  int64_t count_run_tokens(int32_t& start) const;
  void extend_runs();
  void count_decodes();
  void limit_prefill();
  void plan_prefills();
  void admit_waiting();
  void serve_background();
  void finish_oldest();
  void give_last_ids(Request& request);
  bool admit(Request& request);
  bool grow_or_preempt(Request& request);
  void preempt(Request& request);
  bool give_chunk(Request& request);
  int32_t price_of(const Request& request) const;
  void start_running(Request& request);
  void start_one(Request& request);
  void set_count(BatchItem& item, const Request& request, int32_t count) const;
  void extend_item(size_t index, int32_t count);
  void add_item(Request& request, int32_t count, int32_t price);

  SchedulerState& state_;
  const SchedulerConfig& config_;
  RequestQueues& queues_;
  BackgroundPrefill& background_;
  PlannedStep& step_;
  Batch& batch_;  // the step's
  AdmissionReserve reserve_;

  int32_t budget_;             // tokens that the step may still take
  double seconds_max_ = 0;     // how long it may take for the sake of its decodes; 0: as long as it takes
  bool has_runs_ = false;      // some decode has more ids to compute than the one that its item has
  bool time_cuts_ = false;     // it has less prefill for their sake
  Request* oldest_ = nullptr;  // the oldest that prefills; it has an item
  size_t oldest_item_ = 0;     // index of that item
  int64_t oldest_work_ = 0;    // all it needs, in tokens of budget_
  int32_t held_ = 0;           // tokens of budget_ that only it or a request with less to do may have
  bool preempted_ = false;     // a request gave way to a decode
  bool no_room_ = false;       // a request that is not in the background did not fit
  bool background_served_ = false;
};

}  // namespace troupe

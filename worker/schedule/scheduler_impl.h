#pragma once

// What step_planner.cc (who is computed next) and scheduler.cc (what comes in and what came of it) share.

#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "worker/schedule/block_tables.h"
#include "worker/schedule/decode_clock.h"
#include "worker/schedule/kv_forecast.h"
#include "worker/schedule/output_length_predictor.h"
#include "worker/schedule/scheduler.h"
#include "worker/schedule/set_work.h"
#include "worker/schedule/step_cost.h"

namespace troupe {

// Sets whose work is told: a load report is read every second by every gateway.
inline constexpr int32_t kSetsToldMax = 4096;

struct Scheduler::Impl {
  using Request = ScheduledRequest;

  explicit Impl(const SchedulerConfig& c)
      : config(c),
        tables({c.block_size, c.block_count, c.enable_prefix_caching, c.name_blocks,
                c.batching != Batching::kStatic}),
        lengths(c.max_sets),
        set_work(c.count_set_work ? std::min(c.max_sets, kSetsToldMax) : 0),
        forecast(c.block_size),
        clock(c.block_size) {}

  static int32_t count_of(size_t size) { return static_cast<int32_t>(size); }
  static bool arrived_before(const Request* a, const Request* b) {
    return a->arrival_index < b->arrival_index;
  }
  static void insert_by_arrival(std::vector<Request*>& list, Request* request) {
    list.insert(std::upper_bound(list.begin(), list.end(), request, arrived_before), request);
  }
  static void erase_by_arrival(std::vector<Request*>& list, Request* request) {
    list.erase(std::lower_bound(list.begin(), list.end(), request, arrived_before));
  }
  static int32_t rest_of(const Request& request) { return request.known_count - request.computed_count; }
  static int32_t emitted_by(const Request& request) { return request.known_count - request.prompt_count; }

  // step_planner.cc: the phases of a plan.
  void plan_step(TimePoint now);
  void begin_plan(TimePoint now);
  void plan_merged();
  bool plan_prompts();
  void plan_decodes();
  void list_decodes();
  void count_decodes();
  void limit_prefill();
  void plan_prefills();
  void admit_waiting();
  void finish_oldest();
  bool grow_or_preempt(Request& request);
  void preempt(Request& request);
  bool give_chunk(Request& request);
  int32_t price_of(const Request& request) const;
  void start_running(Request& request);
  void set_count(BatchItem& item, const Request& request, int32_t count) const;
  void add_item(Request& request, int32_t count, int32_t price);
  int32_t remaining_of(Request& request);
  KvForecast::Request forecast_of(Request& request);
  void forecast_running();
  int32_t reserve_count(Request& newcomer);

  // background_prefill.cc: what is computed ahead of use, and kept.
  size_t running_limit() const;
  bool has_place_for_background() const;
  void count_background();
  void serve_background();
  void claim_room();
  void make_way();
  // Blocks that are pinned, or may be when requests that are here end.
  int32_t kept_count() const { return tables.pinned_count() + reserved_count; }
  int64_t most_tokens(const Request& request, int32_t kept_blocks) const;
  Status check_room(Request& request);
  Status check_others(const Request& newcomer, bool cut);

  // step_commit.cc: what came of a step.
  void advance_step(std::vector<RequestId>& finished);
  void advance_counted(std::vector<RequestId>& finished);
  void advance_item(Request& request, const BatchItem& item);
  void resolve_step(std::span<const StepToken> tokens, TimePoint now, std::vector<RequestId>& finished);
  void erase_stopped();

  // scheduler.cc
  void look_up(Request& request);
  void set_pending(Request& request, int64_t token_count);
  void stop_running(Request& request);
  void erase(Request& request, bool complete);
  void refresh_stats();
  Status verify_queues() const;

  const SchedulerConfig config;
  BlockTables tables;
  OutputLengthPredictor lengths;
  SetWork set_work;
  KvForecast forecast;
  StepCost cost;
  absl::flat_hash_map<RequestId, std::unique_ptr<Request>> requests;
  std::vector<Request*> running;     // by arrival
  std::vector<Request*> prefilling;  // of those, by arrival
  std::vector<Request*> waiting;     // by arrival
  DecodeClock clock;                 // of those that decode, if they are only counted
  int32_t owed_ahead = 0;            // blocks for what those compute in the next step

  // The step being planned, or in flight.
  Batch batch;
  std::vector<Request*> batch_requests;  // beside its items
  TimePoint planned_at{};
  StepLoad load;
  int32_t budget = 0;         // tokens it may still take
  double seconds_max = 0;     // how long it may take for the sake of its decodes; 0: as long as it takes
  bool time_cuts = false;     // it has less prefill for their sake
  Request* oldest = nullptr;  // the oldest that prefills; it has an item
  size_t oldest_item = 0;
  int64_t oldest_work = 0;  // all it needs, in tokens of `budget`
  int32_t held = 0;         // tokens of `budget` that only it or a shorter one may have
  bool in_flight = false;

  // The step before, while its tokens are not known.
  struct Sampled {
    RequestId id;
    Request* request;  // null: it is gone
    bool ended;        // by the number of its tokens
  };
  std::vector<Sampled> sampled;
  bool unresolved = false;
  StepLoad advanced_load;
  TimePoint advanced_at{};  // when it was planned
  TimePoint resolved_at = TimePoint::min();
  std::vector<Request*> stopped;  // by it, to be erased when none is in flight

  bool preempted_now = false;
  bool background_served = false;
  bool no_room = false;  // a request that is not in the background did not fit

  std::vector<KvForecast::Request> forecast_requests;
  bool has_forecast = false;      // of those who run now
  int64_t running_new_count = 0;  // Σ max_new_count of those who run
  int32_t background_count = 0;   // of all requests
  int32_t reserved_count = 0;     // blocks that requests with a pin may come to
  bool makes_way = false;         // those in the background, at the next step
  std::vector<Request*> ended;    // scratch
  uint64_t next_arrival_index = 0;
  SchedulerStats stats;
};

}  // namespace troupe

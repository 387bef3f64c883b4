#include "sim/fleet/simulator.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/settings/option_checks.h"
#include "gateway/route/policy/policy.h"
#include "sim/fleet/conservation.h"
#include "sim/fleet/event_queue.h"
#include "sim/fleet/fault_injector.h"
#include "sim/fleet/handover_driver.h"
#include "sim/fleet/prefix_block_cache.h"
#include "sim/fleet/recorder.h"
#include "sim/fleet/request_driver.h"
#include "sim/fleet/request_table.h"
#include "sim/fleet/residency_reports.h"
#include "sim/fleet/sim_fleet.h"
#include "sim/fleet/sim_gateways.h"
#include "sim/fleet/stream_watch.h"
#include "sim/workload/distributions.h"

namespace troupe::sim {

namespace {

// One run: its parts, each of which takes its own events, and the loop that hands these out.
class Simulation {
 public:
  // REQUIRES: prepared(). Both outlive it.
  Simulation(RequestSource& source, const SimulationOptions& options);
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  // `first` is the source's first request; `more`: there is one.
  StatusOr<Result> run(TraceRequest first, bool more);

 private:
  Status arrive(TraceRequest& next, bool& more);
  void handle(const Event& event);
  void end_step(route::NodeIndex node);
  void second_over();
  void fetch_ahead(const Event& next) const;
  void report_progress();
  std::vector<NodeSums> sums_of(size_t first_node, size_t count);
  void check_conservation(size_t first_node, size_t count);
  Result result() const;

  RequestSource& source_;
  const SimulationOptions& options_;
  Draw draw_;
  EventQueue events_;
  SimFleet fleet_;
  ResidencyReports residency_;
  SimGateways gateways_;
  Recorder recorder_;
  PrefixBlockCache prefixes_;
  RequestTable requests_;
  StreamWatch streams_;
  RequestDriver driver_;
  HandoverDriver handover_;
  FaultInjector faults_;
  uint64_t event_count_ = 0;
  int32_t seconds_done_ = 0;
  std::chrono::steady_clock::time_point progress_at_ = std::chrono::steady_clock::now();
};

Recorder::Options recorder_options(const SimulationOptions& options) {
  return {.warmup = millis(options.warmup_s * 1e3),
          .slo_ttft_ms = options.slo_ttft_ms,
          .slo_tpot_ms = options.slo_tpot_ms,
          .pooled_kv_tokens = options.profile.kv_cache_tokens * options.nodes,
          .crowd_set = options.crowd_set,
          .crowd_begin = options.crowd_begin,
          .queue = options.admission.active()};
}

Simulation::Simulation(RequestSource& source, const SimulationOptions& options)
    : source_(source),
      options_(options),
      draw_(options.seed),
      fleet_(options, events_),
      residency_(options, events_, fleet_),
      gateways_({options, events_, fleet_, residency_}, draw_),
      recorder_(recorder_options(options)),
      prefixes_(options),
      streams_(options, events_, fleet_, requests_),
      driver_({options, events_, fleet_, gateways_, *residency_.residency(), prefixes_, requests_, streams_,
               recorder_, draw_}),
      handover_({options, events_, fleet_, gateways_, prefixes_}),
      faults_({options, events_, fleet_, residency_, gateways_, streams_, driver_, handover_, recorder_}) {
  gateways_.begin_rounds();
  events_.post(events_.now() + std::chrono::seconds(1), EventKind::kSecond);
  faults_.post_all();
}

// The source's next request; false: there is none. One that lies too far ahead is refused before anything up
// to it is simulated.
StatusOr<bool> read(RequestSource& source, TraceRequest& next) {
  TROUPE_ASSIGN_OR_RETURN(const bool more, source.next(next));
  if (more && next.at > TraceReader::kSpanMax) {
    return invalid_argument(absl::StrCat("a request arrives ", next.at / std::chrono::seconds(1),
                                         " s after the first; a run has at most ",
                                         TraceReader::kSpanMax / std::chrono::seconds(1)));
  }
  return more;
}

StatusOr<Result> Simulation::run(TraceRequest next, bool more) {
  driver_.look_ahead(next);
  TimePoint stop_at = TimePoint::max();
  while (true) {
    if (more && TimePoint{next.at} <= events_.next().at) {
      TROUPE_RETURN_IF_ERROR(arrive(next, more));
      if (!more) stop_at = events_.now() + millis(options_.drain_s * 1e3);
    } else {
      if (!more && (requests_.size() == 0 || events_.next().at > stop_at)) break;
      const Event event = events_.pop();
      fetch_ahead(events_.next());
      handle(event);
    }
    event_count_ += 1;
    const auto every = static_cast<uint64_t>(options_.conservation_every);
    if (every > 0 && event_count_ % every == 0) check_conservation(event_count_ / every % fleet_.size(), 1);
    if (options_.progress && event_count_ % 4096 == 0) report_progress();
    if (!more && requests_.size() == 0) break;
  }
  check_conservation(0, fleet_.size());
  driver_.end_all();
  second_over();
  return result();
}

// `next` arrives; then it is the one after it, if there is `more`.
Status Simulation::arrive(TraceRequest& next, bool& more) {
  if (next.block_tokens != options_.profile.block_size) {
    return invalid_argument(absl::StrCat("the trace begins with blocks of ", options_.profile.block_size,
                                         " tokens and goes on with ", next.block_tokens,
                                         "; one run has one block size"));
  }
  events_.advance(TimePoint{next.at});
  driver_.arrive(next);
  TROUPE_ASSIGN_OR_RETURN(more, read(source_, next));
  driver_.look_ahead(next);
  return absl::OkStatus();
}

void Simulation::handle(const Event& event) {
  const auto node = static_cast<route::NodeIndex>(event.index);
  switch (event.kind) {
    case EventKind::kDeliver:
      return driver_.deliver(event.value);
    case EventKind::kStepEnd:
      if (fleet_.step_ends(node, event.value)) end_step(node);
      return;
    case EventKind::kResidency:
      return residency_.deliver(node, event.value);
    case EventKind::kReports:
      return gateways_.reports_round(event.index);
    case EventKind::kGossip:
      return gateways_.gossip_round();
    case EventKind::kPlan:
      return gateways_.plan_round();
    case EventKind::kSecond:
      second_over();
      return events_.post(events_.now() + std::chrono::seconds(1), EventKind::kSecond);
    case EventKind::kDetect:
      return driver_.connections_break(node, event.value);
    case EventKind::kSilent:
      return driver_.silent(event.value, event.index);
    case EventKind::kProbe:
      return gateways_.probe(node, event.value);
    case EventKind::kSeen:
      return gateways_.node_returned(node, event.value);
    case EventKind::kHandover: {
      const bool goes_on = handover_.advance();
      faults_.stop_drained();
      if (goes_on) handover_.keep_going();
      return;
    }
    case EventKind::kQueue:
      return driver_.admission().on_time(static_cast<size_t>(event.index), event.value);
    case EventKind::kFault:
      return faults_.begin(static_cast<size_t>(event.index));
    case EventKind::kFaultEnd:
      return faults_.end(static_cast<size_t>(event.index));
  }
}

void Simulation::end_step(route::NodeIndex node) {
  for (const SimNode::Token& token : fleet_.end_step(node)) {
    if (!BackgroundPrefills::is_one(token.id)) {
      driver_.on_token(token);
    } else if (token.last) {
      handover_.computed(token.id);
    }
  }
  fleet_.drop_given_up(node);
  residency_.report(node);
  fleet_.begin_step(node);
}

void Simulation::second_over() {
  recorder_.second_over(seconds_done_++, fleet_.stands());
}

void Simulation::fetch_ahead(const Event& next) const {
  if (next.kind != EventKind::kStepEnd) return;
  const SimNode* const engine = fleet_[static_cast<size_t>(next.index)].engine.get();
  if (engine == nullptr) return;
  const RequestId id = engine->fetch_ahead();
  if (id != 0 && !BackgroundPrefills::is_one(id)) requests_.prefetch(id);
}

void Simulation::report_progress() {
  const auto wall_now = std::chrono::steady_clock::now();
  if (wall_now - progress_at_ <= std::chrono::milliseconds(500)) return;
  progress_at_ = wall_now;
  options_.progress(std::chrono::duration<double>(events_.now().time_since_epoch()).count(),
                    driver_.sums().arrived);
}

// Sums of `count` nodes, in one walk along all requests.
std::vector<NodeSums> Simulation::sums_of(size_t first_node, size_t count) {
  std::vector<NodeSums> sums(count);
  requests_.for_each([&](const SimRequest& request) {
    if (!request.taken_at || request.node < first_node || request.node >= first_node + count) return;
    if (request.node_incarnation == fleet_[request.node].incarnation)
      sums[request.node - first_node].sent += 1;
  });
  for (size_t i = 0; i < count; ++i) {
    const FleetNode& node = fleet_[first_node + i];
    if (node.engine == nullptr) continue;
    sums[i].sent += static_cast<int64_t>(node.given_up.size());
    sums[i].held = node.engine->count_of([](RequestId id) { return !BackgroundPrefills::is_one(id); });
  }
  return sums;
}

void require_conserved(const Status& status) {
  if (!status.ok()) conservation_broken(to_std(status.message()));
}

// Requests and tokens of the whole fleet, requests and blocks of `count` nodes.
void Simulation::check_conservation(size_t first_node, size_t count) {
  RequestSums sums = driver_.sums();
  sums.on_their_way = static_cast<int64_t>(requests_.size());
  require_conserved(check(sums));
  const std::vector<NodeSums> of_nodes = sums_of(first_node, count);
  for (size_t n = first_node; n < first_node + count; ++n) {
    const SimNode* const engine = fleet_[n].engine.get();
    if (engine == nullptr) continue;
    require_conserved(check(of_nodes[n - first_node]));
    require_conserved(check(engine->prompt_sums()));
    require_conserved(engine->verify());
  }
}

// It says what it is of; its figures follow.
Result Simulation::result() const {
  Result result;
  const route::PolicyInfo& policy = route::policy_info(options_.router.policy);
  result.policy = policy.name;
  if (policy.reads_residency) result.mode = route::mode_name(options_.router.affinity.mode);
  result.nodes = options_.nodes;
  result.gateways = options_.gateways;
  result.seed = options_.seed;
  result.profile = options_.profile.name;
  recorder_.fill(result);
  result.events = static_cast<int64_t>(event_count_);
  result.simulated_requests = driver_.sums().arrived;
  result.decision_us = driver_.decision_us();
  return result;
}

// The options as a run of this source needs them. `first`: null where it has no requests.
StatusOr<SimulationOptions> prepared(SimulationOptions options, const TraceRequest* first) {
  // Ids stand for whole blocks, so nodes must cut prompts as the trace does.
  if (first != nullptr) options.profile.block_size = first->block_tokens;
  if (options.profile.kv_cache_tokens < options.profile.block_size) {
    return invalid_argument(absl::StrCat("the trace's blocks of ", options.profile.block_size,
                                         " tokens do not fit the ", options.profile.kv_cache_tokens,
                                         " KV tokens of profile ", options.profile.name));
  }
  TROUPE_RETURN_IF_ERROR(check(options));
  options.router.affinity.gateways = options.gateways;
  // The others are as their originals are.
  if (!route::policy_info(options.router.policy).follows_table) options.join_ramp_s = options.handover_s = 0;
  return options;
}

}  // namespace

StatusOr<Result> simulate(RequestSource& source, const SimulationOptions& options) {
  const auto wall_begin = std::chrono::steady_clock::now();
  TraceRequest first;
  TROUPE_ASSIGN_OR_RETURN(const bool more, read(source, first));
  TROUPE_ASSIGN_OR_RETURN(const SimulationOptions prepared_options,
                          prepared(options, more ? &first : nullptr));
  TROUPE_ASSIGN_OR_RETURN(Result result, Simulation(source, prepared_options).run(std::move(first), more));
  result.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - wall_begin).count();
  return result;
}

}  // namespace troupe::sim

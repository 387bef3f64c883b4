#include "sim/fleet/node.h"

#include <algorithm>
#include <utility>

#include "worker/schedule/fast_forward.h"

namespace troupe::sim {

namespace {

SchedulerConfig config_of(const NodeProfile& profile, const SchedulerConfig& rules) {
  SchedulerConfig config = scheduler_config(profile, rules);
  // set_counters() counts a set's work when its answers begin.
  config.simulation = {.count_decodes = true, .name_blocks = true, .skip_set_work = true};
  return config;
}

}  // namespace

SimNode::SimNode(const NodeProfile& profile, const SchedulerConfig& rules)
    : profile_(profile), scheduler_(std::make_unique<Scheduler>(config_of(profile, rules))) {}

Status SimNode::add(NewSimRequest sim_request, TimePoint) {
  NewRequest request;
  request.id = sim_request.id;
  request.prompt_count = sim_request.prompt_tokens;
  request.spec.prefix_count = sim_request.prefix_tokens;
  request.max_new_count = sim_request.new_tokens;
  request.spec.set = sim_request.set;
  request.spec.planned = sim_request.planned;
  request.spec.background = sim_request.background;
  request.spec.session = sim_request.session;
  request.block_hashes = std::move(sim_request.blocks);
  TROUPE_RETURN_IF_ERROR(scheduler_->add(std::move(request)));
  const auto room =
      static_cast<int32_t>(profile_.max_model_len) - sim_request.prompt_tokens;  // add() saw some
  requests_[sim_request.id] = {.new_tokens = std::min(sim_request.new_tokens, room),
                               .prompt_tokens = sim_request.prompt_tokens,
                               .prefix_tokens = sim_request.prefix_tokens,
                               .set = sim_request.set};
  return absl::OkStatus();
}

std::optional<TimePoint> SimNode::begin_step(TimePoint now) {
  if (stepping_) return std::nullopt;
  const Batch& batch = scheduler_->plan(now);
  for (const RequestId id : batch.preempted) {
    // Where it decoded, it had a token at the end of the last step in which anything did.
    SimRequest& preempted = requests_.find(id)->second;
    const Progress progress = progress_of(preempted);
    preempted.emitted = progress.tokens;
    preempted.last = progress.last;
    preempted.longest_gap = progress.longest_gap;
    gaps_.end(std::exchange(preempted.decodes, {}));
    preempted.computed = -1;
  }
  if (batch.empty()) return std::nullopt;
  step_tokens_.clear();
  step_computed_.clear();
  for (const BatchItem& item : batch.items) {
    if (item.samples) {
      step_tokens_.push_back({item.id, 0, false});
      step_computed_.push_back(item.count);
    } else if (SimRequest& sim_request = requests_.find(item.id)->second; sim_request.computed >= 0) {
      sim_request.computed += item.count;
    }
  }
  counted_decodes_ = batch.counted_decodes;
  stepping_ = true;
  StepLoad load = step_load(batch);
  uneventful_ = scheduler_->fast_forward().uneventful_steps();
  step_ends_.clear();
  next_end_ = 0;
  TimePoint ends = now + duration_of(load);
  for (int64_t i = 0; i < uneventful_; ++i) {
    step_ends_.push_back(ends);
    load.decode_context_tokens += counted_decodes_;
    ends += duration_of(load);
  }
  step_ends_.push_back(ends);
  return ends;
}

RequestId SimNode::fetch_ahead() const {
  const RequestId ends = scheduler_->fast_forward().fetch_ahead();
  const RequestId next = step_tokens_.empty() ? ends : step_tokens_.front().id;
  if (next != 0) requests_.prefetch(next);
  return next;
}

Duration SimNode::duration_of(const StepLoad& load) const {
  const Duration takes = step_duration(profile_.costs, load);
  if (slowdown_ == 1) return takes;
  return Duration(static_cast<int64_t>(static_cast<double>(takes.count()) * slowdown_));
}

void SimNode::catch_up(TimePoint now) {
  int64_t passed = 0;
  for (; passed < uneventful_ && step_ends_[next_end_] < now; ++passed) step_over(step_ends_[next_end_++]);
  if (passed == 0) return;
  uneventful_ -= passed;
  scheduler_->fast_forward().pass(passed);
}

std::optional<TimePoint> SimNode::interrupt(TimePoint now) {
  catch_up(now);
  if (uneventful_ == 0) return std::nullopt;
  uneventful_ = 0;
  return step_ends_[next_end_];
}

// Each request that decodes has another token, or waits for it.
void SimNode::step_over(TimePoint now) {
  gaps_.step_over(now, counted_decodes_ > 0);
  work_tokens_ += counted_decodes_;
}

const std::vector<SimNode::Token>& SimNode::end_step(TimePoint now) {
  catch_up(now);
  step_over(now);
  tokens_.clear();
  finished_.clear();
  work_tokens_ += static_cast<int64_t>(step_tokens_.size());
  for (size_t i = 0; i < step_tokens_.size(); ++i) sampled(step_tokens_[i].id, step_computed_[i], now);
  const size_t sampled_count = tokens_.size();
  scheduler_->commit(step_tokens_, now, finished_);
  for (const RequestId id : finished_) ended(id);
  // In the order of the batch: who decoded comes before who was sampled.
  std::rotate(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(sampled_count), tokens_.end());
  stepping_ = false;
  return tokens_;
}

// A token of a prompt that was computed to its end: the first, or the next one after a preemption.
void SimNode::sampled(RequestId id, int32_t last_computed, TimePoint now) {
  SimRequest& sim_request = requests_.find(id)->second;
  Token out{.id = id, .first = sim_request.emitted == 0};
  sim_request.emitted += 1;
  if (out.first) {
    out.cached_tokens = scheduler_->cached_count(id);
    const int64_t computed = sim_request.prompt_tokens - out.cached_tokens;
    work_tokens_ += computed;
    if (sim_request.computed >= 0) {
      prompt_sums_.sent += sim_request.prompt_tokens;
      prompt_sums_.cached += out.cached_tokens;
      prompt_sums_.computed += sim_request.computed + last_computed;
    }
    if (!sim_request.set.is_zero()) {
      SetWork& work = set_work_[sim_request.set];
      work.work_tokens += computed + sim_request.new_tokens;
      work.prefix_tokens = sim_request.prefix_tokens;
    }
  } else {
    sim_request.longest_gap = std::max(sim_request.longest_gap, now - sim_request.last);
  }
  sim_request.last = now;
  out.last = sim_request.emitted == sim_request.new_tokens;
  if (out.last) {
    out.tokens = sim_request.emitted;
    out.longest_gap = sim_request.longest_gap;
    requests_.erase(id);
  } else {
    sim_request.decodes = gaps_.begin();
  }
  if (out.first || out.last) tokens_.push_back(out);
}

// Requests whose last token was sampled are gone already.
void SimNode::ended(RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  const Progress progress = progress_of(found->second);
  tokens_.push_back({.id = id, .last = true, .tokens = progress.tokens, .longest_gap = progress.longest_gap});
  gaps_.end(found->second.decodes);
  requests_.erase(found);
}

void SimNode::cancel(RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  scheduler_->remove(id);
  gaps_.end(found->second.decodes);
  requests_.erase(found);
}

SimNode::Progress SimNode::progress_of(const SimRequest& sim_request) const {
  const int32_t decoded = sim_request.decodes.step == 0 ? 0 : gaps_.tokens(sim_request.decodes);
  if (decoded == 0) return {sim_request.emitted, sim_request.last, sim_request.longest_gap};
  return {sim_request.emitted + decoded, gaps_.last_token(),
          std::max(sim_request.longest_gap, gaps_.longest(sim_request.decodes))};
}

SimNode::Progress SimNode::progress(RequestId id) const {
  const auto found = requests_.find(id);
  return found == requests_.end() ? Progress{} : progress_of(found->second);
}

void SimNode::take_changes(std::vector<Resident>& out) {
  scheduler_->residency().take_changes(out);
}

void SimNode::snapshot(std::vector<Resident>& out) const {
  scheduler_->residency().snapshot(out);
}

route::NodeReport SimNode::report() const {
  const SchedulerStats& stats = scheduler_->stats();
  route::NodeReport report;
  report.running = stats.running - stats.background_running;
  report.queued = stats.waiting - stats.background_waiting;
  report.pending_prefill_tokens = stats.pending_prefill_tokens - stats.background_pending_tokens;
  report.work_tokens_total = work_tokens_;
  report.max_num_seqs = profile_.max_num_seqs;
  report.block_tokens = profile_.block_size;
  report.kv_tokens_total = int64_t{stats.blocks_total} * profile_.block_size;
  report.kv_tokens_free = int64_t{stats.blocks_free + stats.blocks_cached} * profile_.block_size;
  report.kv_tokens_cached = int64_t{stats.blocks_cached} * profile_.block_size;
  return report;
}

void SimNode::set_counters(std::vector<route::SetLoadMerger::Counter>& out) const {
  const size_t begin = out.size();
  for (const auto& [set, work] : set_work_) out.push_back({set, work.work_tokens, work.prefix_tokens});
  // Their order reaches the table where sets are forgotten; a hash map has none to offer.
  std::sort(out.begin() + static_cast<std::ptrdiff_t>(begin), out.end(),
            [](const auto& a, const auto& b) { return a.set < b.set; });
}

}  // namespace troupe::sim

#include "sim/node.h"

#include <algorithm>

namespace troupe::sim {

namespace {

SchedulerConfig config_of(const NodeProfile& profile) {
  SchedulerConfig config = scheduler_config(profile);
  config.name_blocks = true;
  return config;
}

}  // namespace

SimNode::SimNode(const NodeProfile& profile)
    : profile_(profile), scheduler_(std::make_unique<Scheduler>(config_of(profile))) {}

Status SimNode::add(NewFlight flight, TimePoint now) {
  NewRequest request;
  request.id = flight.id;
  request.prompt_count = flight.prompt_tokens;
  request.prefix_count = flight.prefix_tokens;
  request.max_new_count = flight.new_tokens;
  request.set = flight.set;
  request.session = flight.session;
  request.block_hashes = std::move(flight.blocks);
  TROUPE_RETURN_IF_ERROR(scheduler_->add(std::move(request), now));
  flights_[flight.id] = {0, flight.new_tokens, flight.prompt_tokens, flight.prefix_tokens, flight.set};
  return absl::OkStatus();
}

std::optional<TimePoint> SimNode::begin_step(TimePoint now) {
  if (stepping_) return std::nullopt;
  const Batch& batch = scheduler_->plan(now);
  if (batch.empty()) return std::nullopt;
  step_tokens_.clear();
  for (const BatchItem& item : batch.items) {
    if (item.samples) step_tokens_.push_back({item.id, 0, false});
  }
  stepping_ = true;
  const Duration takes = step_duration(profile_.costs, step_load(batch));
  if (slowdown_ == 1) return now + takes;
  return now + Duration(static_cast<int64_t>(static_cast<double>(takes.count()) * slowdown_));
}

const std::vector<SimNode::Token>& SimNode::end_step(TimePoint now) {
  tokens_.clear();
  finished_.clear();
  for (const StepToken& token : step_tokens_) {
    Flight& flight = flights_.find(token.id)->second;
    Token out{.id = token.id, .first = flight.emitted == 0};
    flight.emitted += 1;
    out.last = flight.emitted == flight.new_tokens;
    if (out.first) {
      out.cached_tokens = scheduler_->cached_count(token.id);
      const int64_t computed = flight.prompt_tokens - out.cached_tokens;
      work_tokens_ += computed;
      if (!flight.set.is_zero()) {
        SetWork& work = set_work_[flight.set];
        work.work_tokens += computed + flight.new_tokens;
        work.prefix_tokens = flight.prefix_tokens;
      }
    }
    work_tokens_ += 1;
    tokens_.push_back(out);
    if (out.last) flights_.erase(token.id);
  }
  scheduler_->commit(step_tokens_, now, finished_);
  stepping_ = false;
  return tokens_;
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
  report.running = stats.running;
  report.queued = stats.waiting;
  report.pending_prefill_tokens = stats.pending_prefill_tokens;
  report.work_tokens_total = work_tokens_;
  report.max_num_seqs = profile_.max_num_seqs;
  report.kv_tokens_total = int64_t{stats.blocks_total} * profile_.block_size;
  report.kv_tokens_free = int64_t{stats.blocks_free + stats.blocks_cached} * profile_.block_size;
  return report;
}

void SimNode::set_counters(std::vector<route::SetLoadMerger::Counter>& out) const {
  const size_t begin = out.size();
  for (const auto& [set, work] : set_work_) out.push_back({set, work.work_tokens, work.prefix_tokens});
  // Whose order reaches the table where sets are forgotten; a hash map has none to offer.
  std::sort(out.begin() + static_cast<std::ptrdiff_t>(begin), out.end(),
            [](const auto& a, const auto& b) { return a.set < b.set; });
}

}  // namespace troupe::sim

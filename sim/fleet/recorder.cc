#include "sim/fleet/recorder.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace troupe::sim {

namespace {

float ms_of(Duration d) {
  return static_cast<float>(static_cast<double>(d.count()) / 1e6);
}

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

float nearest_rank(std::vector<float>& values, double rank) {
  if (values.empty()) return 0;
  const auto index = static_cast<std::ptrdiff_t>(std::ceil(rank * static_cast<double>(values.size()))) - 1;
  const auto at = values.begin() + std::max<std::ptrdiff_t>(index, 0);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace

Percentiles percentiles(std::vector<float> values) {
  return {nearest_rank(values, 0.5), nearest_rank(values, 0.9), nearest_rank(values, 0.99)};
}

Recorder::Recorder(const Options& options) : options_(options), bounds_(options.pooled_kv_tokens) {}

SecondSeries& Recorder::second_at(Duration at) {
  const auto second = static_cast<size_t>(at / std::chrono::seconds(1));
  if (second >= seconds_.size()) {
    seconds_.resize(second + 1);
    second_ttfts_.resize(second + 1);
  }
  return seconds_[second];
}

NodeSeries& Recorder::node_at(size_t node) {
  while (nodes_.size() <= node) {
    NodeSeries& added = nodes_.emplace_back();
    added.id = "n" + std::to_string(nodes_.size() - 1);
    added.work_per_s.resize(alive_.size());
    added.running.resize(alive_.size());
    added.kv_used.resize(alive_.size());
    work_before_.push_back(0);
    preemptions_before_.push_back(0);
  }
  return nodes_[node];
}

void Recorder::arrived(const TraceRequest& request) {
  last_arrival_ = request.at;
  second_at(request.at).arrived += 1;
  const PooledLru::Hits bounds = bounds_.serve(request);
  if (!measures(request.at)) return;
  requests_ += 1;
  prompt_tokens_ += request.input_tokens;
  pooled_hit_ += bounds.pooled;
  infinite_hit_ += bounds.infinite;
}

void Recorder::first_token(const First& first) {
  SecondSeries& second = second_at(first.at);
  second.prompt_tokens += first.prompt_tokens;
  second.hit_tokens += first.cached_tokens;
  const float ttft = ms_of(first.at - first.arrived);
  second_ttfts_[static_cast<size_t>(first.at / std::chrono::seconds(1))].push_back(ttft);
  NodeSeries& node = node_at(static_cast<size_t>(first.node));
  node.prompt_tokens += first.prompt_tokens;
  node.hit_tokens += first.cached_tokens;
  if (options_.crowd_set != 0) note_crowd(first, ttft);
  if (!measures(first.arrived)) return;
  asked_tokens_ += first.prompt_tokens;
  hit_tokens_ += first.cached_tokens;
  ttft_ms_.push_back(ttft);
}

void Recorder::note_crowd(const First& first, float ttft_ms) {
  if (first.arrived < options_.crowd_begin) {
    if (first.arrived >= options_.crowd_begin - std::chrono::minutes(1)) crowd_ms_.before.push_back(ttft_ms);
  } else {
    (first.set == options_.crowd_set ? crowd_ms_.crowd : crowd_ms_.others).push_back(ttft_ms);
  }
}

void Recorder::finished(const Finished& finished) {
  second_at(finished.at).finished += 1;
  node_at(static_cast<size_t>(finished.node)).requests += 1;
  if (!measures(finished.arrived)) return;
  const float ttft = ms_of(finished.first - finished.arrived);
  float tpot = 0;
  if (finished.tokens > 1) {
    tpot = ms_of(finished.at - finished.first) / static_cast<float>(finished.tokens - 1);
    tpot_ms_.push_back(tpot);
    tpot_sum_ms_ += tpot;
  }
  good_ += ttft <= options_.slo_ttft_ms && tpot <= options_.slo_tpot_ms ? 1 : 0;
  // A gap that ended before the fault was not caused by it.
  if (finished.at >= first_fault_) stall_max_ = std::max(stall_max_, finished.longest_gap);
}

// A request that was never admitted found nothing, and counts in the bounds too: omitting it would flatter a
// fleet that serves few.
void Recorder::lost(const Lost& lost) {
  second_at(lost.at).lost += 1;
  if (!measures(lost.arrived)) return;
  lost_.count += 1;
  asked_tokens_ += lost.prompt_tokens;
  note_loss(lost.why);
}

void Recorder::note_loss(std::string_view why) {
  auto found = lost_.by_cause.find(why);
  if (found == lost_.by_cause.end()) {
    // A live server's words may differ from one error to the next.
    const bool full = lost_.by_cause.size() + 1 >= kCausesMax;
    found = lost_.by_cause.try_emplace(full ? "other reasons" : std::string(why)).first;
  }
  found->second += 1;
}

std::vector<Loss> Recorder::losses() const {
  std::vector<Loss> out;
  for (const auto& [why, count] : lost_.by_cause) out.push_back({why, count});
  std::stable_sort(out.begin(), out.end(), [](const Loss& a, const Loss& b) { return a.count > b.count; });
  return out;
}

std::vector<bool> Recorder::up_seconds(size_t node) const {
  std::vector<bool> out;
  for (const std::vector<bool>& alive : alive_) out.push_back(node < alive.size() && alive[node]);
  return out;
}

void Recorder::queued(Duration arrived, const QueuePlace& place) {
  if (!measures(arrived)) return;
  if (place.waited) queue_.wait_ms.push_back(ms_of(place.wait));
  if (!place.refused()) return;
  (place.refusal_status() == 429 ? queue_.refused_429 : queue_.refused_503)[place.refusal()] += 1;
}

void Recorder::fault(Duration at) {
  if (measures(at)) {
    first_fault_ = std::min(first_fault_, at);
  } else {
    faults_in_warmup_ += 1;
  }
}

void Recorder::second_over(int32_t second, const std::vector<NodeStand>& stands) {
  SecondSeries& series = second_at(std::chrono::seconds(second));
  std::vector<bool> alive;
  series.waiting = 0;
  for (size_t i = 0; i < stands.size(); ++i) {
    const NodeStand& stand = stands[i];
    NodeSeries& node = node_at(i);
    // The counter of a node that came back starts at zero again.
    const int64_t work = stand.work_tokens - (stand.work_tokens >= work_before_[i] ? work_before_[i] : 0);
    node.work_tokens += work;
    work_before_[i] = stand.work_tokens;
    const int64_t preempted =
        stand.preemptions - (stand.preemptions >= preemptions_before_[i] ? preemptions_before_[i] : 0);
    node.preemptions += preempted;
    if (measures(std::chrono::seconds(second))) preemptions_ += preempted;
    preemptions_before_[i] = stand.preemptions;
    node.work_per_s.push_back(static_cast<float>(work));
    node.running.push_back(static_cast<float>(stand.running));
    node.kv_used.push_back(stand.kv_used);
    series.waiting += stand.waiting;
    alive.push_back(stand.alive);
  }
  alive_.push_back(std::move(alive));
  std::vector<float>& ttfts = second_ttfts_[static_cast<size_t>(second)];
  series.ttft_p50_ms = nearest_rank(ttfts, 0.5);
  series.ttft_p99_ms = nearest_rank(ttfts, 0.99);
  std::vector<float>().swap(ttfts);
}

// Mean over the windows from the warm-up to the last arrival of std/mean over the nodes that lived through
// the window.
double Recorder::work_cov(int32_t window_s) const {
  const auto begin = static_cast<size_t>(
      std::max<int64_t>(0, (options_.warmup + std::chrono::milliseconds(999)) / std::chrono::seconds(1)));
  const size_t end =
      std::min(alive_.size(), static_cast<size_t>(last_arrival_ / std::chrono::seconds(1)) + 1);
  double sum = 0;
  int windows = 0;
  // A span shorter than half a window is one window of its own: no figure must read as perfect balance.
  if (end > begin) window_s = static_cast<int32_t>(std::min(end - begin, static_cast<size_t>(window_s)));
  for (size_t at = begin; at < end; at += static_cast<size_t>(window_s)) {
    // The last window may be shorter, but not by more than half.
    const size_t stop = std::min(at + static_cast<size_t>(window_s), end);
    if (stop - at < static_cast<size_t>(window_s + 1) / 2) break;
    double total = 0, squares = 0;
    int count = 0;
    for (size_t n = 0; n < nodes_.size(); ++n) {
      bool lived = true;
      double work = 0;
      for (size_t s = at; s < stop; ++s) {
        lived = lived && n < alive_[s].size() && alive_[s][n];
        work += static_cast<double>(nodes_[n].work_per_s[s]);
      }
      if (!lived) continue;
      total += work;
      squares += work * work;
      ++count;
    }
    if (count < 2 || total <= 0) continue;
    const double mean = total / count;
    sum += std::sqrt(std::max(0.0, squares / count - mean * mean)) / mean;
    ++windows;
  }
  return windows > 0 ? sum / windows : 0;
}

double Recorder::hit_in(const Span& span) const {
  int64_t prompt = 0, hit = 0;
  for (size_t s = span.begin; s < span.end; ++s) {
    prompt += seconds_[s].prompt_tokens;
    hit += seconds_[s].hit_tokens;
  }
  return prompt > 0 ? share(hit, prompt) : -1;
}

// Mean over the seconds with first tokens.
std::optional<double> Recorder::p99_mean_in(const Span& span) const {
  double sum = 0;
  int count = 0;
  for (size_t s = span.begin; s < span.end; ++s) {
    if (seconds_[s].prompt_tokens == 0) continue;
    sum += static_cast<double>(seconds_[s].ttft_p99_ms);
    ++count;
  }
  if (count == 0) return std::nullopt;
  return sum / count;
}

FaultFigures Recorder::fault_figures() const {
  FaultFigures out;
  out.resumed = resumed_;
  out.stall_max_ms = static_cast<double>(ms_of(stall_max_));
  // After the last arrival only stragglers get first tokens: their hits say nothing about the fault.
  const size_t last =
      std::min(seconds_.size(), static_cast<size_t>(last_arrival_ / std::chrono::seconds(1)) + 1);
  const size_t fault = std::min(static_cast<size_t>(first_fault_ / std::chrono::seconds(1)), last);
  const Span before{fault >= 10 ? fault - 10 : 0, fault};
  const double hit_before = hit_in(before);
  out.p99_before_ms = p99_mean_in(before);
  if (hit_in({fault, last}) < 0) return out;
  const bool known = hit_before >= 0;
  if (known) out.hit_dip = 0;
  if (known) out.t95_s = out.p99_settled_s = -1;
  out.p99_peak_ms = 0;
  for (size_t s = fault; s < last; ++s) {
    const auto since = static_cast<double>(s - fault);
    const auto p99 = static_cast<double>(seconds_[s].ttft_p99_ms);
    out.p99_peak_ms = std::max(*out.p99_peak_ms, p99);
    if (!known) continue;
    const double two = hit_in({s, std::min(s + 2, last)}), three = hit_in({s, std::min(s + 3, last)});
    if (two >= 0) out.hit_dip = std::max(*out.hit_dip, hit_before - two);
    if (three >= 0.95 * hit_before && *out.t95_s < 0) out.t95_s = since;
    const bool settled = p99 < 1.5 * *out.p99_before_ms;
    if (!settled) out.p99_settled_s = -1;
    if (settled && *out.p99_settled_s < 0) out.p99_settled_s = since;
  }
  return out;
}

QueueFigures Recorder::queue_figures() const {
  QueueFigures out;
  out.waited = static_cast<int64_t>(queue_.wait_ms.size());
  const double sum = std::accumulate(queue_.wait_ms.begin(), queue_.wait_ms.end(), 0.0);
  out.wait_mean_ms = out.waited > 0 ? sum / static_cast<double>(out.waited) : 0;
  out.wait_ms = percentiles(queue_.wait_ms);
  const auto note = [&out](const std::map<std::string_view, int64_t>& reasons, int64_t& all) {
    for (const auto& [name, count] : reasons) {
      out.refused.push_back({name, count});
      all += count;
    }
  };
  note(queue_.refused_429, out.refused_429);
  note(queue_.refused_503, out.refused_503);
  return out;
}

void Recorder::fill(Result& result) const {
  result.requests = requests_;
  result.lost = lost_.count;
  result.losses = losses();
  result.prompt_tokens = prompt_tokens_;
  result.hit_tokens = share(hit_tokens_, asked_tokens_);
  result.has_pool = options_.pooled_kv_tokens >= 0;
  if (result.has_pool) result.pooled_lru_hit = share(pooled_hit_, prompt_tokens_);
  result.infinite_hit = share(infinite_hit_, prompt_tokens_);
  result.work_cov = work_cov(100);
  result.work_cov5 = work_cov(5);
  result.ttft_ms = percentiles(ttft_ms_);
  result.tpot_p99_ms = percentiles(tpot_ms_).p99;
  result.tpot_mean_ms = tpot_ms_.empty() ? 0 : tpot_sum_ms_ / static_cast<double>(tpot_ms_.size());
  result.goodput = share(good_, requests_);
  result.duration_s = std::max(0.0, static_cast<double>((last_arrival_ - options_.warmup).count()) / 1e9);
  if (options_.crowd_set != 0) {
    result.crowd = CrowdFigures{percentiles(crowd_ms_.before).p99, percentiles(crowd_ms_.crowd).p99,
                                percentiles(crowd_ms_.others).p99};
  }
  if (options_.queue) result.queue = queue_figures();
  result.has_faults = first_fault_ != Duration::max();
  if (result.has_faults) result.faults = fault_figures();
  result.seconds = seconds_;
  result.node_series = nodes_;
  for (size_t node = 0; node < nodes_.size(); ++node) result.node_series[node].up = up_seconds(node);
  result.preemptions = preemptions_;
  result.retries = retries_;
  result.faults.in_warmup = faults_in_warmup_;
}

}  // namespace troupe::sim

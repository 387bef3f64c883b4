#pragma once

// Measures a run: it receives the requests' events and the nodes' state at every second's end, and makes the
// Result. Requests that arrived before the warm-up count in the series only.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/time.h"
#include "sim/fleet/oracle_caches.h"
#include "sim/fleet/result.h"
#include "sim/fleet/sim_admission.h"
#include "sim/trace/trace.h"

namespace troupe::sim {

class Recorder {
 public:
  struct Options {
    Duration warmup{};
    double slo_ttft_ms = 0, slo_tpot_ms = 0;
    int64_t pooled_kv_tokens = 0;  // of all nodes together, at the begin; -1: unknown
    uint64_t crowd_set = 0;        // 0: no flash crowd
    Duration crowd_begin{};
    bool queue = false;  // queued() is called
  };
  explicit Recorder(const Options& options);

  bool measures(Duration arrived) const { return arrived >= options_.warmup; }
  void arrived(const TraceRequest& request);
  struct First {
    Duration arrived{}, at{};
    int32_t node = 0;
    int32_t prompt_tokens = 0, cached_tokens = 0;
    uint64_t set = 0;
  };
  void first_token(const First& first);
  struct Finished {
    Duration arrived{}, first{}, at{};
    int32_t node = 0;
    int32_t tokens = 0;      // answered
    Duration longest_gap{};  // between two of them
  };
  void finished(const Finished& finished);
  struct Lost {
    Duration arrived{}, at{};
    int32_t prompt_tokens = 0;  // 0 for a stream that broke off after its first token
    std::string_view why = "no reason known";
  };
  void lost(const Lost& lost);
  // The outcome of its gateway's queue for a request, once each. (A refused one is lost(), too.)
  void queued(Duration arrived, const QueuePlace& place);
  void resumed(Duration arrived) { resumed_ += measures(arrived) ? 1 : 0; }
  void retried(Duration arrived) { retries_ += measures(arrived) ? 1 : 0; }
  // A fault in the warm-up has no figures; they are for the first fault after it. REQUIRES: called before
  // requests that finish at that time or later are reported.
  void fault(Duration at);
  // Nodes came or left: the total KV memory of those that are up.
  void pool_changed(int64_t kv_tokens) { bounds_.set_capacity(kv_tokens); }

  // A second of the run is over: one entry per node, in the order of their joining.
  struct NodeStand {
    int64_t work_tokens = 0;  // since its start
    int32_t running = 0, waiting = 0;
    float kv_used = 0;
    int64_t preemptions = 0;
    bool alive = true;
  };
  void second_over(int32_t second, const std::vector<NodeStand>& nodes);

  // Fills what this class measures.
  void fill(Result& result) const;

 private:
  SecondSeries& second_at(Duration at);
  NodeSeries& node_at(size_t node);  // a new node is added with an empty series so far
  double work_cov(int32_t window_s) const;
  struct Span {  // of seconds
    size_t begin = 0, end = 0;
  };
  double hit_in(const Span& span) const;  // -1: no tokens in the span
  std::optional<double> p99_mean_in(const Span& span) const;
  void note_loss(std::string_view why);
  std::vector<Loss> losses() const;
  std::vector<bool> up_seconds(size_t node) const;
  FaultFigures fault_figures() const;
  QueueFigures queue_figures() const;
  void note_crowd(const First& first, float ttft_ms);

  Options options_;
  PooledLru bounds_;
  int64_t requests_ = 0, prompt_tokens_ = 0, pooled_hit_ = 0, infinite_hit_ = 0;
  int64_t asked_tokens_ = 0, hit_tokens_ = 0, good_ = 0, resumed_ = 0, retries_ = 0, preemptions_ = 0;
  std::vector<float> ttft_ms_, tpot_ms_;
  struct {
    std::vector<float> before, crowd, others;
  } crowd_ms_;
  static constexpr size_t kCausesMax = 32;
  struct {
    int64_t count = 0;
    std::map<std::string, int64_t, std::less<>> by_cause;
  } lost_;
  struct {
    std::vector<float> wait_ms;
    std::map<std::string_view, int64_t> refused_429, refused_503;  // by reason
  } queue_;
  double tpot_sum_ms_ = 0;
  std::vector<SecondSeries> seconds_;
  std::vector<std::vector<float>> second_ttfts_;  // by second, of those not closed yet
  std::vector<NodeSeries> nodes_;
  std::vector<int64_t> work_before_, preemptions_before_;
  std::vector<std::vector<bool>> alive_;  // by second, by node
  Duration stall_max_{};
  Duration first_fault_ = Duration::max();
  int64_t faults_in_warmup_ = 0;
  Duration last_arrival_{};
};

}  // namespace troupe::sim

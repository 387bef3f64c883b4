#pragma once

// The engine's metrics under vLLM's names and labels, so that dashboards made for vLLM show a Troupe worker.
// Handles are created once; every series exists from the start, at zero.

#include <string>

#include "common/api/api.h"
#include "common/core/metrics.h"
#include "common/core/time.h"
#include "worker/schedule/scheduler.h"

namespace troupe {

class EngineMetrics {
 public:
  EngineMetrics(Metrics& metrics, const std::string& model_name);

  // Called by the compute thread only.
  void step(Duration duration);
  void stats(const SchedulerStats& stats);
  void forced(size_t tokens) { tokens_.forced.Increment(static_cast<double>(tokens)); }
  void step_error() { errors_.steps.Increment(); }
  void unsampled(size_t requests) { errors_.unsampled.Increment(static_cast<double>(requests)); }

  // Called by the text-out thread only.
  void first_token(Duration since_submit, int64_t prompt_count);
  void next_token(Duration since_last);
  void token() { generation_tokens_.Increment(); }
  void finished(FinishReason reason, Duration since_submit);
  void aborted() { success_abort_.Increment(); }

 private:
  Gauge& running_;
  Gauge& waiting_;
  Gauge& kv_usage_;
  Counter& prefix_queries_;
  Counter& prefix_hits_;
  Counter& preemptions_;
  Counter& prompt_tokens_;
  Counter& generation_tokens_;
  Counter& success_stop_;
  Counter& success_length_;
  Counter& success_abort_;
  Histogram& ttft_;
  Histogram& inter_token_;
  Histogram& e2e_;
  struct Tokens {
    Counter& computed;
    Counter& forced;
  };
  Tokens tokens_;
  Counter& copied_tokens_;
  Counter& evicted_blocks_;
  Counter& evicted_shared_blocks_;
  Counter& budget_limited_steps_;
  Gauge& pinned_blocks_;
  struct Errors {
    Counter& steps;
    Counter& unsampled;  // requests
  };
  Errors errors_;
  Histogram& step_seconds_;
  SchedulerStats last_;  // totals already counted
};

}  // namespace troupe

#include "worker/engine/engine_metrics.h"

#include <chrono>

namespace troupe {

namespace {

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

const std::vector<double> kStepBuckets = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5};

// vLLM labels every series with the model and the index of the engine in its process.
Labels labels_of(const std::string& model_name) {
  return {{"model_name", model_name}, {"engine", "0"}};
}

Counter& success_counter(Metrics& metrics, const std::string& model_name, const std::string& reason) {
  Labels labels = labels_of(model_name);
  labels["finished_reason"] = reason;
  return metrics.counter("vllm:request_success_total", "Requests that ended, by reason.", labels);
}

}  // namespace

EngineMetrics::EngineMetrics(Metrics& m, const std::string& model)
    : running_(m.gauge("vllm:num_requests_running", "Requests in the running batch.", labels_of(model))),
      waiting_(m.gauge("vllm:num_requests_waiting", "Requests waiting to be admitted.", labels_of(model))),
      kv_usage_(m.gauge("vllm:kv_cache_usage_perc", "Share of KV blocks in use by requests; 1 is all.",
                        labels_of(model))),
      prefix_queries_(m.counter("vllm:prefix_cache_queries_total",
                                "Prompt tokens looked up in the prefix cache.", labels_of(model))),
      prefix_hits_(m.counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.",
                             labels_of(model))),
      preemptions_(
          m.counter("vllm:num_preemptions_total", "Requests put back and computed again.", labels_of(model))),
      prompt_tokens_(m.counter("vllm:prompt_tokens_total", "Prompt tokens of requests that got an answer.",
                               labels_of(model))),
      generation_tokens_(m.counter("vllm:generation_tokens_total", "Tokens generated.", labels_of(model))),
      success_stop_(success_counter(m, model, "stop")),
      success_length_(success_counter(m, model, "length")),
      success_abort_(success_counter(m, model, "abort")),
      ttft_(m.histogram("vllm:time_to_first_token_seconds", "From submission to the first token.",
                        kTtftBuckets, labels_of(model))),
      inter_token_(m.histogram("vllm:inter_token_latency_seconds", "From one token to the next.",
                               kInterTokenBuckets, labels_of(model))),
      e2e_(m.histogram("vllm:e2e_request_latency_seconds", "From submission to the last token.",
                       kRequestLatencyBuckets, labels_of(model))),
      tokens_{
          m.counter("troupe_computed_tokens_total",
                    "Tokens whose KV was computed: prompts without what was cached, answers, and "
                    "what preemption repeats.",
                    labels_of(model)),
          m.counter("troupe_forced_tokens_total",
                    "Tokens that an answer's grammar left no choice of and that came in one step with the "
                    "token before them.",
                    labels_of(model))},
      copied_tokens_(m.counter("troupe_prefix_copied_tokens_total",
                               "Prompt tokens found in a cached block of which only a part fits.",
                               labels_of(model))),
      evicted_blocks_(m.counter("troupe_kv_evicted_blocks_total", "Cached KV blocks given up for others.",
                                labels_of(model))),
      evicted_shared_blocks_(m.counter("troupe_kv_evicted_shared_blocks_total",
                                       "Of those, blocks that several sessions had used.", labels_of(model))),
      budget_limited_steps_(m.counter(
          "troupe_budget_limited_steps_total",
          "Steps with less prefill than there was, for the sake of their decodes.", labels_of(model))),
      pinned_blocks_(
          m.gauge("troupe_kv_blocks_pinned", "KV blocks of prefixes that are pinned.", labels_of(model))),
      errors_{m.counter("troupe_step_errors_total", "Steps that failed with all their requests.",
                        labels_of(model)),
              m.counter("troupe_numerical_errors_total",
                        "Requests that ended because their logits were no numbers.", labels_of(model))},
      step_seconds_(m.histogram("troupe_step_seconds", "Duration of a step: plan, run, sample, commit.",
                                kStepBuckets, labels_of(model))) {}

void EngineMetrics::step(Duration duration) {
  step_seconds_.Observe(seconds(duration));
}

void EngineMetrics::stats(const SchedulerStats& now) {
  running_.Set(now.running);
  waiting_.Set(now.waiting);
  kv_usage_.Set(now.blocks_total == 0 ? 0.0 : static_cast<double>(now.blocks_used) / now.blocks_total);
  pinned_blocks_.Set(now.blocks_pinned);
  prefix_queries_.Increment(
      static_cast<double>(now.prefix_query_tokens_total - last_.prefix_query_tokens_total));
  prefix_hits_.Increment(static_cast<double>(now.prefix_hit_tokens_total - last_.prefix_hit_tokens_total));
  preemptions_.Increment(static_cast<double>(now.preemptions_total - last_.preemptions_total));
  tokens_.computed.Increment(static_cast<double>(now.computed_tokens_total - last_.computed_tokens_total));
  const auto count = [](Counter& counter, int64_t total, int64_t counted) {
    counter.Increment(static_cast<double>(total - counted));
  };
  count(copied_tokens_, now.prefix_copied_tokens_total, last_.prefix_copied_tokens_total);
  count(evicted_blocks_, now.evicted_blocks_total, last_.evicted_blocks_total);
  count(evicted_shared_blocks_, now.evicted_shared_blocks_total, last_.evicted_shared_blocks_total);
  count(budget_limited_steps_, now.budget_limited_steps_total, last_.budget_limited_steps_total);
  last_ = now;
}

void EngineMetrics::first_token(Duration since_submit, int64_t prompt_count) {
  ttft_.Observe(seconds(since_submit));
  prompt_tokens_.Increment(static_cast<double>(prompt_count));
}

void EngineMetrics::next_token(Duration since_last) {
  inter_token_.Observe(seconds(since_last));
}

void EngineMetrics::finished(FinishReason reason, Duration since_submit) {
  (reason == FinishReason::kLength ? success_length_ : success_stop_).Increment();
  e2e_.Observe(seconds(since_submit));
}

}  // namespace troupe

#include "worker/schedule/step_time.h"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

// Dear pairs of a long prompt are more nanoseconds than a Duration holds.
constexpr double kLongestNs = 24 * 3600e9;

// As llround() does of what is not below zero, which is a call: a simulated fleet asks for ten steps a
// request.
Duration nearest_ns(double ns) {
  const auto whole = static_cast<int64_t>(ns);
  return Duration(whole + (ns - static_cast<double>(whole) >= 0.5 ? 1 : 0));
}

}  // namespace

void StepLoad::add_decode(int64_t context_count) {
  ++decode_count;
  decode_context_tokens += context_count;
}

void StepLoad::add_prefill(int64_t start, int64_t count) {
  prefill_context_tokens += start;
  prefill_tokens += count;
  prefill_pairs += count * start + count * (count + 1) / 2;
}

StepLoad step_load(const Batch& batch) {
  StepLoad load;
  load.decode_count = batch.counted_decodes;
  load.decode_context_tokens = batch.counted_context_tokens;
  for (const BatchItem& item : batch.items) {
    const auto count = static_cast<int64_t>(item.count);
    const bool decodes = count == 1 && item.samples && item.sample_position > 0;
    if (decodes) {
      load.add_decode(item.start + count);
    } else {
      load.add_prefill(item.start, count);
      load.scored_rows += item.scored.count;
    }
  }
  return load;
}

Duration step_duration(const StepCosts& costs, const StepLoad& load) {
  const auto us = [](double cost, int64_t count) { return cost * static_cast<double>(count); };
  const double memory_us = costs.weights_us + us(costs.decode_context_ns, load.decode_context_tokens) / 1000 +
                           us(costs.prefill_context_ns, load.prefill_context_tokens) / 1000;
  const double compute_us = us(costs.prefill_token_us, load.prefill_tokens) +
                            us(costs.prefill_pair_ns, load.prefill_pairs) / 1000 +
                            us(costs.decode_token_us, load.decode_count);
  const double work_us = costs.overlaps ? std::max(memory_us, compute_us) : memory_us + compute_us;
  return nearest_ns(std::min((costs.overhead_us + work_us) * 1000, kLongestNs));
}

}  // namespace troupe

#include "sim/cli/trace_load.h"

#include <algorithm>
#include <cmath>

#include "sim/fleet/oracle_caches.h"

namespace troupe::sim {

StatusOr<TraceLoad> measure_load(RequestSource& source) {
  PooledLru all(-1);
  TraceLoad load;
  int64_t prompt = 0, output = 0, found = 0;
  Duration last{};
  for (TraceRequest request;;) {
    TROUPE_ASSIGN_OR_RETURN(const bool more, source.next(request));
    if (!more) break;
    load.requests += 1;
    prompt += request.input_tokens;
    output += request.output_tokens;
    found += all.serve(request).infinite;
    last = request.at;
  }
  if (load.requests < 2 || last <= Duration::zero())
    return invalid_argument("--trace: has fewer than two requests at different times, and so no rate");
  const auto count = static_cast<double>(load.requests);
  load.duration_s = static_cast<double>(last.count()) / 1e9;
  load.rate = count / load.duration_s;
  load.prompt_tokens = static_cast<double>(prompt) / count;
  load.output_tokens = static_cast<double>(output) / count;
  load.shared = static_cast<double>(found) / static_cast<double>(prompt);
  return load;
}

int64_t nodes_at_least(const TraceLoad& load, const NodeProfile& profile) {
  const auto batch = static_cast<double>(profile.max_num_seqs);
  const double memory_us = load.output_tokens * profile.costs.weights_us / batch;
  const double products_us = load.prompt_tokens * (1 - load.shared) * profile.costs.prefill_token_us +
                             load.output_tokens * profile.costs.decode_token_us;
  const double seconds =
      (profile.costs.overlaps ? std::max(memory_us, products_us) : memory_us + products_us) / 1e6;
  return std::max<int64_t>(1, static_cast<int64_t>(std::floor(load.rate * seconds)));
}

}  // namespace troupe::sim

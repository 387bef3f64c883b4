// Validation of workloads.

#include "common/settings/option_checks.h"
#include "sim/workload/workload.h"

namespace troupe::sim {

Status check_workload(const PersonaWorkload& w) {
  TROUPE_RETURN_IF_ERROR(check_range("personas", w.personas, 1, 10'000'000));
  TROUPE_RETURN_IF_ERROR(check_range("zipf", w.zipf, 0, 10));
  TROUPE_RETURN_IF_ERROR(check_range("card-tokens", w.card_tokens, 1, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("card-sigma", w.card_sigma, 0, 3));
  TROUPE_RETURN_IF_ERROR(check_range("card-tokens-min", w.card_tokens_min, 1, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("card-tokens-max", w.card_tokens_max, w.card_tokens_min, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("system-tokens", w.system_tokens, 0, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("turns", w.turns, 1, 10'000));
  TROUPE_RETURN_IF_ERROR(check_range("think-s", w.think_s, 0, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("answer-s-per-token", w.answer_s_per_token, 0, 100));
  TROUPE_RETURN_IF_ERROR(check_range("user-tokens", w.user_tokens, 1, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("output-tokens", w.output_tokens, 1, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("turn-sigma", w.turn_sigma, 0, 3));
  TROUPE_RETURN_IF_ERROR(check_range("ramp-s", w.ramp_s, 0, 1e8));
  TROUPE_RETURN_IF_ERROR(check_range("rate", w.rate, 1e-6, 1e7));
  TROUPE_RETURN_IF_ERROR(check_range("arrival-cv", w.arrival_cv, 0.05, 50));
  TROUPE_RETURN_IF_ERROR(check_range("duration-s", w.duration_s, 0, 1e8));
  TROUPE_RETURN_IF_ERROR(check_range("block-size", w.block_tokens, 1, 65536));
  TROUPE_RETURN_IF_ERROR(check_range("swipe", w.swipe, 0, 0.95));
  TROUPE_RETURN_IF_ERROR(check_range("edits-per-s", w.edits_per_s, 0, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("drift", w.drift_swaps_per_s, 0, 1e6));
  const double least = w.system_tokens + w.card_tokens_max + 2.0;
  TROUPE_RETURN_IF_ERROR(check_range("context", w.context_tokens, least, 1e8));
  if (w.burst) {
    TROUPE_RETURN_IF_ERROR(check_range("burst times", w.burst->times, 1, 1000));
    if (w.burst->begin < Duration::zero() || w.burst->duration <= Duration::zero())
      return invalid_argument("burst must begin at >= 0 s and last > 0 s");
  }
  if (!w.flash) return absl::OkStatus();
  TROUPE_RETURN_IF_ERROR(check_range("flash share", w.flash->share, 0.001, 0.99));
  TROUPE_RETURN_IF_ERROR(
      check_range("flash card-tokens", w.flash->card_tokens, 0, w.context_tokens - w.system_tokens - 2.0));
  if (w.flash->begin < Duration::zero() || w.flash->duration <= Duration::zero()) {
    return invalid_argument("flash must begin at >= 0 s and last > 0 s");
  }
  return absl::OkStatus();
}

}  // namespace troupe::sim

#pragma once

// The samplers of role-play front ends in a request: koboldcpp's, text-generation-webui's, tabbyAPI's,
// llama.cpp's and SillyTavern's names for them. docs/api.md has the table.

#include <cstdint>
#include <string>
#include <vector>

#include "common/core/sampler_order.h"

namespace troupe {

// Settled: a sampler that is off has its neutral value here, whatever the request had.
struct SamplerFields {
  double guidance_scale = 1;    // (0, 100]; 1: off
  std::string negative_prompt;  // empty: none. Only where there is guidance
  double typical_p = 1;         // (0, 1]; 1: off
  double top_a = 0;             // [0, 1]; 0: off
  double tfs = 1;               // (0, 1]; 1: off
  double epsilon_cutoff = 0;    // a probability, [0, 1); 0: off
  double eta_cutoff = 0;        // the same
  double smoothing_factor = 0, smoothing_curve = 1;
  bool has_dynamic_temperature = false;  // then in place of the temperature, unless that is 0
  double dynatemp_low = 1, dynatemp_high = 1, dynatemp_exponent = 1;
  // The middle of them is `temperature` + this, low and high are that far from it; 0: low and high are above.
  double dynatemp_range = 0;
  double xtc_probability = 0, xtc_threshold = 0.1;
  int32_t mirostat_mode = 0;  // 0: off; 1, 2
  double mirostat_tau = 5, mirostat_eta = 0.1;

  int32_t repetition_range = 0;  // the last tokens; 0: all
  double repetition_slope = 1;   // (0, 1]
  int32_t repetition_decay = 0;  // tokens
  double dry_multiplier = 0, dry_base = 1.75;
  int32_t dry_allowed_length = 2;
  int32_t dry_range = 0;  // the last tokens; 0: all
  std::vector<std::string> dry_breakers;

  int64_t min_tokens = 0;
  bool bans_eos = false;
  std::vector<int32_t> banned_tokens;
  std::vector<std::string> bad_words;

  SamplerOrder order = kDefaultSamplerOrder;
  bool has_order = false;  // the request said something of it
};

}  // namespace troupe

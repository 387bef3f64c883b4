#pragma once

// The samplers of role-play front ends in a request: koboldcpp's, text-generation-webui's, tabbyAPI's,
// llama.cpp's and SillyTavern's names for them. docs/api.md has the table.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

// A cut or a change of logits whose place in the order a request may say.
enum class SamplerStep : uint8_t {
  kPenalties,
  kTopK,
  kTopA,
  kTfs,
  kTypicalP,
  kEpsilon,
  kEta,
  kTopP,
  kMinP,
  kTemperature,
  kSmoothing,
  kXtc,
};
inline constexpr size_t kSamplerStepCount = 12;
using SamplerSteps = std::array<SamplerStep, kSamplerStepCount>;  // each once
// koboldcpp's: its [6, 0, 1, 3, 4, 2, 5], then XTC. What it does not have stands beside its kin.
inline constexpr SamplerSteps kDefaultSamplerSteps = {
    SamplerStep::kPenalties, SamplerStep::kTopK,        SamplerStep::kTopA,      SamplerStep::kTfs,
    SamplerStep::kTypicalP,  SamplerStep::kEpsilon,     SamplerStep::kEta,       SamplerStep::kTopP,
    SamplerStep::kMinP,      SamplerStep::kTemperature, SamplerStep::kSmoothing, SamplerStep::kXtc};

// Settled: a sampler that is off has its neutral value here, whatever the request had.
struct SamplerFields {
  double typical_p = 1;       // (0, 1]; 1: off
  double top_a = 0;           // [0, 1]; 0: off
  double tfs = 1;             // (0, 1]; 1: off
  double epsilon_cutoff = 0;  // a probability, [0, 1); 0: off
  double eta_cutoff = 0;      // the same
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

  SamplerSteps order = kDefaultSamplerSteps;
  bool has_order = false;  // the request said something of it
};

}  // namespace troupe

#pragma once

// Reads the fields of sampler_fields.h. Private to common/api.
//
// A sampler has one name and perhaps others (aliases). Of those that a body has the first one counts, in the
// order of the table in docs/api.md, whatever their order in the body; null, and an empty text where a number
// belongs, are as if the field were not there. Values are judged when all are known: those of a sampler that
// is off are not judged at all.

#include <array>
#include <optional>
#include <string_view>

#include "common/api/read.h"

namespace troupe {

// Fields of these samplers, and aliases of fields that have their own reader, one each.
enum class SamplerField : uint8_t {
  kBadWords,
  kBannedTokens,
  kBanEos,
  kDryAllowedLength,
  kDryBase,
  kDryBreakers,
  kDryMultiplier,
  kDryRange,
  kDynamicTemperature,
  kDynatempExponent,
  kDynatempHigh,
  kDynatempLow,
  kDynatempRange,
  kEpsilonCutoff,
  kEtaCutoff,
  kGuidanceScale,
  kLogprobs,   // n_probs
  kMaxTokens,  // max_new_tokens, …
  kMinTokens,
  kMirostatEta,
  kMirostatMode,
  kMirostatTau,
  kNegativePrompt,
  kOrder,
  kRepetitionDecay,
  kRepetitionPenalty,  // rep_pen, …
  kRepetitionRange,
  kRepetitionSlope,
  kSeed,  // sampler_seed
  kSmoothingCurve,
  kSmoothingFactor,
  kStop,  // stopping_strings, …
  kTemperatureLast,
  kTfs,
  kTopA,
  kTypicalP,
  kXtcProbability,
  kXtcThreshold,
};
inline constexpr size_t kSamplerFieldCount = size_t{static_cast<uint8_t>(SamplerField::kXtcThreshold)} + 1;

// The fields that a body has of them.
class GivenSamplers {
 public:
  // Keeps the field if it is one of these; else false. REQUIRES: the value outlives settle().
  static bool knows(std::string_view name);
  void take(std::string_view name, dom::element value);
  // Reads all into the request, whose other fields have been read: these win over aliases of theirs.
  Fault settle(GenerateRequest& request) const;

 private:
  struct Given {
    std::string_view name;  // as the body has it; empty: not there
    dom::element value;
    uint8_t rank = 0;
  };
  const Given* find(SamplerField field) const;
  Fault settle_aliases(GenerateRequest& request) const;
  Fault settle_guidance(SamplerFields& out) const;
  Fault settle_cuts(SamplerFields& out) const;
  Fault settle_temperature(SamplerFields& out) const;
  Fault settle_mirostat(SamplerFields& out) const;
  Fault settle_repetition(SamplerFields& out) const;
  Fault settle_dry(SamplerFields& out) const;
  Fault settle_bans(const GenerateRequest& request, SamplerFields& out) const;
  Fault settle_order(SamplerFields& out) const;
  // Reads a number of the range; `off`: what it is where the field is absent, or at or below `off_max`.
  struct NumberRule {
    double max;
    double off = 0;
    double off_max = 0;
    double min = 0;
  };
  Fault number(SamplerField field, const NumberRule& rule, double& out) const;
  Fault integer(SamplerField field, int64_t off, int32_t& out) const;
  Fault flag(SamplerField field, std::optional<bool>& out) const;

  std::array<Given, kSamplerFieldCount> given_{};
};

}  // namespace troupe

// The meaning of a chain in float64, from the formulas of sampler_chain.h: everything is sorted, every
// probability made anew for each sampler, no integer weights. Only the random numbers are shared.

#include "kernels/sampler_chain.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/draw_weights.h"
#include "kernels/logit_edit.h"
#include "kernels/philox.h"
#include "kernels/ref/ref.h"

namespace troupe::ref {
namespace {

struct Choice {
  double logit = 0;
  int32_t id = 0;
  double p = 0;
};
using Choices = std::vector<Choice>;

void softmax(Choices& choices) {
  std::stable_sort(choices.begin(), choices.end(), [](const Choice& a, const Choice& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  });
  double sum = 0;
  for (Choice& choice : choices) sum += choice.p = std::exp(choice.logit - choices.front().logit);
  for (Choice& choice : choices) choice.p /= sum;
}

double entropy_of(const Choices& choices) {
  double entropy = 0;
  for (const Choice& choice : choices) entropy -= choice.p > 0 ? choice.p * std::log(choice.p) : 0;
  return entropy;
}

void keep_likelier(Choices& choices, double least) {
  const Choice best = choices.front();
  std::erase_if(choices, [&](const Choice& choice) { return choice.p < least; });
  if (choices.empty()) choices.push_back(best);
}

void penalize(Choices& choices, const SampleRow& row) {
  for (Choice& choice : choices) {
    for (LogitEdit edit : row.edits) {
      edit.bias = 0;
      if (edit.token != choice.id) continue;
      choice.logit = double{edited_logit(static_cast<float>(choice.logit), row.penalties, edit)};
    }
  }
}

void heat(Choices& choices, const SampleRow& row) {
  const SamplerChain& chain = *row.chain;
  double temperature = double{row.draw.temperature};
  if (chain.has_dynamic_temperature) {
    if (choices.size() == 1) return;
    const double share = entropy_of(choices) / std::log(static_cast<double>(choices.size()));
    const double spread = double{chain.dynatemp_high} - double{chain.dynatemp_low};
    temperature =
        double{chain.dynatemp_low} + spread * std::pow(std::max(share, 0.0), double{chain.dynatemp_exponent});
    temperature = std::max(temperature, 1.0 / 256);
  }
  for (Choice& choice : choices) choice.logit /= temperature;
}

void smooth(Choices& choices, const SamplerChain& chain) {
  if (chain.smoothing_factor <= 0 || choices.size() == 1) return;
  const double f = double{chain.smoothing_factor};
  const double k = (3 - double{chain.smoothing_curve}) / 2, s = (double{chain.smoothing_curve} - 1) / 2;
  const double greatest = choices.front().logit;
  for (Choice& choice : choices) {
    const double d = choice.logit - greatest;
    choice.logit = -k * f * std::pow(d, 2) + s * f * std::pow(d, 3) + greatest;
  }
}

void cut_tail(Choices& choices, double z) {
  if (z >= 1 || choices.size() < 3) return;
  std::vector<double> curvature;
  double sum = 0;
  for (size_t i = 2; i < choices.size(); ++i) {
    curvature.push_back(std::abs(choices[i].p - 2 * choices[i - 1].p + choices[i - 2].p));
    sum += curvature.back();
  }
  double mass = 0;
  for (size_t i = 0; i < curvature.size(); ++i) {
    mass += sum > 1e-6 ? curvature[i] / sum : 1.0 / static_cast<double>(curvature.size());
    if (mass > z && i > 0) return choices.resize(i);
  }
}

void cut_untypical(Choices& choices, double mass) {
  if (mass >= 1) return;
  const double entropy = entropy_of(choices);
  const auto distance = [&](const Choice& choice) { return std::abs(-std::log(choice.p) - entropy); };
  std::stable_sort(choices.begin(), choices.end(),
                   [&](const Choice& a, const Choice& b) { return distance(a) < distance(b); });
  size_t count = 0;
  for (double sum = 0; sum < mass && count < choices.size(); ++count) sum += choices[count].p;
  choices.resize(std::max<size_t>(count, 1));
}

void cut_nucleus(Choices& choices, double mass) {
  if (mass >= 1) return;
  size_t count = 0;
  for (double sum = 0; sum < mass && count < choices.size(); ++count) sum += choices[count].p;
  choices.resize(std::max<size_t>(count, 1));
}

void exclude_top_choices(Choices& choices, const SampleRow& row) {
  const PhiloxCounter bits = philox4x32_10(
      {static_cast<uint32_t>(row.draw.position), static_cast<uint32_t>(row.draw.position >> 32), 0, 2},
      {static_cast<uint32_t>(row.draw.seed), static_cast<uint32_t>(row.draw.seed >> 32)});
  const double roll = std::ldexp(static_cast<double>((uint64_t{bits[1]} << 32 | bits[0]) >> 11), -53);
  if (row.chain->xtc_threshold > 0.5f || roll >= double{row.chain->xtc_probability}) return;
  size_t count = 0;
  for (const Choice& choice : choices) count += choice.p >= double{row.chain->xtc_threshold} ? 1 : 0;
  if (count > 1) choices.erase(choices.begin(), choices.begin() + static_cast<std::ptrdiff_t>(count) - 1);
}

void apply(Sampler sampler, Choices& choices, const SampleRow& row) {
  const SamplerChain& chain = *row.chain;
  softmax(choices);
  if (sampler == Sampler::kPenalties && chain.has_late_penalties()) return penalize(choices, row);
  if (sampler == Sampler::kTemperature) return heat(choices, row);
  if (sampler == Sampler::kSmoothing) return smooth(choices, chain);
  if (chain.mirostat != 0) return;
  const double p_max = choices.front().p;
  if (sampler == Sampler::kTopK && row.draw.top_k > 0)
    choices.resize(std::min(choices.size(), static_cast<size_t>(row.draw.top_k)));
  if (sampler == Sampler::kTopA && chain.top_a > 0)
    keep_likelier(choices, double{chain.top_a} * p_max * p_max);
  if (sampler == Sampler::kTfs) cut_tail(choices, double{chain.tfs});
  if (sampler == Sampler::kTypicalP) cut_untypical(choices, double{chain.typical_p});
  if (sampler == Sampler::kEpsilon && chain.epsilon > 0) keep_likelier(choices, double{chain.epsilon});
  if (sampler == Sampler::kEta && chain.eta > 0) {
    const double eta = double{chain.eta};
    keep_likelier(choices, std::min(eta, std::sqrt(eta) * std::exp(-entropy_of(choices))));
  }
  if (sampler == Sampler::kTopP) cut_nucleus(choices, double{row.draw.top_p});
  if (sampler == Sampler::kMinP && row.draw.min_p > 0) keep_likelier(choices, double{row.draw.min_p} * p_max);
  if (sampler == Sampler::kXtc && chain.xtc_probability > 0) exclude_top_choices(choices, row);
}

// REQUIRES: softmax
void cut_by_mirostat(Choices& choices, const SampleRow& row, size_t vocab) {
  const double mu = double{*row.mirostat_mu};
  if (row.chain->mirostat == 2) return keep_likelier(choices, std::exp2(-mu));
  double products = 0, squares = 0;
  for (size_t i = 0; i + 1 < std::min<size_t>(choices.size(), 100); ++i) {
    const double t = std::log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    products += t * (choices[i].logit - choices[i + 1].logit);
    squares += t * t;
  }
  const double s = products / squares, e = s - 1;
  if (!(s > 0)) return;
  const double k = std::pow(e * std::exp2(mu) / (1 - std::pow(static_cast<double>(vocab), -e)), 1 / s);
  if (k < static_cast<double>(choices.size())) choices.resize(std::max<size_t>(static_cast<size_t>(k), 1));
}

}  // namespace

std::vector<ChainToken> chain_tokens(std::span<const float> logits, const SampleRow& row) {
  Choices choices;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == std::numeric_limits<float>::infinity()) return {};
    if (std::isfinite(logits[i])) choices.push_back({double{logits[i]}, static_cast<int32_t>(i), 0});
  }
  if (choices.empty()) return {};
  softmax(choices);
  choices.resize(std::min<size_t>(choices.size(), kChainTokensMax));
  for (const Sampler sampler : row.chain->order) apply(sampler, choices, row);
  softmax(choices);
  if (row.chain->mirostat != 0) cut_by_mirostat(choices, row, logits.size());
  softmax(choices);
  std::vector<ChainToken> tokens;
  for (const Choice& choice : choices) tokens.push_back({choice.id, choice.p});
  return tokens;
}

int32_t draw_by_chain(std::span<const float> logits, const SampleRow& row) {
  const std::vector<ChainToken> tokens = ref::chain_tokens(logits, row);
  if (tokens.empty()) return kNoDraw;
  const double random = std::ldexp(static_cast<double>(counter_bits(row.draw.seed, row.draw.position)), -53);
  const ChainToken* drawn = &tokens.back();
  double mass = 0;
  for (const ChainToken& token : tokens) {
    mass += token.probability;
    if (mass <= random) continue;
    drawn = &token;
    break;
  }
  if (row.known >= 0) {
    for (const ChainToken& token : tokens) drawn = token.id == row.known ? &token : drawn;
  }
  if (row.chain->mirostat != 0) {
    const double error = -std::log2(drawn->probability) - double{row.chain->mirostat_tau};
    *row.mirostat_mu -= static_cast<float>(double{row.chain->mirostat_eta} * error);
  }
  return row.known >= 0 ? row.known : drawn->id;
}

}  // namespace troupe::ref

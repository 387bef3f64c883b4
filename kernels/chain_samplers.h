#pragma once

// The samplers of a chain (sampler_chain.h has their meaning), for the host and for a GPU: one text, so both
// draw the same token to the bit. Tokens are kept sorted (chain_tokens.h), so that all cuts but the typical
// one leave the first n: it leaves n in the middle, and XTC the last n.

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "kernels/chain_row.h"
#include "kernels/chain_tokens.h"
#include "kernels/draw_weights.h"
#include "kernels/exact_math.h"
#include "kernels/host_device.h"

namespace troupe {
namespace chain {

inline constexpr double kLn2 = 0.69314718055994531;
inline constexpr double kTemperatureMin = 1.0 / 256;  // of dynatemp, whose low may be 0: koboldcpp's
inline constexpr int kMirostatTokens = 100;           // that the exponent is estimated from

template <typename Team>
class Samplers {
 public:
  TROUPE_TEAM Samplers(const ChainRow& row, const LateEdits& late, Tokens<Team>& tokens)
      : row_(row), late_(late), tokens_(tokens) {}

  TROUPE_TEAM void run() {
    for (size_t i = 0; i < kSamplerCount; ++i) apply(row_.order[i]);
    if (row_.chain.mirostat != 0) cut_by_mirostat();
    tokens_.weigh();
  }
  // From what run() left. The token is the one that is known, if it is.
  TROUPE_TEAM_APART ChainDraw draw();

 private:
  TROUPE_TEAM void apply(Sampler sampler);
  TROUPE_TEAM void cut(Sampler sampler);
  TROUPE_TEAM void penalize();
  TROUPE_TEAM_APART void heat();
  TROUPE_TEAM void smooth();
  TROUPE_TEAM_APART void cut_tail();
  TROUPE_TEAM_APART void cut_untypical();
  TROUPE_TEAM int count_better(int m, int first, double middle) const;
  TROUPE_TEAM void cut_nucleus();
  TROUPE_TEAM void exclude_top_choices();
  TROUPE_TEAM void cut_by_mirostat();
  TROUPE_TEAM_APART int zipf_count() const;

  const ChainRow& row_;
  const LateEdits late_;
  Tokens<Team>& tokens_;
};

template <typename Team>
TROUPE_TEAM void Samplers<Team>::apply(Sampler sampler) {
  switch (sampler) {
    case Sampler::kPenalties:
      if (row_.has_late_penalties) penalize();
      return;
    case Sampler::kTemperature:
      return heat();
    case Sampler::kSmoothing:
      return smooth();
    default:
      if (row_.chain.mirostat == 0) cut(sampler);
      return;
  }
}

template <typename Team>
TROUPE_TEAM void Samplers<Team>::cut(Sampler sampler) {
  const SamplerChain& chain = row_.chain;
  switch (sampler) {
    case Sampler::kTopK:
      if (row_.top_k > 0) tokens_.keep(0, row_.top_k);
      return;
    case Sampler::kTopA:
      if (!(chain.top_a > 0)) return;
      tokens_.weigh();
      return tokens_.keep_from(static_cast<double>(chain.top_a) * tokens_.probability(0) *
                               tokens_.probability(0));
    case Sampler::kTfs:
      return cut_tail();
    case Sampler::kTypicalP:
      return cut_untypical();
    case Sampler::kEpsilon:
      if (chain.epsilon > 0) tokens_.keep_from(static_cast<double>(chain.epsilon));
      return;
    case Sampler::kEta: {
      if (!(chain.eta > 0)) return;
      tokens_.weigh();
      const auto eta = static_cast<double>(chain.eta);
      return tokens_.keep_from(lesser(eta, std::sqrt(eta) * exact_exp(-tokens_.entropy())));
    }
    case Sampler::kTopP:
      return cut_nucleus();
    case Sampler::kMinP:
      if (!(row_.min_p > 0)) return;
      tokens_.weigh();
      return tokens_.keep_from(static_cast<double>(row_.min_p) * tokens_.probability(0));
    case Sampler::kXtc:
      return exclude_top_choices();
    default:
      return;
  }
}

template <typename Team>
TROUPE_TEAM void Samplers<Team>::penalize() {
  const float best = tokens_.best();
  tokens_.team().each(tokens_.count(), [&](int i) {
    const int32_t token = tokens_.id(i);
    const int at = partition_point(late_.count, [&](int e) { return late_.edits[e].token < token; });
    if (at == late_.count || late_.edits[at].token != token) return;
    LogitEdit edit = late_.edits[at];
    edit.bias = 0;  // was an edit of the row
    const float edited = edited_logit(tokens_.below(i) + best, row_.penalties, edit);
    tokens_.set_below(i, clamped(edited - best, -FLT_MAX, kLogitMax));
  });
  tokens_.sort();
}

template <typename Team>
TROUPE_TEAM_APART void Samplers<Team>::heat() {
  const SamplerChain& chain = row_.chain;
  auto temperature = static_cast<double>(row_.temperature);
  if (chain.has_dynamic_temperature) {
    if (tokens_.count() < 2) return;
    tokens_.weigh();
    const double share = greater(tokens_.entropy(), 0.0) / exact_log(static_cast<double>(tokens_.count()));
    const auto low = static_cast<double>(chain.dynatemp_low);
    const auto high = static_cast<double>(chain.dynatemp_high);
    temperature = low + (high - low) * exact_pow(share, static_cast<double>(chain.dynatemp_exponent));
    temperature = greater(temperature, kTemperatureMin);
  }
  if (temperature == 1) return;
  tokens_.divide(static_cast<float>(temperature));
}

template <typename Team>
TROUPE_TEAM void Samplers<Team>::smooth() {
  if (!(row_.chain.smoothing_factor > 0) || tokens_.count() < 2) return;
  const auto factor = static_cast<double>(row_.chain.smoothing_factor);
  const auto curve = static_cast<double>(row_.chain.smoothing_curve);
  const double k = (3 - curve) / 2 * factor, s = (curve - 1) / 2 * factor;
  tokens_.team().each(tokens_.count(), [&](int i) {
    const double d = greater(static_cast<double>(tokens_.below(i)), -1e12);
    const double smoothed = -k * d * d + s * d * d * d;
    const auto most = static_cast<double>(kLogitMax);
    tokens_.set_below(i, static_cast<float>(clamped(smoothed, -most, most)));
  });
  tokens_.sort();  // a curve above 3 lifts some above the best
}

// Second differences are integers, and their sum, some 2^41, is one that a double has.
template <typename Team>
TROUPE_TEAM_APART void Samplers<Team>::cut_tail() {
  const int count = tokens_.count() - 2;
  if (!(row_.chain.tfs < 1) || count < 1) return;
  tokens_.weigh();
  const auto second = [&](int i) {
    const auto of =
        static_cast<int64_t>(tokens_.weight(i) - 2 * tokens_.weight(i + 1) + tokens_.weight(i + 2));
    return static_cast<uint64_t>(of < 0 ? -of : of);
  };
  const auto sum = static_cast<double>(tokens_.team().sum(count, second));
  const bool is_flat = !(sum > 1e-6 * static_cast<double>(tokens_.total()));
  const double bound = static_cast<double>(row_.chain.tfs) * (is_flat ? static_cast<double>(count) : sum);
  int end = 0;  // where the sum passes the bound
  if (bound >= 0) {
    const auto target = static_cast<uint64_t>(bound);
    end =
        tokens_.team().first_passing(count, target, [&](int i) { return is_flat ? uint64_t{1} : second(i); });
  }
  end = greater(end, 1);
  if (end < count) tokens_.keep(0, end);
}

// The number of tokens before `first` among the m whose d is closest to `middle`, of equally close ones the
// better first; `first` is the first that is not above `middle`. -ln p rises along the tokens, so those on
// each side are sorted already.
template <typename Team>
TROUPE_TEAM int Samplers<Team>::count_better(int m, int first, double middle) const {
  const auto distance = [&](int i) { return std::fabs(static_cast<double>(tokens_.below(i)) - middle); };
  const int least = greater(0, m - (tokens_.count() - first));
  return least + partition_point(lesser(m, first) - least, [&](int i) {
           return distance(first - 1 - (least + i)) <= distance(first + m - 1 - (least + i));
         });
}

// By halves: the fewest that have the mass. A step adds up what it has more than the last one that had not.
template <typename Team>
TROUPE_TEAM_APART void Samplers<Team>::cut_untypical() {
  if (!(row_.chain.typical_p < 1)) return;
  tokens_.weigh();
  const double middle = tokens_.log_sum() - tokens_.entropy();  // d of the token whose -ln p is H
  const uint64_t target = nucleus_target(row_.chain.typical_p, tokens_.total());
  const int first = partition_point(
      tokens_.count(), [&](int i) { return !(static_cast<double>(tokens_.below(i)) <= middle); });
  int too_few = 0, enough = tokens_.count();
  int begin = first, end = first;  // of too_few
  uint64_t mass = 0;
  while (enough - too_few > 1) {
    const int m = too_few + (enough - too_few) / 2;
    const int wider = first - count_better(m, first, middle), before = begin - wider;
    const uint64_t more = tokens_.team().sum(
        m - too_few, [&](int i) { return tokens_.weight(i < before ? wider + i : end + (i - before)); });
    if (mass + more >= target) {
      enough = m;
    } else {
      too_few = m;
      begin = wider;
      end = wider + m;
      mass += more;
    }
  }
  begin = first - count_better(enough, first, middle);
  tokens_.keep(begin, begin + enough);
}

template <typename Team>
TROUPE_TEAM void Samplers<Team>::cut_nucleus() {
  if (!(row_.top_p < 1)) return;
  tokens_.weigh();
  const uint64_t target = nucleus_target(row_.top_p, tokens_.total());
  tokens_.keep(0, tokens_.team().first_passing(tokens_.count(), target - 1, [&](int i) {
    return tokens_.weight(i);
  }) + 1);
}

template <typename Team>
TROUPE_TEAM void Samplers<Team>::exclude_top_choices() {
  if (!row_.is_xtc_rolled || row_.chain.xtc_threshold > 0.5f || tokens_.count() < 2) return;
  tokens_.weigh();
  const auto threshold = static_cast<double>(row_.chain.xtc_threshold);
  const int likely = tokens_.team().first_passing(
      tokens_.count(), 0, [&](int i) { return uint64_t{!(tokens_.probability(i) >= threshold)}; });
  if (likely > 1) tokens_.keep(likely - 1, tokens_.count());
}

template <typename Team>
TROUPE_TEAM void Samplers<Team>::cut_by_mirostat() {
  tokens_.weigh();
  if (row_.chain.mirostat != 1)
    return tokens_.keep_from(exact_exp(-static_cast<double>(row_.mirostat_mu) * kLn2));
  tokens_.keep(0,
               static_cast<int>(tokens_.team().of_one([&] { return static_cast<uint64_t>(zipf_count()); })));
}

// k of the top_k whose surprise is μ where probabilities fall by Zipf's law.
template <typename Team>
TROUPE_TEAM_APART int Samplers<Team>::zipf_count() const {
  double products = 0, squares = 0;
  for (int i = 0; i + 1 < lesser(kMirostatTokens, tokens_.count()); ++i) {
    const double t = exact_log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    products += t * (static_cast<double>(tokens_.below(i)) - static_cast<double>(tokens_.below(i + 1)));
    squares += t * t;
  }
  if (!(squares > 0) || !(products > 0)) return tokens_.count();  // one token, or a flat row
  const double exponent = products / squares, excess = exponent - 1;
  const double log_vocab = exact_log(static_cast<double>(row_.vocab));
  // The sum of i^-exponent up to N is near (1 - N^-excess) / excess, and ln N for an exponent of 1.
  const double sum = std::fabs(excess) < 1e-9 ? log_vocab : (1 - exact_exp(-excess * log_vocab)) / excess;
  const double k = exact_exp((static_cast<double>(row_.mirostat_mu) * kLn2 - exact_log(sum)) / exponent);
  return k < static_cast<double>(tokens_.count()) ? static_cast<int>(greater(k, 1.0)) : tokens_.count();
}

template <typename Team>
TROUPE_TEAM_APART ChainDraw Samplers<Team>::draw() {
  int32_t drawn = row_.known;
  if (drawn < 0) {
    const uint64_t target = draw_target(tokens_.total(), row_.random);
    drawn = tokens_.id(
        tokens_.team().first_passing(tokens_.count(), target, [&](int i) { return tokens_.weight(i); }));
  }
  if (row_.chain.mirostat == 0) return {drawn, 0};
  // The surprise of the token, in bits; of one that was cut away (a resumed answer's, computed in another
  // order) the most that stays.
  const auto mu = static_cast<double>(row_.mirostat_mu);
  const uint64_t of_drawn = tokens_.team().sum(
      tokens_.count(), [&](int i) { return tokens_.id(i) == drawn ? tokens_.weight(i) : 0; });
  double surprise = mu;
  if (of_drawn > 0) {
    surprise =
        (exact_log(static_cast<double>(tokens_.total())) - exact_log(static_cast<double>(of_drawn))) / kLn2;
  }
  const double error = surprise - static_cast<double>(row_.chain.mirostat_tau);
  return {drawn, static_cast<float>(mu - static_cast<double>(row_.chain.mirostat_eta) * error)};
}

}  // namespace chain
}  // namespace troupe

#pragma once

// The samplers of a chain (sampler_chain.h has their meaning), for the host and for a GPU: one text, so both
// draw the same token to the bit. A team computes: on the host one thread, on a GPU a block, whose threads
// all run this and have the same values. They differ only inside of what a team offers:
//
//   each(n, f)                       f(i) for i < n; the one place where memory is written
//   sum(n, f)                        of integers, so in any order
//   ordered_sum(n, f)                of doubles, in the order that kSumLanes says
//   first_passing(n, target, f)      the first i at which the sum of f passes target; n: none
//   sort(tokens, n)                  ranks, greatest first; what lies behind them may be lost
//   of_one(f)                        f() of one thread, for what goes step by step
//
// Tokens are ranks (draw_weights.h) whose key is of d, the logit less the greatest one. They are kept sorted,
// so that all cuts but the typical one leave the first n: it leaves n in the middle, whose ends one pass from
// H outwards finds, and XTC the last n.

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "kernels/chain_row.h"
#include "kernels/draw_weights.h"
#include "kernels/exact_math.h"
#include "kernels/host_device.h"

namespace troupe {
namespace chain {

// Doubles are added up in so many lanes, i in lane i % kSumLanes; then each lane of the lower half takes the
// one that is half of them above, until there is one.
inline constexpr int kSumLanes = 64;

template <typename T>
TROUPE_HOST_DEVICE T lesser(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
TROUPE_HOST_DEVICE T greater(T a, T b) {
  return a < b ? b : a;
}
template <typename T>
TROUPE_HOST_DEVICE T clamped(T x, T low, T high) {
  return x < low ? low : high < x ? high : x;
}

// The first of [0, n) for which is_before is false, by halving.
template <typename IsBefore>
TROUPE_TEAM int partition_point(int n, const IsBefore& is_before) {
  int first = 0;
  while (n > 0) {
    const int half = n / 2;
    if (is_before(first + half)) {
      first += half + 1;
      n -= half + 1;
    } else {
      n = half;
    }
  }
  return first;
}

inline constexpr float kLog2E = 1.44269504f;
inline constexpr double kLn2 = 0.69314718055994531;
inline constexpr double kTemperatureMin = 1.0 / 256;  // of dynatemp, whose low may be 0: koboldcpp's
inline constexpr float kLogitMax = 1e30f;    // logits stay numbers, whatever a temperature makes of them
inline constexpr int kMirostatTokens = 100;  // that the exponent is estimated from

template <typename Team>
class Samplers {
 public:
  // `tokens`: ranks of logits, best first; `weights`: memory for as many. REQUIRES: count > 0
  TROUPE_TEAM Samplers(const ChainRow& row, const LateEdits& late, Team& team, uint64_t* tokens,
                       uint64_t* weights, int count)
      : row_(row), late_(late), team_(team), tokens_(tokens), weights_(weights), count_(count) {
    best_ = below(0);
    const float best = best_;
    team_.each(count_, [&](int i) { set_below(i, greater(below(i) - best, -FLT_MAX)); });
  }

  TROUPE_TEAM void run() {
    for (size_t i = 0; i < kSamplerCount; ++i) apply(row_.order[i]);
    if (row_.chain.mirostat != 0) cut_by_mirostat();
    weigh();
  }
  // Of what run() left. The token is the one that is known, if it is.
  TROUPE_TEAM_APART ChainDraw draw();

  // What run() left, in the order in which a draw adds them up.
  TROUPE_TEAM int count() const { return count_; }
  TROUPE_TEAM int32_t id(int i) const { return static_cast<int32_t>(id_of_rank(tokens_[i])); }
  TROUPE_TEAM uint64_t weight(int i) const { return weights_[i]; }

 private:
  TROUPE_TEAM float below(int i) const { return logit_of_key(key_of_rank(tokens_[i])); }
  TROUPE_TEAM void set_below(int i, float to) {
    tokens_[i] = draw_rank(logit_key(clean_logit(to)), id_of_rank(tokens_[i]));
  }
  TROUPE_TEAM double probability(int i) const {
    return static_cast<double>(weights_[i]) / static_cast<double>(total_);
  }
  // ln of the sum of e^d.
  TROUPE_TEAM double log_sum() const {
    return exact_log(static_cast<double>(total_) / static_cast<double>(kFullWeight));
  }
  TROUPE_TEAM_APART double entropy() {  // REQUIRES: weighed
    const double mean = team_.ordered_sum(
        count_, [&](int i) { return static_cast<double>(weights_[i]) * static_cast<double>(below(i)); });
    return log_sum() - mean / static_cast<double>(total_);
  }
  TROUPE_TEAM uint64_t sum_weights() {
    return team_.sum(count_, [&](int i) { return weights_[i]; });
  }
  TROUPE_TEAM_APART void weigh();
  TROUPE_TEAM_APART void keep(int begin, int end);
  // Keeps the tokens before the first whose probability is less.
  TROUPE_TEAM void keep_from(double least);
  TROUPE_TEAM_APART void sort();

  TROUPE_TEAM void apply(Sampler sampler);
  TROUPE_TEAM void cut(Sampler sampler);
  TROUPE_TEAM void penalize();
  TROUPE_TEAM_APART void heat();
  TROUPE_TEAM void smooth();
  TROUPE_TEAM_APART void cut_tail();
  TROUPE_TEAM_APART void cut_untypical();
  TROUPE_TEAM void cut_nucleus();
  TROUPE_TEAM void exclude_top_choices();
  TROUPE_TEAM void cut_by_mirostat();
  TROUPE_TEAM_APART int zipf_count() const;

  const ChainRow& row_;
  const LateEdits late_;
  Team& team_;
  uint64_t* tokens_;
  uint64_t* weights_;
  int count_;
  float best_ = 0;      // the logit of d = 0
  uint64_t total_ = 0;  // of weights; 0: they are to be made
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
      if (row_.top_k > 0) keep(0, row_.top_k);
      return;
    case Sampler::kTopA:
      if (!(chain.top_a > 0)) return;
      weigh();
      return keep_from(static_cast<double>(chain.top_a) * probability(0) * probability(0));
    case Sampler::kTfs:
      return cut_tail();
    case Sampler::kTypicalP:
      return cut_untypical();
    case Sampler::kEpsilon:
      if (chain.epsilon > 0) keep_from(static_cast<double>(chain.epsilon));
      return;
    case Sampler::kEta: {
      if (!(chain.eta > 0)) return;
      weigh();
      const auto eta = static_cast<double>(chain.eta);
      return keep_from(lesser(eta, std::sqrt(eta) * exact_exp(-entropy())));
    }
    case Sampler::kTopP:
      return cut_nucleus();
    case Sampler::kMinP:
      if (!(row_.min_p > 0)) return;
      weigh();
      return keep_from(static_cast<double>(row_.min_p) * probability(0));
    case Sampler::kXtc:
      return exclude_top_choices();
    default:
      return;
  }
}

template <typename Team>
TROUPE_TEAM_APART void Samplers<Team>::weigh() {
  if (total_ != 0) return;
  team_.each(count_, [&](int i) { weights_[i] = draw_weight(below(i), 0.0f, kLog2E); });
  total_ = sum_weights();
}

template <typename Team>
TROUPE_TEAM_APART void Samplers<Team>::keep(int begin, int end) {
  end = greater(lesser(end, count_), begin + 1);
  if (begin == 0 && end == count_) return;
  tokens_ += begin;
  weights_ += begin;
  count_ = end - begin;
  if (below(0) != 0) return sort();
  if (total_ != 0) total_ = sum_weights();
}

template <typename Team>
TROUPE_TEAM void Samplers<Team>::keep_from(double least) {
  weigh();
  const double bound = least * static_cast<double>(total_);
  keep(0, partition_point(count_, [&](int i) { return static_cast<double>(weights_[i]) >= bound; }));
}

// Makes the first token the one of d = 0 again.
template <typename Team>
TROUPE_TEAM_APART void Samplers<Team>::sort() {
  const auto is_before_greater = [&](int i) { return uint64_t{tokens_[i] < tokens_[i + 1]}; };
  if (team_.sum(count_ - 1, is_before_greater) != 0) team_.sort(tokens_, count_);
  const float lift = below(0);
  team_.each(count_, [&](int i) { set_below(i, greater(below(i) - lift, -FLT_MAX)); });
  best_ = clamped(best_ + lift, -kLogitMax, kLogitMax);
  total_ = 0;
}

template <typename Team>
TROUPE_TEAM void Samplers<Team>::penalize() {
  const float best = best_;
  team_.each(count_, [&](int i) {
    const int32_t token = id(i);
    const int at = partition_point(late_.count, [&](int e) { return late_.edits[e].token < token; });
    if (at == late_.count || late_.edits[at].token != token) return;
    LogitEdit edit = late_.edits[at];
    edit.bias = 0;  // was an edit of the row
    const float edited = edited_logit(below(i) + best, row_.penalties, edit);
    set_below(i, clamped(edited - best, -FLT_MAX, kLogitMax));
  });
  sort();
}

template <typename Team>
TROUPE_TEAM_APART void Samplers<Team>::heat() {
  const SamplerChain& chain = row_.chain;
  auto temperature = static_cast<double>(row_.temperature);
  if (chain.has_dynamic_temperature) {
    if (count_ < 2) return;
    weigh();
    const double share = greater(entropy(), 0.0) / exact_log(static_cast<double>(count_));
    const auto low = static_cast<double>(chain.dynatemp_low);
    const auto high = static_cast<double>(chain.dynatemp_high);
    temperature = low + (high - low) * exact_pow(share, static_cast<double>(chain.dynatemp_exponent));
    temperature = greater(temperature, kTemperatureMin);
  }
  if (temperature == 1) return;
  const auto divisor = static_cast<float>(temperature);
  team_.each(count_, [&](int i) { set_below(i, greater(below(i) / divisor, -FLT_MAX)); });
  best_ = clamped(best_ / divisor, -kLogitMax, kLogitMax);
  total_ = 0;
}

template <typename Team>
TROUPE_TEAM void Samplers<Team>::smooth() {
  if (!(row_.chain.smoothing_factor > 0) || count_ < 2) return;
  const auto factor = static_cast<double>(row_.chain.smoothing_factor);
  const auto curve = static_cast<double>(row_.chain.smoothing_curve);
  const double k = (3 - curve) / 2 * factor, s = (curve - 1) / 2 * factor;
  team_.each(count_, [&](int i) {
    const double d = greater(static_cast<double>(below(i)), -1e12);
    const double smoothed = -k * d * d + s * d * d * d;
    const auto most = static_cast<double>(kLogitMax);
    set_below(i, static_cast<float>(clamped(smoothed, -most, most)));
  });
  sort();  // a curve above 3 lifts some above the best
}

// Second differences are integers, and their sum, some 2^41, is one that a double has.
template <typename Team>
TROUPE_TEAM_APART void Samplers<Team>::cut_tail() {
  const int count = count_ - 2;
  if (!(row_.chain.tfs < 1) || count < 1) return;
  weigh();
  const auto second = [&](int i) {
    const auto of = static_cast<int64_t>(weights_[i] - 2 * weights_[i + 1] + weights_[i + 2]);
    return static_cast<uint64_t>(of < 0 ? -of : of);
  };
  const auto sum = static_cast<double>(team_.sum(count, second));
  const bool is_flat = !(sum > 1e-6 * static_cast<double>(total_));
  const double bound = static_cast<double>(row_.chain.tfs) * (is_flat ? static_cast<double>(count) : sum);
  int end = 0;  // where the sum passes the bound
  if (bound >= 0) {
    const auto target = static_cast<uint64_t>(bound);
    end = team_.first_passing(count, target, [&](int i) { return is_flat ? uint64_t{1} : second(i); });
  }
  end = greater(end, 1);
  if (end < count) keep(0, end);
}

// -ln p rises along the tokens, so those closest to H are around the first that is not below it.
template <typename Team>
TROUPE_TEAM_APART void Samplers<Team>::cut_untypical() {
  if (!(row_.chain.typical_p < 1)) return;
  weigh();
  const double middle = log_sum() - entropy();  // d of the token whose -ln p is H
  const uint64_t target = nucleus_target(row_.chain.typical_p, total_);
  const int first =
      partition_point(count_, [&](int i) { return !(static_cast<double>(below(i)) <= middle); });
  const uint64_t ends = team_.of_one([&] {
    const auto distance = [&](int i) { return std::fabs(static_cast<double>(below(i)) - middle); };
    int begin = first, end = first;
    uint64_t mass = 0;
    while (mass < target) {
      const bool has_better = begin > 0, has_worse = end < count_;
      if (!has_better && !has_worse) break;
      if (has_better && (!has_worse || distance(begin - 1) <= distance(end))) {
        mass += weights_[--begin];
      } else {
        mass += weights_[end++];
      }
    }
    return uint64_t{static_cast<uint32_t>(begin)} << 32 | static_cast<uint32_t>(end);
  });
  keep(static_cast<int>(ends >> 32), static_cast<int>(ends & 0xffffffffu));
}

template <typename Team>
TROUPE_TEAM void Samplers<Team>::cut_nucleus() {
  if (!(row_.top_p < 1)) return;
  weigh();
  const uint64_t target = nucleus_target(row_.top_p, total_);
  keep(0, team_.first_passing(count_, target - 1, [&](int i) { return weights_[i]; }) + 1);
}

template <typename Team>
TROUPE_TEAM void Samplers<Team>::exclude_top_choices() {
  if (!row_.is_xtc_rolled || row_.chain.xtc_threshold > 0.5f || count_ < 2) return;
  weigh();
  const auto threshold = static_cast<double>(row_.chain.xtc_threshold);
  const int likely =
      team_.first_passing(count_, 0, [&](int i) { return uint64_t{!(probability(i) >= threshold)}; });
  if (likely > 1) keep(likely - 1, count_);
}

template <typename Team>
TROUPE_TEAM void Samplers<Team>::cut_by_mirostat() {
  weigh();
  if (row_.chain.mirostat != 1) return keep_from(exact_exp(-static_cast<double>(row_.mirostat_mu) * kLn2));
  keep(0, static_cast<int>(team_.of_one([&] { return static_cast<uint64_t>(zipf_count()); })));
}

// k of the top_k whose surprise is μ where probabilities fall by Zipf's law.
template <typename Team>
TROUPE_TEAM_APART int Samplers<Team>::zipf_count() const {
  double products = 0, squares = 0;
  for (int i = 0; i + 1 < lesser(kMirostatTokens, count_); ++i) {
    const double t = exact_log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    products += t * (static_cast<double>(below(i)) - static_cast<double>(below(i + 1)));
    squares += t * t;
  }
  if (!(squares > 0) || !(products > 0)) return count_;  // one token, or a flat row
  const double exponent = products / squares, excess = exponent - 1;
  const double log_vocab = exact_log(static_cast<double>(row_.vocab));
  // The sum of i^-exponent up to N is near (1 - N^-excess) / excess, and ln N for an exponent of 1.
  const double sum = std::fabs(excess) < 1e-9 ? log_vocab : (1 - exact_exp(-excess * log_vocab)) / excess;
  const double k = exact_exp((static_cast<double>(row_.mirostat_mu) * kLn2 - exact_log(sum)) / exponent);
  return k < static_cast<double>(count_) ? static_cast<int>(greater(k, 1.0)) : count_;
}

template <typename Team>
TROUPE_TEAM_APART ChainDraw Samplers<Team>::draw() {
  int32_t drawn = row_.known;
  if (drawn < 0) {
    const uint64_t target = draw_target(total_, row_.random);
    drawn = id(team_.first_passing(count_, target, [&](int i) { return weights_[i]; }));
  }
  if (row_.chain.mirostat == 0) return {drawn, 0};
  // The surprise of the token, in bits; of one that was cut away (a resumed answer's, computed in another
  // order) the most that stays.
  const auto mu = static_cast<double>(row_.mirostat_mu);
  const uint64_t of_drawn = team_.sum(count_, [&](int i) { return id(i) == drawn ? weights_[i] : 0; });
  double surprise = mu;
  if (of_drawn > 0) {
    surprise = (exact_log(static_cast<double>(total_)) - exact_log(static_cast<double>(of_drawn))) / kLn2;
  }
  const double error = surprise - static_cast<double>(row_.chain.mirostat_tau);
  return {drawn, static_cast<float>(mu - static_cast<double>(row_.chain.mirostat_eta) * error)};
}

}  // namespace chain
}  // namespace troupe

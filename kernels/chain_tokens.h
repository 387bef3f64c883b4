#pragma once

// The tokens of a chain of samplers, for the host and for a GPU (chain_samplers.h). A team computes: on the
// host one thread, on a GPU a block, whose threads all run this and have the same values. They differ only
// inside of what a team offers:
//
//   each(n, f)                       f(i) for i < n; the one place where memory is written
//   sum(n, f)                        of integers, so in any order
//   ordered_sum(n, f)                of doubles, in the order that kSumLanes says
//   first_passing(n, target, f)      the first i at which the sum of f passes target; n: none
//   sort(tokens, n)                  ranks, greatest first; what lies behind them may be lost
//   of_one(f)                        f() of one thread, for what goes step by step

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "kernels/draw_weights.h"
#include "kernels/exact_math.h"
#include "kernels/host_device.h"

namespace troupe {
namespace chain {

// Doubles are added up in so many lanes, i in lane i % kSumLanes; then each lane of the lower half takes the
// one that is half of them above, until there is one.
inline constexpr int kSumLanes = 64;

inline constexpr float kLog2E = 1.44269504f;
inline constexpr float kLogitMax = 1e30f;  // logits stay numbers, whatever a temperature makes of them

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

// Kept sorted, as ranks (draw_weights.h) whose key is of d, the logit less the greatest one. Each has a
// weight beside it, where weigh() made them since d changed.
template <typename Team>
class Tokens {
 public:
  // `ranks`: of logits, best first; `weights`: memory for as many. REQUIRES: count > 0
  TROUPE_TEAM Tokens(Team& team, uint64_t* ranks, uint64_t* weights, int count)
      : team_(team), ranks_(ranks), weights_(weights), count_(count) {
    best_ = below(0);
    const float best = best_;
    team_.each(count_, [&](int i) { set_below(i, greater(below(i) - best, -FLT_MAX)); });
  }

  TROUPE_TEAM Team& team() const { return team_; }
  TROUPE_TEAM int count() const { return count_; }
  TROUPE_TEAM float best() const { return best_; }  // the logit of d = 0
  TROUPE_TEAM int32_t id(int i) const { return static_cast<int32_t>(id_of_rank(ranks_[i])); }
  // d
  TROUPE_TEAM float below(int i) const { return logit_of_key(key_of_rank(ranks_[i])); }
  // In Team::each(). REQUIRES: sort() behind it
  TROUPE_TEAM void set_below(int i, float to) {
    ranks_[i] = draw_rank(logit_key(clean_logit(to)), id_of_rank(ranks_[i]));
  }

  TROUPE_TEAM_APART void weigh();
  // REQUIRES, of these: weigh()
  TROUPE_TEAM uint64_t weight(int i) const { return weights_[i]; }
  TROUPE_TEAM uint64_t total() const { return total_; }
  TROUPE_TEAM double probability(int i) const {
    return static_cast<double>(weights_[i]) / static_cast<double>(total_);
  }
  // ln of the sum of e^d.
  TROUPE_TEAM double log_sum() const {
    return exact_log(static_cast<double>(total_) / static_cast<double>(kFullWeight));
  }
  TROUPE_TEAM_APART double entropy() const;

  TROUPE_TEAM_APART void keep(int begin, int end);
  // Keeps the tokens before the first whose probability is less.
  TROUPE_TEAM void keep_from(double least);
  TROUPE_TEAM_APART void divide(float divisor);
  // Makes the first token the one of d = 0 again.
  TROUPE_TEAM_APART void sort();

 private:
  TROUPE_TEAM uint64_t sum_weights() const {
    return team_.sum(count_, [&](int i) { return weights_[i]; });
  }

  Team& team_;
  uint64_t* ranks_;
  uint64_t* weights_;
  int count_;
  float best_ = 0;
  uint64_t total_ = 0;  // 0: weights are to be made
};

template <typename Team>
TROUPE_TEAM_APART void Tokens<Team>::weigh() {
  if (total_ != 0) return;
  team_.each(count_, [&](int i) { weights_[i] = draw_weight(below(i), 0.0f, kLog2E); });
  total_ = sum_weights();
}

template <typename Team>
TROUPE_TEAM_APART double Tokens<Team>::entropy() const {
  const double sum = team_.ordered_sum(
      count_, [&](int i) { return static_cast<double>(weights_[i]) * static_cast<double>(below(i)); });
  return log_sum() - sum / static_cast<double>(total_);
}

template <typename Team>
TROUPE_TEAM_APART void Tokens<Team>::keep(int begin, int end) {
  end = greater(lesser(end, count_), begin + 1);
  if (begin == 0 && end == count_) return;
  ranks_ += begin;
  weights_ += begin;
  count_ = end - begin;
  if (below(0) != 0) return sort();
  if (total_ != 0) total_ = sum_weights();
}

template <typename Team>
TROUPE_TEAM void Tokens<Team>::keep_from(double least) {
  weigh();
  const double bound = least * static_cast<double>(total_);
  keep(0, partition_point(count_, [&](int i) { return static_cast<double>(weights_[i]) >= bound; }));
}

template <typename Team>
TROUPE_TEAM_APART void Tokens<Team>::divide(float divisor) {
  team_.each(count_, [&](int i) { set_below(i, greater(below(i) / divisor, -FLT_MAX)); });
  best_ = clamped(best_ / divisor, -kLogitMax, kLogitMax);
  total_ = 0;
}

template <typename Team>
TROUPE_TEAM_APART void Tokens<Team>::sort() {
  const auto is_worse = [&](int i) { return uint64_t{ranks_[i] < ranks_[i + 1]}; };
  if (team_.sum(count_ - 1, is_worse) != 0) team_.sort(ranks_, count_);
  const float lift = below(0);
  team_.each(count_, [&](int i) { set_below(i, greater(below(i) - lift, -FLT_MAX)); });
  best_ = clamped(best_ + lift, -kLogitMax, kLogitMax);
  total_ = 0;
}

}  // namespace chain
}  // namespace troupe

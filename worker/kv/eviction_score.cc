// An idle block costs room for as long as it is kept, and pays when it is wanted again. Keeping a block of
// age a until age h at most earns P(wanted within (a, h]) and costs the ticks it is expected to stay; the
// value of a block is that ratio at its best h (the Gittins index of the bandit that a cache is). A recency
// order, a frequency order and everything between come out of the same rule:
//   - one-shot prompts: their class is hardly ever wanted again, so it is worth little at every age;
//   - conversations: worth most shortly before the usual pause is over, little long after it;
//   - a loop larger than the cache: the older, the sooner wanted, so the youngest goes (LRU would never
//     hit);
//   - shared prefixes: wanted again and again at young ages; one that went out of fashion is soon older than
//     its class is used to, and worth little.
// The cache learns the rate at which blocks of a class and age are wanted: hits over (blocks × ticks) of
// lying idle. Evicted blocks count for both while they are remembered (ghost_list.h), so it is known what
// would have hit had it been kept, at ages several times beyond what the cache holds now. Ranking by hits per
// space and time, learned by class and age: Beckmann, Chen, Cidon, "LHD: Improving Cache Hit Rate by
// Maximizing Hit Density", NSDI 2018; ours adds the best horizon and the memory of what is gone. Cost: 7 ×
// 72² / 2 steps a lesson (some 30 µs), sixteen lessons while the cache turns over once.

#include "worker/kv/eviction_score.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace troupe {

namespace {

constexpr int kLessonsPerTurnover = 16;
constexpr double kFade = 1 - 1.0 / 256;  // a lesson: what was seen sixteen turnovers ago counts 1/e
// Before anything was seen: how many of a class come back. Ages spread evenly over octaves make LRU of each.
constexpr double kPriorHits[kIdleClassCount] = {0.3, 0.6, 0.9, 0.9, 0.8, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3};

}  // namespace

EvictionScore::EvictionScore(int32_t block_count)
    : turnover_(std::max(1, block_count)),
      last_bucket_(kBucketCount - 1),
      ticks_per_lesson_(static_cast<uint64_t>(std::max(32, block_count / kLessonsPerTurnover))) {
  for (size_t b = 0; b < kBucketCount; ++b) {
    widths_[b] = b < 4 ? 1.0 : static_cast<double>(uint64_t{1} << (b / 2 - 1));
  }
  last_bucket_ = bucket_of(static_cast<uint64_t>(32 * turnover_));
  set_prior(block_count);
  is_due_.fill(true);
}

size_t EvictionScore::bucket_of(uint64_t age) const {
  if (age < 4) return static_cast<size_t>(age);
  const int octave = std::bit_width(age) - 1;  // >= 2
  const size_t half = age >> (octave - 1) & 1;
  return std::min(last_bucket_, 2 * static_cast<size_t>(octave) + half);
}

void EvictionScore::count(Row& row, Ages ages, double by) const {
  while (ages.count > 0) {
    const size_t bucket = bucket_of(ages.first);
    const auto all = static_cast<uint64_t>(ages.count);
    const uint64_t here = bucket == last_bucket_ ? all : std::min(all, begin_of(bucket + 1) - ages.first);
    row[bucket] += static_cast<double>(here) * by;
    ages.first += here;
    ages.count -= static_cast<int32_t>(here);
  }
}

int EvictionScore::tick(int32_t ticks) {
  const uint64_t before = ticks_ / ticks_per_lesson_;
  ticks_ += static_cast<uint64_t>(ticks);
  return static_cast<int>(ticks_ / ticks_per_lesson_ - before);
}

IdleClass EvictionScore::shared_class(double interval) const {
  const int octaves = std::ilogb(std::max(1.0, interval / turnover_ * 32));
  return static_cast<IdleClass>(
      std::min(kFirstSharedClass + static_cast<size_t>(octaves), kIdleClassCount - 1));
}

// As if blocks were wanted at a rate of 1 / (age + a bit), up to four turnovers: that orders a class as LRU.
void EvictionScore::set_prior(int32_t block_count) {
  const double bit = 1 + turnover_ / 64;
  const size_t last = bucket_of(static_cast<uint64_t>(4 * turnover_));
  double end = 0;
  for (size_t b = 0; b <= last; ++b) end += widths_[b];
  const double weight = 1 + static_cast<double>(block_count) / 64;
  for (size_t c = 0; c < kIdleClassCount; ++c) {
    double left = weight, age = 0;
    for (size_t b = 0; b <= last; ++b, age += widths_[b - 1]) {
      const double share = std::log((age + widths_[b] + bit) / (age + bit)) / std::log((end + bit) / bit);
      prior_hits_[c][b] = weight * kPriorHits[c] * share;
      prior_idle_[c][b] = left * widths_[b];
      left -= prior_hits_[c][b];
    }
  }
}

void EvictionScore::learn() {
  for (size_t c = 0; c < kIdleClassCount; ++c) {
    if (!seen_[c]) continue;
    learned_hits_[c] = hits_[c];
    learned_idle_[c] = idle_[c];
    is_due_[c] = true;
    for (double& hits : hits_[c]) hits *= kFade;
    for (double& idle : idle_[c]) idle *= kFade;
  }
}

// Neighbouring ages are not that different, and what comes in comes in bursts of many blocks.
double EvictionScore::smooth(const Row& row, size_t bucket) const {
  if (bucket >= 2 && bucket + 2 <= last_bucket_) {  // the same as below, without the loop
    const double* const r = &row[bucket];
    return (r[-2] + 2 * r[-1] + 3 * r[0] + 2 * r[1] + r[2]) / 9;
  }
  double sum = 0, weights = 0;
  for (size_t b = bucket < 2 ? 0 : bucket - 2; b <= std::min(bucket + 2, last_bucket_); ++b) {
    const double weight = 3 - std::abs(static_cast<double>(b) - static_cast<double>(bucket));
    sum += weight * row[b];
    weights += weight;
  }
  return sum / weights;
}

void EvictionScore::value_class(size_t c) {
  // `wanted`: the share of the blocks reaching a bucket that is wanted in it; `stay`: their average ticks.
  std::array<double, kBucketCount> wanted{}, stay{}, most{};
  for (size_t b = 0; b <= last_bucket_; ++b) {
    const double hits = smooth(learned_hits_[c], b) + prior_hits_[c][b];
    const double idle = smooth(learned_idle_[c], b) + prior_idle_[c][b];
    const double rate = hits > 0 ? hits / std::max(idle, hits) : 0;
    wanted[b] = -std::expm1(-rate * widths_[b]);
    stay[b] = rate > 0 ? wanted[b] / rate : widths_[b];
    most[b] = rate;
  }
  // No horizon is worth more than the best rate on the way to it: most[b], from b on.
  for (size_t b = last_bucket_; b-- > 0;) most[b] = std::max(most[b], most[b + 1]);
  for (size_t age = 0; age <= last_bucket_; ++age) {
    double earned = 0, spent = 0, best = 0, left = 1;
    for (size_t b = age; b <= last_bucket_ && most[b] > best; ++b) {
      earned += left * wanted[b];
      spent += left * stay[b];
      left *= 1 - wanted[b];
      if (earned > best * spent) best = earned / spent;
    }
    values_[c][age] = best;
  }
  is_due_[c] = false;
}

}  // namespace troupe

// A histogram of how far logits are below the best one says where the count-th lies; one more pass collects
// what is above. Both passes look at 4 bytes a token. A radix sort of what was collected: 5,000 tokens by
// comparisons would cost more than all passes over a vocabulary of 50,000, since a branch in two is
// mispredicted.

#include "kernels/best_tokens.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "kernels/draw_weights.h"

namespace troupe {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr size_t kBins = 2048;
constexpr float kBinsPerLogit = 64.0f;  // so they reach 32 below the best; what is farther is in the last

// The greatest logit; +inf where softmax has no meaning, or -inf.
float greatest(std::span<const float> logits) {
  constexpr size_t kLanes = 16;  // independent, so that they are the lanes of vectors
  std::array<float, kLanes> best;
  best.fill(-kInfinity);
  std::array<int32_t, kLanes> strange{};
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float logit = logits[i + lane];
      best[lane] = logit > best[lane] ? logit : best[lane];
      strange[lane] |= logit < kInfinity ? 0 : 1;
    }
  }
  for (; i < logits.size(); ++i) {
    best[0] = std::max(best[0], logits[i]);
    strange[0] |= logits[i] < kInfinity ? 0 : 1;
  }
  if (std::any_of(strange.begin(), strange.end(), [](int32_t is) { return is != 0; })) return kInfinity;
  return *std::max_element(best.begin(), best.end());
}

size_t bin_of(float logit, float best) {
  const float below = (best - logit) * kBinsPerLogit;
  return below < static_cast<float>(kBins - 1) ? static_cast<size_t>(below) : kBins - 1;
}

uint64_t rank_of(float logit, size_t id) {
  return draw_rank(logit_key(clean_logit(logit)), static_cast<uint32_t>(id));
}

// REQUIRES: equal keys are in the order of their ids already.
void sort_best_first(std::vector<uint64_t>& ranks) {
  if (ranks.size() < 512) {
    std::sort(ranks.begin(), ranks.end(), std::greater<>());
    return;
  }
  constexpr int kDigits = 3, kBits = 11;
  constexpr size_t kPlaces = size_t{1} << kBits;
  std::vector<uint64_t> other(ranks.size());
  for (int digit = 0; digit < kDigits; ++digit) {
    const int shift = 32 + digit * kBits;
    const auto place_of = [&](uint64_t rank) { return (~rank >> shift) & (kPlaces - 1); };
    std::array<uint32_t, kPlaces> next{};
    for (const uint64_t rank : ranks) ++next[place_of(rank)];
    uint32_t begin = 0;
    for (uint32_t& place : next) begin += std::exchange(place, begin);
    for (const uint64_t rank : ranks) other[next[place_of(rank)]++] = rank;
    ranks.swap(other);
  }
}

// For a count that is small beside the row.
std::vector<uint64_t> best_few(std::span<const float> logits, size_t count) {
  std::vector<uint64_t> ranks;
  ranks.reserve(2 * count);
  float least = -kInfinity;  // the worst of the best ones so far; later equals lose by id
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > least)) continue;
    ranks.push_back(rank_of(logits[i], i));
    if (ranks.size() < 2 * count) continue;
    std::nth_element(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(count - 1), ranks.end(),
                     std::greater<>());
    ranks.resize(count);
    least = logits[id_of_rank(ranks.back())];
  }
  std::sort(ranks.begin(), ranks.end(), std::greater<>());
  ranks.resize(std::min(ranks.size(), count));
  return ranks;
}

}  // namespace

std::vector<uint64_t> best_tokens(std::span<const float> logits, size_t count) {
  const float best = greatest(logits);
  if (!std::isfinite(best)) return {};
  std::vector<uint64_t> ranks;
  if (logits.size() <= count) {
    ranks.reserve(logits.size());
    for (size_t i = 0; i < logits.size(); ++i) {
      if (logits[i] > -kInfinity) ranks.push_back(rank_of(logits[i], i));
    }
    sort_best_first(ranks);
    return ranks;
  }
  if (count * 32 <= logits.size()) return best_few(logits, count);
  std::array<uint32_t, kBins> counts{};
  for (const float logit : logits) ++counts[bin_of(logit, best)];
  size_t edge = 0;  // the bin that the count-th is in
  size_t above = 0;
  while (above + counts[edge] < count) above += counts[edge++];
  std::vector<uint64_t> at_edge;
  ranks.reserve(count);
  at_edge.reserve(counts[edge]);
  for (size_t i = 0; i < logits.size(); ++i) {
    const size_t bin = bin_of(logits[i], best);
    if (bin > edge || logits[i] == -kInfinity) continue;
    (bin < edge ? ranks : at_edge).push_back(rank_of(logits[i], i));
  }
  sort_best_first(ranks);
  const size_t missing = std::min(count - above, at_edge.size());
  std::partial_sort(at_edge.begin(), at_edge.begin() + static_cast<std::ptrdiff_t>(missing), at_edge.end(),
                    std::greater<>());
  ranks.insert(ranks.end(), at_edge.begin(), at_edge.begin() + static_cast<std::ptrdiff_t>(missing));
  return ranks;
}

}  // namespace troupe

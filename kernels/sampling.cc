// From logits to a token without sorting the vocabulary.
//
// With V around 150,000 a full sort per token costs more than a small model's step, and is not needed:
// - top_k keeps a buffer of 2k candidates and halves it by selection when it is full: O(V) for any k.
// - top_p first drops what cannot be in the nucleus (nucleus_cutoff). Of the rest (usually tens) it selects
//   by mass.
// - neither: sums of chunks of the vocabulary, then only the chunk that the draw falls into.
//
// Ties are cut by id, lowest first, so the kept set never depends on the order of selection.

#include "kernels/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/draw_weights.h"
#include "kernels/logit_edit.h"
#include "kernels/philox.h"

namespace troupe {

namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

struct Candidate {
  uint64_t rank = 0;
  uint64_t weight = 0;
  int32_t id() const { return static_cast<int32_t>(id_of_rank(rank)); }
};

bool better(const Candidate& a, const Candidate& b) {
  return a.rank > b.rank;
}

uint64_t rank_of(float logit, size_t id) {
  return draw_rank(logit_key(clean_logit(logit)), static_cast<uint32_t>(id));
}

// kNoDraw where no token can be drawn.
int32_t argmax(std::span<const float> logits) {
  int32_t best = kNoDraw;
  float best_logit = kMinusInfinity;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] <= best_logit) continue;  // false for NaN
    if (!std::isfinite(logits[i])) return kNoDraw;
    best_logit = logits[i];
    best = static_cast<int32_t>(i);
  }
  return best;
}

// Weights of a row's tokens.
struct Weights {
  std::span<const float> logits;
  float best;
  float scale;
  uint64_t of(size_t i) const { return draw_weight(clean_logit(logits[i]), best, scale); }
};

// The k best by id: a draw must not depend on the order in which selection leaves them. REQUIRES: 0 < k <
// logits.size()
std::vector<Candidate> select_top_k(const Weights& weights, size_t k) {
  const std::span<const float> logits = weights.logits;
  std::vector<Candidate> kept;
  kept.reserve(2 * k);
  float threshold = kMinusInfinity;  // the k-th best so far; later equals lose by id
  const auto shrink = [&] {
    const auto last = kept.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(kept.begin(), last, kept.end(), better);
    kept.resize(k);
    threshold = logits[static_cast<size_t>(kept[k - 1].id())];
  };
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > threshold || kept.size() < k) {
      kept.push_back({rank_of(logits[i], i), 0});
      if (kept.size() == 2 * k) shrink();
    }
  }
  if (kept.size() > k) shrink();
  std::sort(kept.begin(), kept.end(), [](const Candidate& a, const Candidate& b) { return a.id() < b.id(); });
  for (Candidate& c : kept) c.weight = weights.of(static_cast<size_t>(c.id()));
  return kept;
}

uint64_t total_weight(std::span<const Candidate> candidates) {
  uint64_t total = 0;
  for (const Candidate& c : candidates) total += c.weight;
  return total;
}

// Leaves only what can be in the nucleus of the whole vocabulary. `total` is the weight of all tokens.
std::vector<Candidate> select_for_nucleus(const Weights& weights, float top_p, uint64_t& total) {
  const std::span<const float> logits = weights.logits;
  total = 0;
  for (size_t i = 0; i < logits.size(); ++i) total += weights.of(i);
  // The best one stays: its weight is the largest there is, and total <= size times that.
  const uint64_t cutoff = nucleus_cutoff(top_p, total, static_cast<int64_t>(logits.size()));
  // A logit for the cutoff, with room for the polynomial's error: most need no weight of their own any more.
  const double share = static_cast<double>(std::max<uint64_t>(cutoff, 1)) / static_cast<double>(kFullWeight);
  const auto least = static_cast<float>(weights.best + (std::log2(share) - 0.01) / weights.scale);
  std::vector<Candidate> kept;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] < least) continue;
    const uint64_t weight = weights.of(i);
    if (weight > 0 && weight >= cutoff) kept.push_back({rank_of(logits[i], i), weight});
  }
  return kept;
}

// Keeps the smallest set of best candidates whose weight reaches `target`; at least one. Only its worst
// member is looked for, by selection on mass; the order of `candidates` stays.
void keep_nucleus(std::vector<Candidate>& candidates, uint64_t target) {
  std::vector<Candidate> ranked = candidates;
  // The worst member is in ranked[low, high): everything before `low` is better, and too light.
  auto low = ranked.begin();
  auto high = ranked.end();
  uint64_t mass_before = 0;
  while (high - low > 1) {
    const auto middle = low + (high - low) / 2;
    std::nth_element(low, middle, high, better);
    const uint64_t mass = total_weight({low, middle});
    if (mass_before + mass >= target) {
      high = middle;
    } else {
      mass_before += mass;
      low = middle;
    }
  }
  const Candidate worst = *low;
  std::erase_if(candidates, [&](const Candidate& c) { return better(worst, c); });
}

int32_t draw(std::span<const Candidate> candidates, uint64_t random) {
  const uint64_t target = draw_target(total_weight(candidates), random);
  uint64_t mass = 0;
  for (const Candidate& c : candidates) {
    mass += c.weight;
    if (mass > target) return c.id();
  }
  return candidates.back().id();
}

// Neither top_k nor top_p.
int32_t draw_from_all(const Weights& weights, uint64_t least, uint64_t random) {
  constexpr size_t kChunk = 1024;
  const size_t count = weights.logits.size();
  const auto weight = [&](size_t i) {
    const uint64_t w = weights.of(i);
    return w >= least ? w : 0;
  };
  std::vector<uint64_t> sums((count + kChunk - 1) / kChunk, 0);
  uint64_t total = 0;
  for (size_t i = 0; i < count; ++i) sums[i / kChunk] += weight(i);
  for (const uint64_t sum : sums) total += sum;
  const uint64_t target = draw_target(total, random);
  uint64_t mass = 0;
  size_t chunk = 0;
  while (mass + sums[chunk] <= target) mass += sums[chunk++];
  size_t i = chunk * kChunk;
  for (mass += weight(i); mass <= target; mass += weight(i)) ++i;
  return static_cast<int32_t>(i);
}

}  // namespace

uint64_t counter_bits(uint64_t seed, uint64_t position) {
  const PhiloxCounter bits =
      philox4x32_10({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0},
                    {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return (uint64_t{bits[1]} << 32 | bits[0]) >> (64 - kDrawBits);
}

void edit_logits(std::span<float> logits, const SampleRow& row, const int32_t* drawn) {
  if (row.chain != nullptr && row.chain->has_late_penalties()) {
    for (const LogitEdit& edit : row.edits) logits[static_cast<size_t>(edit.token)] += edit.bias;
    return;
  }
  int32_t last = row.last_drawn >= 0 ? drawn[row.last_drawn] : -1;
  const auto make = [&](const LogitEdit& edit) {
    float& logit = logits[static_cast<size_t>(edit.token)];
    logit = edited_logit(logit, row.penalties, edit);
  };
  for (const LogitEdit& edit : row.edits) {
    make(edit.token == last ? once_more(edit) : edit);
    if (edit.token == last) last = -1;
  }
  if (last >= 0) make({.token = last, .emitted_count = 1});
}

void apply_mask(std::span<float> logits, std::span<const uint32_t> mask) {
  if (mask.empty()) return;
  for (size_t i = 0; i < logits.size(); i += 32) {
    const uint32_t bits = mask[i / 32];
    if (bits == ~0u) continue;
    for (size_t j = i; j < std::min(i + 32, logits.size()); ++j) {
      if ((bits >> (j - i) & 1) == 0) logits[j] = kMinusInfinity;
    }
  }
}

int32_t draw_token(std::span<const float> logits, const DrawParams& params) {
  const int32_t first = argmax(logits);
  if (!(params.temperature > 0) || first == kNoDraw) return first;

  const float best = clean_logit(logits[static_cast<size_t>(first)]);
  const Weights weights{logits, best, draw_scale(params.temperature)};
  const uint64_t random = counter_bits(params.seed, params.position);
  const uint64_t least = least_weight(params.min_p);
  const bool limits_count = params.top_k > 0 && static_cast<size_t>(params.top_k) < logits.size();
  const bool limits_mass = params.top_p < 1.0f;
  if (!limits_count && !limits_mass) return draw_from_all(weights, least, random);

  std::vector<Candidate> candidates;
  uint64_t total = 0;
  if (limits_count) {
    candidates = select_top_k(weights, static_cast<size_t>(params.top_k));
    total = total_weight(candidates);
  } else {
    candidates = select_for_nucleus(weights, params.top_p, total);
  }
  if (limits_mass) keep_nucleus(candidates, nucleus_target(params.top_p, total));
  std::erase_if(candidates, [&](const Candidate& c) { return c.weight < least; });
  return draw(candidates, random);
}

}  // namespace troupe

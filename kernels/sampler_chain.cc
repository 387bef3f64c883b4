// The samplers (chain_samplers.h) by one thread.

#include "kernels/sampler_chain.h"

#include <algorithm>
#include <array>
#include <functional>

#include "kernels/best_tokens.h"
#include "kernels/chain_samplers.h"
#include "kernels/draw_weights.h"
#include "kernels/philox.h"

namespace troupe {

namespace {

// A team of one (chain_samplers.h).
struct HostTeam {
  template <typename F>
  void each(int n, const F& f) const {
    for (int i = 0; i < n; ++i) f(i);
  }
  template <typename F>
  uint64_t sum(int n, const F& f) const {
    uint64_t sum = 0;
    for (int i = 0; i < n; ++i) sum += f(i);
    return sum;
  }
  template <typename F>
  double ordered_sum(int n, const F& f) const {
    std::array<double, chain::kSumLanes> lanes{};
    for (int i = 0; i < n; ++i) lanes[static_cast<size_t>(i % chain::kSumLanes)] += f(i);
    for (size_t half = lanes.size() / 2; half > 0; half /= 2) {
      for (size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    return lanes.front();
  }
  template <typename F>
  int first_passing(int n, uint64_t target, const F& f) const {
    uint64_t sum = 0;
    for (int i = 0; i < n; ++i) {
      if ((sum += f(i)) > target) return i;
    }
    return n;
  }
  void sort(uint64_t* tokens, int n) const { std::sort(tokens, tokens + n, std::greater<>()); }
  template <typename F>
  uint64_t of_one(const F& f) const {
    return f();
  }
};

// Whether the position's roll is XTC's: of bits of a counter beside those of counter_bits() and
// choice_seed().
bool is_xtc_rolled(const DrawParams& draw, float probability) {
  if (!(probability > 0)) return false;
  const PhiloxCounter bits =
      philox4x32_10({static_cast<uint32_t>(draw.position), static_cast<uint32_t>(draw.position >> 32), 0, 2},
                    {static_cast<uint32_t>(draw.seed), static_cast<uint32_t>(draw.seed >> 32)});
  const uint64_t roll = (uint64_t{bits[1]} << 32 | bits[0]) >> (64 - kDrawBits);
  return static_cast<double>(roll) * 0x1p-53 < double{probability};
}

// Where the first sampler is top_k no others are needed.
int32_t first_count(const SamplerChain& chain, int32_t top_k) {
  for (const Sampler sampler : chain.order) {
    if (sampler == Sampler::kPenalties && !chain.has_late_penalties()) continue;
    if (sampler != Sampler::kTopK || top_k <= 0 || chain.mirostat != 0) break;
    return std::min(top_k, kChainTokensMax);
  }
  return kChainTokensMax;
}

// use(samplers, tokens) behind their run(); false where no token can be drawn.
template <typename Use>
bool run_chain(std::span<const float> logits, const SampleRow& row, const Use& use) {
  const ChainRow bytes = chain_row(row, static_cast<int32_t>(logits.size()));
  std::vector<uint64_t> ranks = best_tokens(logits, static_cast<size_t>(bytes.first_count));
  if (ranks.empty()) return false;
  std::vector<uint64_t> weights(ranks.size());
  std::vector<LogitEdit> edits;
  if (bytes.has_late_penalties) {
    edits.assign(row.edits.begin(), row.edits.end());
    sort_late_edits(edits);
  }
  HostTeam team;
  chain::Tokens tokens(team, ranks.data(), weights.data(), static_cast<int>(ranks.size()));
  chain::Samplers samplers(bytes, {edits.data(), static_cast<int32_t>(edits.size())}, tokens);
  samplers.run();
  use(samplers, tokens);
  return true;
}

}  // namespace

void sort_late_edits(std::span<LogitEdit> edits) {
  std::sort(edits.begin(), edits.end(),
            [](const LogitEdit& a, const LogitEdit& b) { return a.token < b.token; });
}

ChainRow chain_row(const SampleRow& row, int32_t vocab) {
  const SamplerChain& chain = *row.chain;
  ChainRow bytes{.chain = chain,
                 .has_late_penalties = chain.has_late_penalties(),
                 .is_xtc_rolled = is_xtc_rolled(row.draw, chain.xtc_probability),
                 .temperature = row.draw.temperature,
                 .top_p = row.draw.top_p,
                 .min_p = row.draw.min_p,
                 .top_k = row.draw.top_k,
                 .first_count = first_count(chain, row.draw.top_k),
                 .vocab = vocab,
                 .penalties = row.penalties,
                 .mirostat_mu = row.mirostat_mu != nullptr ? *row.mirostat_mu : 0.0f,
                 .known = row.known,
                 .random = counter_bits(row.draw.seed, row.draw.position)};
  std::copy(chain.order.begin(), chain.order.end(), bytes.order);
  return bytes;
}

std::vector<WeighedToken> chain_tokens(std::span<const float> logits, const SampleRow& row) {
  std::vector<WeighedToken> result;
  run_chain(logits, row, [&](const auto&, const auto& tokens) {
    for (int i = 0; i < tokens.count(); ++i) {
      if (tokens.weight(i) > 0) result.push_back({tokens.id(i), tokens.weight(i)});
    }
  });
  return result;
}

int32_t draw_by_chain(std::span<const float> logits, const SampleRow& row) {
  if (!(row.draw.temperature > 0)) return draw_token(logits, row.draw);
  ChainDraw drawn;
  if (!run_chain(logits, row, [&](auto& samplers, const auto&) { drawn = samplers.draw(); })) return kNoDraw;
  if (row.chain->mirostat != 0) *row.mirostat_mu = drawn.mirostat_mu;
  return drawn.id;
}

int32_t edit_and_draw(std::span<float> logits, const SampleRow& row, const int32_t* drawn) {
  edit_logits(logits, row, drawn);
  apply_mask(logits, row.mask);
  return row.chain == nullptr ? draw_token(logits, row.draw) : draw_by_chain(logits, row);
}

}  // namespace troupe

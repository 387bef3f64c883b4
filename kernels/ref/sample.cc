// The meaning of a draw: sort everything, cut, draw. draw_weights.h says what a token weighs.

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/draw_weights.h"
#include "kernels/ref/ref.h"

namespace troupe::ref {
namespace {

struct Token {
  float logit = 0;
  int32_t id = 0;
  uint64_t weight = 0;
};

uint64_t total_of(const std::vector<Token>& tokens) {
  uint64_t total = 0;
  for (const Token& token : tokens) total += token.weight;
  return total;
}

// REQUIRES: best first.
void cut(std::vector<Token>& tokens, const DrawParams& params) {
  if (params.top_k > 0) tokens.resize(std::min(tokens.size(), static_cast<size_t>(params.top_k)));
  if (params.top_p < 1.0f) {
    const uint64_t target = nucleus_target(params.top_p, total_of(tokens));
    uint64_t mass = 0;
    size_t count = 0;
    while (count < tokens.size() && mass < target) mass += tokens[count++].weight;
    tokens.resize(count);
  }
  std::erase_if(tokens, [&](const Token& token) { return token.weight < least_weight(params.min_p); });
}

bool has_distribution(std::span<const float> logits) {
  bool has_any = false;
  for (const float logit : logits) {
    if (std::isnan(logit) || logit == INFINITY) return false;
    has_any |= logit > -INFINITY;
  }
  return has_any;
}

int32_t draw(std::span<const float> logits, const DrawParams& params) {
  if (!has_distribution(logits)) return kNoDraw;
  std::vector<Token> tokens;
  for (size_t i = 0; i < logits.size(); ++i) {
    tokens.push_back({clean_logit(logits[i]), static_cast<int32_t>(i), 0});
  }
  std::stable_sort(tokens.begin(), tokens.end(),
                   [](const Token& a, const Token& b) { return a.logit > b.logit; });
  const float best = tokens.front().logit;
  if (!(params.temperature > 0)) return tokens.front().id;
  for (Token& token : tokens) token.weight = draw_weight(token.logit, best, draw_scale(params.temperature));
  cut(tokens, params);
  std::sort(tokens.begin(), tokens.end(), [](const Token& a, const Token& b) { return a.id < b.id; });
  const uint64_t target = draw_target(total_of(tokens), counter_bits(params.seed, params.position));
  uint64_t mass = 0;
  for (const Token& token : tokens) {
    mass += token.weight;
    if (mass > target) return token.id;
  }
  return tokens.back().id;
}

}  // namespace

void sample(const SampleParams& params) {
  const auto vocab = static_cast<size_t>(params.logits.shape[1]);
  for (size_t s = 0; s < params.rows.size(); ++s) {
    const SampleRow& row = params.rows[s];
    const std::span<float> logits(params.logits.as<float>() + s * vocab, vocab);
    edit_logits(logits, row, params.drawn.as<const int32_t>());
    apply_mask(logits, row.mask);
    const bool by_chain = row.chain != nullptr && row.draw.temperature > 0;
    params.out.as<int32_t>()[s] = by_chain ? ref::draw_by_chain(logits, row) : draw(logits, row.draw);
  }
}

}  // namespace troupe::ref

#pragma once

// The samplers of role-play front ends, behind the edits of a row's logits (sampling.h) and in place of
// DrawParams' own cuts. Pure, as those: (logits, parameters, seed, position) give the token, and μ for
// mirostat. d is a logit less the greatest one, p a probability among the tokens that are still there, which
// each sampler makes anew; of a cut the likeliest token stays, of typical_p the most typical one.
//
//   prefilter    the 5,000 best logits, once, before all others                       (koboldcpp)
//   penalties    sampling.h's, of the tokens still there; usually first, where they are edits of the row
//   temperature  d / T; or T = low + (high - low) · (H / ln n)^exponent, H the entropy of n tokens
//                                                                                     (koboldcpp, dynatemp)
//   smoothing    -k · f · d² + s · f · d³ with k = (3 - curve) / 2, s = (curve - 1) / 2
//                                                                                     (quadratic sampling)
//   top_k        the k best
//   top_a        p >= a · p_max²
//   tfs          p sorted; |second differences|, their sum made 1; the tokens before the sum passes tfs
//                                                                                     (tail free sampling)
//   typical_p    of those whose -ln p is closest to H the fewest with mass >= typical_p
//                                                                   (Meister et al., arXiv 2202.00666)
//   epsilon      p >= ε                                            (Hewitt et al., arXiv 2210.15191)
//   eta          p >= min(η, sqrt(η) · e^-H)                                          (the same)
//   top_p        the fewest best ones with mass >= top_p
//   min_p        p >= min_p · p_max
//   xtc          with its probability, rolled once a position: of the tokens with p >= threshold all but the
//                least likely go, if there are two; not with a threshold above .5     (koboldcpp)
//   mirostat     behind penalties, temperature and smoothing, in place of all cuts. 1: top_k, k by μ and
//                Zipf's exponent, estimated from the 100 best; 2: -log2 p <= μ. Then μ -= η · (-log2 p - τ)
//                of the token drawn                                    (Basu et al., arXiv 2007.14966)
//
// Temperature 0 takes the best token whatever else is set.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/chain_row.h"
#include "kernels/sampling.h"

namespace troupe {

// μ of an answer's first token.
inline float first_mirostat_mu(const SamplerChain& chain) {
  return 2 * chain.mirostat_tau;
}

// A token that may be drawn, with its share of the sum of weights (draw_weights.h).
struct WeighedToken {
  int32_t id = 0;
  uint64_t weight = 0;
};

// The tokens that the row's chain leaves, in the order in which a draw adds them up: by logit, among equals
// the lowest id. Empty where no token can be drawn. REQUIRES: row.chain, temperature > 0; with mirostat
// row.mirostat_mu; with late penalties no row.last_drawn
std::vector<WeighedToken> chain_tokens(std::span<const float> logits, const SampleRow& row);

// Draws from edited logits by the row's chain; moves *row.mirostat_mu on by the token returned. Where
// row.known is a token, that is the one returned, as if it had been drawn. kNoDraw as draw_token(). REQUIRES:
// as chain_tokens(), but any temperature
int32_t draw_by_chain(std::span<const float> logits, const SampleRow& row);
// The row as bytes. REQUIRES: as chain_tokens()
ChainRow chain_row(const SampleRow& row, int32_t vocab);
// Edits as LateEdits has them.
void sort_late_edits(std::span<LogitEdit> edits);
// Edits, masks and draws, by the row's chain where it has one. `drawn`: as edit_logits().
int32_t edit_and_draw(std::span<float> logits, const SampleRow& row, const int32_t* drawn = nullptr);

}  // namespace troupe

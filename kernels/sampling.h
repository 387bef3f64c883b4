#pragma once

// From logits to a token: bias and penalties, then, in Transformers' order, temperature → top_k → top_p →
// min_p → softmax → draw. Pure: the same (logits, parameters, history, seed, position) gives the same token,
// whatever else is in the batch, on the host and on a GPU alike (draw_weights.h). The generator is
// counter-based: u = Philox4x32-10(key = seed, counter = position), so position p of a stream can be drawn
// without drawing the p before it (resume, preemption). Source: Salmon et al., SC'11.
//
// Edits of a row's logits come first:
//
//   bias                l += bias                                    (OpenAI; Transformers' SequenceBias)
//   repetition_penalty  l = l > 0 ? l / p : l · p   for ids of prompt and answer  (Transformers, vLLM)
//   frequency_penalty   l -= f · times emitted      for ids of the answer         (OpenAI, vLLM)
//   presence_penalty    l -= p                      for ids of the answer         (OpenAI, vLLM)
//
// in this order, which is vLLM's (v1/sample: logit-bias processor, then apply_penalties: repetition,
// frequency, presence; then temperature and cuts) and for the two that it has Transformers'
// (_get_logits_processor: sequence bias, then repetition penalty, then the warpers). Each touches one logit
// for itself, so only ids seen or biased cost anything, and the order among them does not matter.
//
// A device makes the edits, applies the mask and draws, by a chain of samplers too, from logits that stay
// there; DRY's penalties and a grammar's mask come from the host, which follows the history
// (logit_adjuster.h, answer_grammar.h).

#include <cstdint>
#include <span>

#include "kernels/logit_edit.h"
#include "kernels/sampler_params.h"

namespace troupe {

struct DrawParams {
  float temperature = 1.0f;  // 0: greedy (lowest id among equals)
  int32_t top_k = 0;         // 0: off
  float top_p = 1.0f;        // smallest set with mass >= top_p
  float min_p = 0.0f;        // tokens with p >= min_p * p_max
  uint64_t seed = 0;
  uint64_t position = 0;  // of the answer's token that is drawn
};

struct SampleRow {
  DrawParams draw;
  LogitPenalties penalties = {};
  std::span<const LogitEdit> edits = {};  // each token once
  // Not below zero: the answer's last token is SampleParams::drawn[last_drawn], and `edits` are those before
  // it was emitted. (Where that is kNoDraw, there is none.)
  int32_t last_drawn = -1;
  // Null: the cuts of `draw` alone, in its order (else sampler_chain.h's). With mirostat its μ, which the
  // draw moves on; and the token that was drawn at this position before, if it was, which is drawn again.
  const SamplerChain* chain = nullptr;
  float* mirostat_mu = nullptr;
  int32_t known = -1;
  // Not empty: a bit for every token, the first in the lowest bit of the first word. Tokens without theirs
  // are not drawn. It is read when the row is drawn from.
  std::span<const uint32_t> mask = {};

  // Whether a device's draw needs the host within its step: that makes the mask while the logits are
  // computed, or waits for the μ that the draw leaves. All else of a draw is the device's.
  bool needs_host() const { return !mask.empty() || mirostat_mu != nullptr; }
};

// Drawn from a row for which softmax has no meaning: a logit is NaN or +inf, or all are -inf.
inline constexpr int32_t kNoDraw = -1;

// 53 random bits.
uint64_t counter_bits(uint64_t seed, uint64_t position);

// REQUIRES: every edit's token, and row.last_drawn's, is in the vocabulary of logits.size(). `drawn`:
// SampleParams::drawn's, null where no row has a last_drawn.
void edit_logits(std::span<float> logits, const SampleRow& row, const int32_t* drawn = nullptr);
// Takes the tokens without a bit out of a row. REQUIRES: a bit for every token, or no mask
void apply_mask(std::span<float> logits, std::span<const uint32_t> mask);
// Draws from edited logits; kNoDraw where that cannot be. REQUIRES: logits not empty.
int32_t draw_token(std::span<const float> logits, const DrawParams& params);

}  // namespace troupe

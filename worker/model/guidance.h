#pragma once

// Classifier-free guidance: an answer is drawn from the logits of its prompt, led away from those of a
// negative prompt behind which the same answer stands:
//
//   p = log softmax(logits),  n = log softmax(negative logits)
//   logits = n + scale · (p - n)
//
// before every other sampler. Source: Transformers' UnbatchedClassifierFreeGuidanceLogitsProcessor
// (generation/logits_process.py), which is that of Sanchez et al., "Stay on topic with Classifier-Free
// Guidance", 2023. The result is no distribution yet: its softmax is.

#include <cstdint>
#include <span>
#include <vector>

#include "worker/schedule/request.h"

namespace troupe {

struct Guidance {
  double scale = 1;                      // 1 would be none
  std::vector<TokenId> negative_prompt;  // not empty
};

// Row `row` of a step's logits is guided by row `negative_row`.
struct GuidedRow {
  int32_t row = 0;
  int32_t negative_row = 0;
  double scale = 1;
};

// In place. A token of probability zero stays one; in the negative row it leaves the token's p alone. A row
// from which no token can be drawn (kNoDraw) leaves such a row. REQUIRES: equal sizes, not empty
void guide_logits(std::span<float> logits, std::span<const float> negative, double scale);

}  // namespace troupe

#pragma once

// The best logits of a row, sorted, without sorting the row.

#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

// Ranks (draw_weights.h) of the `count` best tokens, best first; those of -inf are none. Empty where the row
// is not drawable: a logit is NaN or +inf, or all are -inf. REQUIRES: count > 0
std::vector<uint64_t> best_tokens(std::span<const float> logits, size_t count);

}  // namespace troupe

#pragma once

// Lengths in tokens without a tokenizer: from the workers' own counts where this prefix was answered before,
// else from bytes by a ratio learned from those counts.

#include <cstdint>

#include "gateway/route/key/prefix_key.h"

namespace troupe::route {

// Tokens a byte of prompt, learned from answers (their prompt_tokens over our bytes), decaying so that a
// change of traffic shows within some hundred answers. The fixed part (template words, a prompt of a few
// bytes) is noise at the lengths that matter.
class TokenRatio {
 public:
  static constexpr double kFirstGuess = 0.25;  // four bytes a token: English text in a large vocabulary
  void learn(size_t prompt_bytes, int64_t prompt_tokens);
  double tokens_per_byte() const { return bytes_ > 0 ? tokens_ / bytes_ : kFirstGuess; }
  int64_t tokens(size_t bytes) const {
    return static_cast<int64_t>(static_cast<double>(bytes) * tokens_per_byte());
  }

 private:
  static constexpr double kDecay = 0.995;
  double bytes_ = 0;
  double tokens_ = 0;
};

// The worker's own counts of one finished answer (its `usage`).
struct AnswerCounts {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
  bool has_cached = false;       // the worker reports cached tokens at all
  int64_t reasoning_tokens = 0;  // among completion_tokens
};

// Workers cache whole blocks: the default --block-size, for one that reports none.
inline constexpr int64_t kBlockTokens = 16;

// A request's lengths in tokens: as the caller knows them, else estimated from bytes by one shared ratio. (An
// error common to all nodes only rescales the cost; errors of each node's own would cost hits.)
struct RequestTokens {
  int64_t prompt = 1;
  int64_t prefix = 0;         // of the set's prefix; 0: no set
  int64_t history = 0;        // up to the last message; 0: a first turn
  bool prefix_known = false;  // counted, not estimated from bytes
};
// `learned_prefix`: the workers' own count of this set; 0: none yet.
RequestTokens request_tokens(const PrefixKey& key, const TokenRatio& ratio, int64_t learned_prefix);

}  // namespace troupe::route

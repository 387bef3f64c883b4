#include "gateway/route/key/token_estimate.h"

#include <algorithm>

namespace troupe::route {

void TokenRatio::learn(size_t prompt_bytes, int64_t prompt_tokens) {
  if (prompt_bytes == 0 || prompt_tokens <= 0) return;
  bytes_ = bytes_ * kDecay + static_cast<double>(prompt_bytes);
  tokens_ = tokens_ * kDecay + static_cast<double>(prompt_tokens);
}

RequestTokens request_tokens(const PrefixKey& key, const TokenRatio& ratio, int64_t learned_prefix) {
  RequestTokens tokens;
  tokens.prompt =
      std::max<int64_t>(key.prompt_tokens > 0 ? key.prompt_tokens : ratio.tokens(key.prompt_bytes), 1);
  tokens.history = key.history_tokens > 0 ? key.history_tokens : ratio.tokens(key.history_bytes);
  if (!key.set.is_zero()) {
    tokens.prefix_known = key.prefix_tokens > 0 || learned_prefix > 0;
    tokens.prefix = key.prefix_tokens > 0 ? key.prefix_tokens
                    : learned_prefix > 0  ? learned_prefix
                                          : ratio.tokens(key.prefix_bytes);
  }
  tokens.prefix = std::min(tokens.prefix, tokens.prompt);
  tokens.history = std::min(tokens.history, tokens.prompt);
  return tokens;
}

}  // namespace troupe::route

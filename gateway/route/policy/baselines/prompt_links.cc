// The prompt as a radix tree sees it.

#include <algorithm>

#include "gateway/route/policy/baselines/baselines.h"

namespace troupe::route {

PromptLinks prompt_links(const PrefixKey& key, const RequestTokens& tokens) {
  PromptLinks links;
  if (key.anchors.empty()) {
    if (!key.set.is_zero()) links.push_back(PromptLink{key.set, tokens.prefix});
    if (!key.session.is_zero()) links.push_back(PromptLink{key.session, tokens.prompt});
    return links;
  }
  const double tokens_per_byte =
      key.prompt_bytes > 0 ? static_cast<double>(tokens.prompt) / static_cast<double>(key.prompt_bytes) : 0;
  links.reserve(key.anchors.size());
  for (const Anchor& anchor : key.anchors) {
    const int64_t length = anchor.tokens > 0
                               ? anchor.tokens
                               : static_cast<int64_t>(static_cast<double>(anchor.bytes) * tokens_per_byte);
    links.push_back(PromptLink{anchor.hash, std::min(length, tokens.prompt)});
  }
  return links;
}

}  // namespace troupe::route

#include "gateway/route/key/prompt_history.h"

#include <algorithm>

namespace troupe::route {

// A link counts within its conversation; those of prompts without one count for all.
Hash128 PromptHistory::name_of(const PrefixKey& key, size_t anchor) {
  const Hash128& hash = key.anchors[anchor].hash;
  return {hash.hi ^ key.session.hi, hash.lo ^ key.session.lo};
}

size_t PromptHistory::bytes_max() const {
  constexpr size_t kListed = sizeof(Hash128) + 2 * sizeof(uint32_t);     // per slot
  constexpr size_t kIndexed = 2 * (sizeof(Hash128) + sizeof(uint64_t));  // at half load
  return links_.capacity() * (sizeof(Link) + kListed + kIndexed) +
         conversations_.capacity() * (sizeof(Conversation) + kListed + kIndexed);
}

// Every prompt that has a link has all links before it, so bisection finds the deepest.
size_t PromptHistory::known_links(const PrefixKey& key) const {
  size_t known = 0, open = key.anchors.size();
  while (known < open) {
    const size_t middle = known + (open - known + 1) / 2;
    if (links_.find(name_of(key, middle - 1)) != nullptr) {
      known = middle;
    } else {
      open = middle - 1;
    }
  }
  return known;
}

// With the answer where the prompt goes on behind it: it is longer by half of the answer at least, by the
// bytes that the earlier prompt had for a token.
int64_t PromptHistory::reached(const PrefixKey& key, const Link& link) {
  if (link.total == 0 || key.prompt_bytes < link.end_bytes) return link.tokens;
  const auto answer_tokens = static_cast<double>(link.total - link.tokens);
  const double bytes_per_token = static_cast<double>(link.end_bytes) / std::max<uint32_t>(link.tokens, 1);
  const double longer = static_cast<double>(key.prompt_bytes - link.end_bytes);
  return longer >= 0.5 * bytes_per_token * answer_tokens ? link.total : link.tokens;
}

void PromptHistory::learn(const PrefixKey& key, const RequestTokens& tokens, int64_t completion_tokens) {
  if (key.anchors.empty() || tokens.prompt <= 0) return;
  const size_t known = known_links(key);
  const size_t last = key.anchors.size() - 1;
  uint32_t turn = 1;
  if (!key.session.is_zero()) {
    Conversation& conversation = conversations_.touch(key.session);
    turn = ++conversation.turn;
    conversation.end = name_of(key, last);
  }
  // Lengths between two counted places are in proportion to bytes.
  int64_t bytes = 0, counted = 0;
  if (known > 0) {
    bytes = static_cast<int64_t>(key.anchors[known - 1].bytes);
    counted = links_.find(name_of(key, known - 1))->tokens;
  }
  const auto prefix_bytes = static_cast<int64_t>(key.prefix_bytes);
  if (tokens.prefix_known && prefix_bytes > bytes) {
    bytes = prefix_bytes;
    counted = tokens.prefix;
  }
  counted = std::min(counted, tokens.prompt);
  const auto all_bytes = std::max<int64_t>(static_cast<int64_t>(key.prompt_bytes), bytes);
  const double share = all_bytes > bytes ? static_cast<double>(tokens.prompt - counted) /
                                               static_cast<double>(all_bytes - bytes)
                                         : 0;
  const double before = bytes > 0 ? static_cast<double>(counted) / static_cast<double>(bytes) : 0;
  // The deepest first: of a chain the end is forgotten first.
  for (size_t i = last + 1; i-- > 0;) {
    Link& link = links_.touch(name_of(key, i));
    link.turn = turn;
    if (i >= known) {
      const auto at = static_cast<int64_t>(key.anchors[i].bytes);
      const double more =
          at > bytes ? share * static_cast<double>(at - bytes) : before * static_cast<double>(at - bytes);
      link.tokens = static_cast<uint32_t>(std::max(static_cast<double>(counted) + more, 0.0));
    }
    if (i != last) continue;
    if (key.chat) link.tokens = static_cast<uint32_t>(tokens.prompt);
    link.total = static_cast<uint32_t>(tokens.prompt + completion_tokens);
    link.end_bytes = static_cast<uint32_t>(std::min<size_t>(key.prompt_bytes, UINT32_MAX));
  }
}

std::optional<PromptHistory::Common> PromptHistory::common(const PrefixKey& key) const {
  if (key.session.is_zero() || key.anchors.empty()) return std::nullopt;
  const Conversation* conversation = conversations_.find(key.session);
  if (conversation == nullptr || links_.find(conversation->end) == nullptr) return std::nullopt;
  const size_t known = known_links(key);
  if (known == 0) return Common{};
  const Hash128 name = name_of(key, known - 1);
  const Link& link = *links_.find(name);
  const int64_t tokens = reached(key, link);
  if (name == conversation->end && tokens == link.total) return std::nullopt;
  return Common{tokens, link.turn == conversation->turn};
}

int64_t PromptHistory::tokens_at(const PrefixKey& key, size_t anchor) const {
  const Link* link = links_.find(name_of(key, anchor));
  return link == nullptr ? 0 : reached(key, *link);
}

}  // namespace troupe::route

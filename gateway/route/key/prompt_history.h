#pragma once

// Remembers what earlier prompts of a conversation were made of, by their anchors, so that the cached tokens
// expected of its next one end where the two part: a turn edited long ago, or lore put in the middle, leaves
// only the text before it cached, whatever the conversation holds. A node's word names the conversation, not
// its text.
//
// Lengths are the workers' counts at the ends of prompts, and in proportion to bytes between them. Bounded:
// the least recently used are forgotten, of a conversation its end first.

#include <cstdint>
#include <optional>

#include "common/core/lru_map.h"
#include "gateway/route/key/prefix_key.h"
#include "gateway/route/key/token_estimate.h"

namespace troupe::route {

// Not thread-safe.
class PromptHistory {
 public:
  explicit PromptHistory(size_t links_max) : conversations_(links_max / kLinksUsual), links_(links_max) {}

  // The prompt was answered. `tokens`: its lengths, those of its prefix and prompt as counted.
  void learn(const PrefixKey& key, const RequestTokens& tokens, int64_t completion_tokens);

  // The part of the prompt that the conversation has had before.
  struct Common {
    int64_t tokens = 0;
    bool in_last_prompt = false;  // of the prompt before this one; else of an earlier branch
  };
  // None: the whole of the last prompt, or nothing is remembered of the conversation. Then a node holds what
  // it says.
  std::optional<Common> common(const PrefixKey& key) const;
  // For a prompt of no conversation: tokens up to and including an anchor, with the answer where an earlier
  // prompt ended there and this one goes on behind it. 0: not known.
  int64_t tokens_at(const PrefixKey& key, size_t anchor) const;

  size_t links() const { return links_.size(); }
  size_t bytes_max() const;

 private:
  static constexpr size_t kLinksUsual = 8;
  struct Link {
    uint32_t tokens = 0;     // up to and including it
    uint32_t total = 0;      // of a prompt that ended there, with its answer; 0: none did
    uint32_t end_bytes = 0;  // of that prompt
    uint32_t turn = 0;       // of the last prompt that had it
  };
  struct Conversation {
    uint32_t turn = 0;
    Hash128 end;  // last link of the last prompt
  };
  static Hash128 name_of(const PrefixKey& key, size_t anchor);
  size_t known_links(const PrefixKey& key) const;
  static int64_t reached(const PrefixKey& key, const Link& link);

  LruMap<Conversation> conversations_;
  LruMap<Link> links_;
};

}  // namespace troupe::route

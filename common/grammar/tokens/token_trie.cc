#include "common/grammar/tokens/token_trie.h"

#include <algorithm>

#include "common/core/check.h"
#include "common/grammar/regex/byte_kinds.h"

namespace troupe::grammar {

TokenTrie::TokenTrie(std::vector<Entry> entries) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.text != b.text ? a.text < b.text : a.token < b.token;
  });
  std::vector<uint32_t> path = {0};  // nodes from the root to the last one
  nodes_.push_back({0, 0, 0, 0, 0});
  const auto close = [&](size_t depth) {
    for (; path.size() > depth + 1; path.pop_back()) {
      Node& node = nodes_[path.back()];
      node.end = static_cast<uint32_t>(nodes_.size());
      nodes_[path[path.size() - 2]].kinds |= static_cast<uint8_t>(node.kinds | kByteKinds[node.byte]);
    }
  };
  std::string_view last;
  for (const Entry& entry : entries) {
    TROUPE_CHECK(entry.text.size() <= kTextMax, "a token's text is too long");
    size_t common = 0;
    while (common < last.size() && common < entry.text.size() && last[common] == entry.text[common]) ++common;
    close(common);
    for (size_t i = common; i < entry.text.size(); ++i) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({0, static_cast<uint32_t>(tokens_.size()), static_cast<uint16_t>(i + 1),
                        static_cast<uint8_t>(entry.text[i]), 0});
    }
    depth_max_ = std::max(depth_max_, static_cast<uint32_t>(entry.text.size()));
    tokens_.push_back(entry.token);
    last = entry.text;
  }
  close(0);
  nodes_[0].end = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({0, static_cast<uint32_t>(tokens_.size()), 0, 0, 0});
}

}  // namespace troupe::grammar

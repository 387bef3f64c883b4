#include "worker/text/tokenizer/stop_matcher.h"

#include <string_view>

namespace troupe {

// Level by level, so that a node's fallback, which is shorter, is complete before it.
StopMatcher::StopMatcher(const std::vector<std::string>& strings) : nodes_(1) {
  struct Growing {
    std::string_view string;
    uint32_t end = 0;  // the node of what is inserted of it
  };
  std::vector<Growing> growing;
  for (const std::string& string : strings) growing.push_back({string});
  for (size_t depth = 0; !growing.empty(); ++depth) {
    std::erase_if(growing, [depth](const Growing& one) { return one.string.size() == depth; });
    for (Growing& one : growing) {
      one.end = insert(one.end, one.string[depth]);
      if (one.string.size() == depth + 1) nodes_[one.end].match = depth + 1;
    }
  }
}

uint32_t StopMatcher::insert(uint32_t node, char byte) {
  const auto [child, is_new] = children_.try_emplace(edge(node, byte), static_cast<uint32_t>(nodes_.size()));
  if (is_new) {
    Node made;
    made.depth = nodes_[node].depth + 1;
    if (node != 0) made.fallback = next(nodes_[node].fallback, byte);
    made.match = nodes_[made.fallback].match;
    nodes_.push_back(made);
  }
  return child->second;
}

// The longest node that is a suffix of `node`'s bytes and this one.
uint32_t StopMatcher::next(uint32_t node, char byte) const {
  for (;; node = nodes_[node].fallback) {
    if (const auto child = children_.find(edge(node, byte)); child != children_.end()) return child->second;
    if (node == 0) return 0;
  }
}

size_t StopMatcher::push(char byte) {
  at_ = next(at_, byte);
  return nodes_[at_].match;
}

}  // namespace troupe

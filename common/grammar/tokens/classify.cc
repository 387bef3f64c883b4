#include "common/grammar/tokens/classify.h"

#include <string>

namespace troupe::grammar {

CrossingNodes walk(const TokenTrie& trie, Automaton& automaton, StateId state, TokenSet& within) {
  static constexpr uint32_t kLookMin = 8;  // nodes that are worth a look at what keeps the state
  struct Place {
    StateId state;
    uint32_t end_depth;  // where the terminal can end on the way here: 0 nowhere, kSeveral
  };
  CrossingNodes crossing;
  std::vector<Place> path(trie.depth_max() + 1);
  path[0] = {state, 0};
  const auto nodes = trie.nodes();
  for (uint32_t i = 1; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const Place& parent = path[node.depth - 1];
    const StateId next = automaton.next(parent.state, node.byte);
    if (next == Automaton::kDead) {
      if (parent.end_depth != 0) crossing.subtrees.push_back({i, parent.end_depth});
      i = node.end;
      continue;
    }
    Place& place = path[node.depth];
    place = {next, parent.end_depth};
    if (automaton.accepting(next))
      place.end_depth = parent.end_depth == 0 ? node.depth : CrossingNodes::kSeveral;
    // Where the state is kept by all that follows, that is within.
    const bool is_kept =
        node.end - i > kLookMin && (node.kinds & ~static_cast<uint32_t>(automaton.loops(next))) == 0;
    within.add(is_kept ? trie.tokens_of(i, node.end) : trie.own_tokens(i));
    i = is_kept ? node.end : i + 1;
  }
  return crossing;
}

std::shared_ptr<const Crossing> make_crossing(const TokenTrie& trie, const CrossingNodes& crossing) {
  static constexpr size_t kCrossingMax = 16'000;
  const auto nodes = trie.nodes();
  size_t count = 0;
  for (const auto& [node, end_depth] : crossing.subtrees)
    count += trie.tokens_of(node, nodes[node].end).size();
  if (count > kCrossingMax) return std::make_shared<const Crossing>(Crossing{{}, {}, true});
  struct Text {
    size_t first, size;
    int32_t token;
  };
  std::string texts;  // of all the tokens; entries refer to it once it is complete
  std::vector<Text> rests, wholes;
  std::string path(trie.depth_max(), '\0');
  size_t next = 0;
  for (uint32_t i = 1; i < nodes.size() && next < crossing.subtrees.size();) {
    const auto [subtree, end_depth] = crossing.subtrees[next];
    path[nodes[i].depth - 1] = static_cast<char>(nodes[i].byte);
    if (i < subtree) {  // on the way to it, or past it
      i = nodes[i].end <= subtree ? nodes[i].end : i + 1;
      continue;
    }
    const size_t cut = end_depth == CrossingNodes::kSeveral ? 0 : end_depth;
    for (const int32_t token : trie.own_tokens(i)) {
      (cut == 0 ? wholes : rests).push_back({texts.size() + cut, nodes[i].depth - cut, token});
      texts.append(path, 0, nodes[i].depth);
    }
    if (++i >= nodes[subtree].end) ++next;
  }
  const auto trie_of = [&](const std::vector<Text>& parts) {
    std::vector<TokenTrie::Entry> entries;
    for (const Text& text : parts)
      entries.push_back({std::string_view(texts).substr(text.first, text.size), text.token});
    return TokenTrie(std::move(entries));
  };
  return std::make_shared<const Crossing>(Crossing{trie_of(rests), trie_of(wholes), false});
}

}  // namespace troupe::grammar

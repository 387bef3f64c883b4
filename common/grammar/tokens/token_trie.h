#pragma once

// Texts of tokens as a trie in one array, depth first: a node's children follow it, and where a byte cannot
// come next the walk goes on at `end`, past all that begins so. Several tokens may have one text. Immutable.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace troupe::grammar {

class TokenTrie {
 public:
  struct Entry {
    std::string_view text;  // at most kTextMax bytes
    int32_t token;
  };
  struct Node {
    uint32_t end;    // index behind the node's last descendant
    uint32_t first;  // in tokens(): the node's own tokens, then its descendants'
    uint16_t depth;  // bytes from the root
    uint8_t byte;
    uint8_t kinds;  // of the bytes of its descendants (byte_kinds.h)
  };
  static constexpr size_t kTextMax = 4096;

  TokenTrie() : TokenTrie(std::vector<Entry>{}) {}
  explicit TokenTrie(std::vector<Entry> entries);

  // nodes()[0] is the root, whose text is empty.
  std::span<const Node> nodes() const { return {nodes_.data(), nodes_.size() - 1}; }
  uint32_t depth_max() const { return depth_max_; }
  bool empty() const { return tokens_.empty(); }
  size_t memory_bytes() const { return nodes_.size() * sizeof(Node) + tokens_.size() * sizeof(int32_t); }
  std::span<const int32_t> own_tokens(uint32_t node) const {
    return tokens(nodes_[node].first, nodes_[node + 1].first);
  }
  // Tokens of the nodes first … last - 1.
  std::span<const int32_t> tokens_of(uint32_t first, uint32_t last) const {
    return tokens(nodes_[first].first, nodes_[last].first);
  }

 private:
  std::span<const int32_t> tokens(uint32_t first, uint32_t last) const {
    return {tokens_.data() + first, last - first};
  }

  uint32_t depth_max_ = 0;
  std::vector<Node> nodes_;  // and one behind the last, for its `first`
  std::vector<int32_t> tokens_;
};

}  // namespace troupe::grammar

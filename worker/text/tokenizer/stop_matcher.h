#pragma once

// Finds the first of several strings that is completed in a text that comes byte by byte: the automaton of
// Aho and Corasick ("Efficient string matching", CACM 18(6), 1975). Linear in the strings' bytes to build,
// and in the text's to run, whatever both are. Not thread-safe; one a stream.

#include <absl/container/flat_hash_map.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

class StopMatcher {
 public:
  // Empty strings never match.
  explicit StopMatcher(const std::vector<std::string>& strings);

  // Takes the next byte. Returns the size of the string that ends with it, the longest of several; 0: none
  // does.
  size_t push(char byte);
  // Number of bytes at the end of the text so far that may begin a string, fewer than the longest has.
  size_t undecided() const { return nodes_[at_].depth; }
  // All that the matcher knows of the text so far: go_to() takes it back to where this was its state(), or,
  // by 0, to the beginning of a text.
  uint32_t state() const { return at_; }
  void go_to(uint32_t state) { at_ = state; }

 private:
  // A prefix of a string. Node 0 is the empty one.
  struct Node {
    size_t depth = 0;       // its bytes
    size_t match = 0;       // the longest string that it ends with; 0: none
    uint32_t fallback = 0;  // its longest proper suffix that is a node, too
  };
  static uint64_t edge(uint32_t node, char byte) {
    return uint64_t{node} << 8 | static_cast<unsigned char>(byte);
  }
  uint32_t insert(uint32_t node, char byte);
  uint32_t next(uint32_t node, char byte) const;

  std::vector<Node> nodes_;
  absl::flat_hash_map<uint64_t, uint32_t> children_;  // by edge()
  uint32_t at_ = 0;
};

}  // namespace troupe

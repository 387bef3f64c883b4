#pragma once

// The automaton of Aho and Corasick (Efficient string matching, Communications of the ACM 18, 1975): finds
// all strings of a set that end at each place of a text, in time linear in the text, however much they are
// alike. Immutable once built.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

class TokenAutomaton {
 public:
  // Empty strings match nowhere. Of equal ones the first counts.
  explicit TokenAutomaton(const std::vector<std::string>& strings);

  using State = uint32_t;
  static constexpr State kStart = 0;
  // The state after one byte more of the text.
  State next(State state, char c) const;
  // The state of the longest string that ends here; kStart: none does.
  State longest(State state) const { return nodes_[state].ends_with; }
  // The next shorter one. REQUIRES: `found` is what longest() or shorter() has returned, and not kStart.
  State shorter(State found) const { return nodes_[nodes_[found].suffix].ends_with; }
  // The string's place in the constructor's list. REQUIRES: as shorter().
  size_t string_of(State found) const { return nodes_[found].string; }
  // Whether the text ends with the beginning of a string that would go on.
  bool begins_one(State state) const;

 private:
  static constexpr size_t kNone = SIZE_MAX;
  struct Node {
    std::vector<std::pair<char, State>> children;
    State suffix = kStart;     // the longest other node that this one ends with
    State ends_with = kStart;  // of this node and its suffixes the longest that is a string
    size_t string = kNone;
  };
  State child(State state, char c) const;  // kStart: none
  void link();

  std::vector<Node> nodes_;
};

}  // namespace troupe

#pragma once

// How the tokens of a trie stand to a state of a terminal's automaton, whatever the grammar around it:
// within (all their bytes go on in the terminal), across (the terminal can end before the token does; the
// rest is the parser's to judge), or neither.

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/grammar/regex/automaton.h"
#include "common/grammar/tokens/token_set.h"
#include "common/grammar/tokens/token_trie.h"

namespace troupe::grammar {

// Immutable once made; shared by states whose tokens cross alike.
struct Crossing {
  TokenTrie rests;      // behind the one place where the terminal can end in the token
  TokenTrie wholes;     // whole texts of the tokens in which it can end at several places
  bool is_any = false;  // so many that all of the vocabulary is to be tried
  size_t memory_bytes() const { return rests.memory_bytes() + wholes.memory_bytes(); }
};

struct StateTokens {
  TokenSet within;
  std::shared_ptr<const Crossing> across;
};

// Subtrees of a trie whose tokens cross.
struct CrossingNodes {
  static constexpr uint32_t kSeveral = UINT32_MAX;
  struct Subtree {
    uint32_t node;
    uint32_t end_depth;  // bytes of the terminal, or kSeveral
    bool operator==(const Subtree&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Subtree& s) {
      return H::combine(std::move(h), s.node, s.end_depth);
    }
  };
  std::vector<Subtree> subtrees;
};

// A slice's index, or the number of slices for the whole vocabulary; subtrees of its trie.
using CrossingKey = std::pair<size_t, std::vector<CrossingNodes::Subtree>>;

// Adds the trie's tokens to `within` and returns the crossing ones.
CrossingNodes walk(const TokenTrie& trie, Automaton& automaton, StateId state, TokenSet& within);
std::shared_ptr<const Crossing> make_crossing(const TokenTrie& trie, const CrossingNodes& nodes);

}  // namespace troupe::grammar

#pragma once

// The tokens of a vocabulary whose texts are about as long, as a trie, and what is known beforehand about the
// expressions that most grammars are made of. To short texts a string of at most 60 characters is as good as
// one of any length (RegexSet::clamped), so what is known of that one serves; only the few long texts need a
// look at what is left of its length. Immutable.

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/grammar/regex/automaton.h"
#include "common/grammar/tokens/classify.h"

namespace troupe::grammar {

// Tokens of a kind, most of the band, which states that allow all texts of that kind need not look at one by
// one: texts inside a JSON string that need no escape, of any length or at most so many characters.
struct Slice {
  std::vector<std::array<uint16_t, 256>>
      steps{};  // automaton of the kind's texts: (state, byte); 0 is dead, 1 first
  TokenSet tokens;
  TokenTrie others{};
};

class Band {
 public:
  // The entries' texts need not live on. `vocabulary_size`: of the sets of tokens.
  Band(std::vector<TokenTrie::Entry> entries, size_t vocabulary_size);

  // No text is longer.
  uint32_t text_max() const { return trie_.depth_max(); }
  const TokenTrie& trie() const { return trie_; }
  const std::vector<Slice>& slices() const { return slices_; }
  // Tokens of an expression of JsonLexemes or a derivative (id < base_size); null if it was not worth
  // keeping.
  std::shared_ptr<const StateTokens> known(RegexId expression) const {
    return expression < known_.size() ? known_[expression] : nullptr;
  }
  // A crossing that many states have; null if it is none of those.
  std::shared_ptr<const Crossing> known_crossing(const CrossingKey& key) const;
  size_t memory_bytes() const;

 private:
  void add_slice(std::span<const TokenTrie::Entry> entries, RegexId text, const RegexSet& expressions);
  void classify_lexemes();
  std::shared_ptr<const Crossing> add_crossing(const TokenTrie& trie, size_t slice, CrossingNodes nodes);

  size_t vocabulary_size_;
  TokenTrie trie_;
  std::vector<Slice> slices_;
  std::vector<std::shared_ptr<const StateTokens>> known_;
  absl::flat_hash_map<CrossingKey, std::shared_ptr<const Crossing>> crossings_;
};

}  // namespace troupe::grammar

#pragma once

// A tokenizer's vocabulary as constrained decoding needs it: the trie of the tokens' bytes, and what is known
// beforehand about the expressions that most grammars are made of. Built once a tokenizer; immutable and
// shared by all threads and grammars.

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/core/status.h"
#include "common/grammar/regex/automaton.h"
#include "common/grammar/tokens/classify.h"

namespace troupe::grammar {

// Tokens of a kind, most of the vocabulary, which states that allow all texts of that kind need not look at
// one by one: texts inside a JSON string that need no escape, of any length or at most so many characters.
struct Slice {
  std::vector<std::array<uint16_t, 256>>
      steps{};  // automaton of the kind's texts: (state, byte); 0 is dead, 1 first
  TokenSet tokens;
  TokenTrie others{};
};

// Special tokens are no text of an answer, but a grammar may ask for one by name: theirs is this byte, which
// UTF-8 has nowhere, and the name.
inline constexpr char kMarkByte = '\xFF';
inline std::string mark_text(std::string_view name) {
  return kMarkByte + std::string(name);
}
inline bool is_mark_or_empty(std::string_view text) {
  return text.empty() || text.front() == kMarkByte;
}

class Vocabulary {
 public:
  // `texts`: bytes of each token, by id; mark_text() of special ones; empty for those that are no text
  // (unused ids), which no grammar allows. `end_tokens`: ids that end an answer, allowed where it is
  // complete. Errors (kInvalidArgument): a text or an id out of bounds.
  static StatusOr<std::shared_ptr<const Vocabulary>> make(std::vector<std::string> texts,
                                                          std::vector<int32_t> end_tokens);

  size_t size() const { return texts_.size(); }
  // Words of a mask: a bit for every token, the first in the lowest bit of the first word.
  size_t mask_words() const { return (texts_.size() + 31) / 32; }
  std::string_view text(int32_t token) const { return texts_[static_cast<size_t>(token)]; }
  const std::vector<int32_t>& end_tokens() const { return end_tokens_; }
  bool is_end(int32_t token) const;
  const TokenTrie& trie() const { return trie_; }
  const std::vector<Slice>& slices() const { return slices_; }
  // Tokens of an expression of JsonLexemes or a derivative (id < base_size); null if it was not worth
  // keeping.
  std::shared_ptr<const StateTokens> known(RegexId expression) const;
  // A crossing that many states have; null if it is none of those.
  std::shared_ptr<const Crossing> known_crossing(const CrossingKey& key) const;
  size_t memory_bytes() const;

 private:
  Vocabulary() = default;
  void add_slice(RegexId text, const RegexSet& expressions);
  void classify_lexemes();
  std::shared_ptr<const Crossing> add_crossing(const TokenTrie& trie, size_t slice, CrossingNodes nodes);

  std::vector<std::string> texts_;
  std::vector<int32_t> end_tokens_;
  TokenTrie trie_;
  std::vector<Slice> slices_;
  std::vector<std::shared_ptr<const StateTokens>> known_;
  absl::flat_hash_map<CrossingKey, std::shared_ptr<const Crossing>> crossings_;
};

}  // namespace troupe::grammar

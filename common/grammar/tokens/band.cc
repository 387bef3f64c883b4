#include "common/grammar/tokens/band.h"

#include <utility>

#include "common/grammar/regex/encode.h"
#include "common/grammar/regex/json_lexemes.h"

namespace troupe::grammar {

// A walk over fewer tokens costs less than to find out whether a state allows a slice.
static constexpr size_t kSlicedMin = 4096;

Band::Band(std::vector<TokenTrie::Entry> entries, size_t vocabulary_size)
    : vocabulary_size_(vocabulary_size), trie_(entries) {
  RegexSet expressions;
  CharSet chars = CharSet::range(0x20, CharSet::kLast);
  for (const uint32_t special : {0x22u, 0x5Cu, 0x7Fu}) chars = chars.minus(CharSet::of(special));
  const RegexId one = encode(expressions, chars, Encoding::kUtf8);
  if (entries.size() >= kSlicedMin)
    for (const uint32_t length : {RegexSet::kUnbounded, 10u})
      add_slice(entries, expressions.repeat(one, 0, length), expressions);
  classify_lexemes();
}

void Band::add_slice(std::span<const TokenTrie::Entry> entries, RegexId text, const RegexSet& expressions) {
  Slice slice{.tokens = TokenSet(vocabulary_size_)};
  Automaton automaton(expressions, {});
  const StateId start = automaton.start(text);
  // Tokens within it, and all others.
  std::vector<TokenTrie::Entry> others;
  for (const TokenTrie::Entry& entry : entries) {
    StateId state = start;
    for (const char c : entry.text) state = automaton.next(state, static_cast<uint8_t>(c));
    if (state == Automaton::kDead) {
      others.push_back(entry);
    } else {
      slice.tokens.add(entry.token);
    }
  }
  slice.others = TokenTrie(std::move(others));
  for (StateId state = 0; state < automaton.state_count(); ++state)
    for (uint32_t b = 0; b < 256; ++b) automaton.next(state, static_cast<uint8_t>(b));
  slice.steps.resize(automaton.state_count());
  for (StateId state = 0; state < automaton.state_count(); ++state)
    for (uint32_t b = 0; b < 256; ++b)
      slice.steps[state][b] = static_cast<uint16_t>(automaton.next(state, static_cast<uint8_t>(b)));
  slices_.push_back(std::move(slice));
}

void Band::classify_lexemes() {
  const JsonLexemes& lexemes = json_lexemes();
  Automaton automaton(lexemes.expressions, {});
  known_.resize(lexemes.base_size);
  std::vector<RegexId> queue = {lexemes.string, lexemes.name,    lexemes.integer, lexemes.number,
                                lexemes.space,  lexemes.boolean, lexemes.null};
  for (const RegexId root : queue) automaton.start(root);
  // States are found by walking: every walk adds those it comes to.
  for (StateId state = 1; state < automaton.state_count(); ++state) {
    auto tokens = std::make_shared<StateTokens>(StateTokens{TokenSet(vocabulary_size_), nullptr});
    tokens->across = add_crossing(trie_, slices_.size(), walk(trie_, automaton, state, tokens->within));
    known_[automaton.expression(state)] = std::move(tokens);
  }
  // Strings with bounds or patterns have states of their own, and most often the crossing tokens of free
  // ones.
  for (const RegexId text : {lexemes.string, lexemes.name}) {
    const StateId inside = automaton.next(automaton.start(text), '"');
    for (size_t s = 0; s < slices_.size(); ++s) {
      TokenSet within(vocabulary_size_);
      add_crossing(slices_[s].others, s, walk(slices_[s].others, automaton, inside, within));
    }
  }
}

std::shared_ptr<const Crossing> Band::add_crossing(const TokenTrie& trie, size_t slice, CrossingNodes nodes) {
  std::shared_ptr<const Crossing>& crossing = crossings_[CrossingKey(slice, nodes.subtrees)];
  if (crossing == nullptr) crossing = make_crossing(trie, nodes);
  return crossing;
}

std::shared_ptr<const Crossing> Band::known_crossing(const CrossingKey& key) const {
  const auto found = crossings_.find(key);
  return found != crossings_.end() ? found->second : nullptr;
}

size_t Band::memory_bytes() const {
  size_t bytes = trie_.memory_bytes();
  for (const Slice& slice : slices_) bytes += slice.tokens.memory_bytes() + slice.others.memory_bytes();
  for (const auto& tokens : known_)
    if (tokens != nullptr) bytes += tokens->within.memory_bytes();
  for (const auto& [key, crossing] : crossings_) bytes += key.second.size() * 8 + crossing->memory_bytes();
  return bytes;
}

}  // namespace troupe::grammar

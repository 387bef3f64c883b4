#include "common/grammar/tokens/vocabulary.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/grammar/regex/encode.h"
#include "common/grammar/regex/json_lexemes.h"

namespace troupe::grammar {

static constexpr size_t kTokensMax = 4u << 20;

StatusOr<std::shared_ptr<const Vocabulary>> Vocabulary::make(std::vector<std::string> texts,
                                                             std::vector<int32_t> end_tokens) {
  if (texts.size() > kTokensMax) return invalid_argument("the vocabulary is too large");
  const std::shared_ptr<Vocabulary> vocabulary(new Vocabulary);
  vocabulary->texts_ = std::move(texts);
  vocabulary->end_tokens_ = std::move(end_tokens);
  std::vector<TokenTrie::Entry> entries;
  for (size_t id = 0; id < vocabulary->texts_.size(); ++id) {
    const std::string& text = vocabulary->texts_[id];
    if (text.size() > TokenTrie::kTextMax)
      return invalid_argument(absl::StrCat("token ", id, " is too long"));
    const auto token = static_cast<int32_t>(id);
    if (!text.empty() && !vocabulary->is_end(token)) entries.push_back({text, token});
  }
  for (const int32_t token : vocabulary->end_tokens_)
    if (token < 0 || static_cast<size_t>(token) >= vocabulary->size())
      return invalid_argument(absl::StrCat("end token ", token, " is not in the vocabulary"));
  vocabulary->trie_ = TokenTrie(std::move(entries));
  RegexSet expressions;
  CharSet chars = CharSet::range(0x20, CharSet::kLast);
  for (const uint32_t special : {0x22u, 0x5Cu, 0x7Fu}) chars = chars.minus(CharSet::of(special));
  const RegexId one = encode(expressions, chars, Encoding::kUtf8);
  for (const uint32_t length : {RegexSet::kUnbounded, 30u, 10u})
    vocabulary->add_slice(expressions.repeat(one, 0, length), expressions);
  vocabulary->classify_lexemes();
  return vocabulary;
}

bool Vocabulary::is_end(int32_t token) const {
  return std::find(end_tokens_.begin(), end_tokens_.end(), token) != end_tokens_.end();
}

std::shared_ptr<const StateTokens> Vocabulary::known(RegexId expression) const {
  return expression < known_.size() ? known_[expression] : nullptr;
}

void Vocabulary::add_slice(RegexId text, const RegexSet& expressions) {
  Slice slice{.tokens = TokenSet(size())};
  Automaton automaton(expressions, {});
  const StateId start = automaton.start(text);
  // Tokens within it, and all others.
  std::vector<StateId> path(trie_.depth_max() + 1, start);
  std::vector<TokenTrie::Entry> others;
  const auto nodes = trie_.nodes();
  for (uint32_t i = 1; i < nodes.size();) {
    const StateId next = automaton.next(path[nodes[i].depth - 1], nodes[i].byte);
    path[nodes[i].depth] = next;
    const bool is_dead = next == Automaton::kDead;
    const auto tokens = is_dead ? trie_.tokens_of(i, nodes[i].end) : trie_.own_tokens(i);
    for (const int32_t token : tokens) {
      if (is_dead) {
        others.push_back({this->text(token), token});
      } else {
        slice.tokens.add(token);
      }
    }
    i = is_dead ? nodes[i].end : i + 1;
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

void Vocabulary::classify_lexemes() {
  const JsonLexemes& lexemes = json_lexemes();
  Automaton automaton(lexemes.expressions, {});
  known_.resize(lexemes.base_size);
  std::vector<RegexId> queue = {lexemes.string, lexemes.name,    lexemes.integer, lexemes.number,
                                lexemes.space,  lexemes.boolean, lexemes.null};
  for (const RegexId root : queue) automaton.start(root);
  // States are found by walking: every walk adds those it comes to.
  for (StateId state = 1; state < automaton.state_count(); ++state) {
    auto tokens = std::make_shared<StateTokens>(StateTokens{TokenSet(size()), nullptr});
    tokens->across = add_crossing(trie_, slices_.size(), walk(trie_, automaton, state, tokens->within));
    known_[automaton.expression(state)] = std::move(tokens);
  }
  // Strings with bounds or patterns have states of their own, and most often the crossing tokens of free
  // ones.
  for (const RegexId text : {lexemes.string, lexemes.name}) {
    const StateId inside = automaton.next(automaton.start(text), '"');
    for (size_t s = 0; s < slices_.size(); ++s) {
      TokenSet within(size());
      add_crossing(slices_[s].others, s, walk(slices_[s].others, automaton, inside, within));
    }
  }
}

std::shared_ptr<const Crossing> Vocabulary::add_crossing(const TokenTrie& trie, size_t slice,
                                                         CrossingNodes nodes) {
  std::shared_ptr<const Crossing>& crossing = crossings_[CrossingKey(slice, nodes.subtrees)];
  if (crossing == nullptr) crossing = make_crossing(trie, nodes);
  return crossing;
}

std::shared_ptr<const Crossing> Vocabulary::known_crossing(const CrossingKey& key) const {
  const auto found = crossings_.find(key);
  return found != crossings_.end() ? found->second : nullptr;
}

size_t Vocabulary::memory_bytes() const {
  size_t bytes = trie_.memory_bytes();
  for (const Slice& slice : slices_) bytes += slice.tokens.memory_bytes() + slice.others.memory_bytes();
  for (const auto& tokens : known_)
    if (tokens != nullptr) bytes += tokens->within.memory_bytes();
  for (const auto& [key, crossing] : crossings_) bytes += key.second.size() * 8 + crossing->memory_bytes();
  return bytes;
}

}  // namespace troupe::grammar

#include "common/grammar/masks.h"

#include <algorithm>
#include <iterator>
#include <map>

namespace troupe::grammar {

// A byte of each class of both automata.
static std::vector<uint8_t> samples_of(const Slice& slice, const Automaton& automaton) {
  std::map<std::vector<uint16_t>, uint8_t> classes;
  for (uint32_t b = 0; b < 256; ++b) {
    const auto byte = static_cast<uint8_t>(b);
    std::vector<uint16_t> column = {automaton.byte_class(byte)};
    for (const auto& steps : slice.steps) column.push_back(steps[b]);
    classes.emplace(std::move(column), byte);
  }
  std::vector<uint8_t> samples;
  for (const auto& [column, byte] : classes) samples.push_back(byte);
  return samples;
}

Masks::Masks(Earley* earley, const Vocabulary* vocabulary, const Options& options)
    : earley_(earley), vocabulary_(vocabulary), options_(options) {
  for (const Band& band : vocabulary->bands()) {
    samples_.emplace_back();
    for (const Slice& slice : band.slices())
      samples_.back().push_back(samples_of(slice, earley->automaton()));
  }
}

void Masks::keep(size_t bytes) {
  memory_bytes_ += bytes + 64;
  if (memory_bytes_ <= options_.memory_bytes_max) return;
  masks_.clear();
  states_.clear();
  crossings_.clear();
  memory_bytes_ = bytes;
}

std::shared_ptr<const TokenSet> Masks::mask(ConfigId config) {
  const auto found = masks_.find(config);
  if (found != masks_.end()) return found->second;
  auto set = std::make_shared<TokenSet>(vocabulary_->size());
  for (const Thread& thread : split(config, *set)) {
    for (uint32_t band = 0; band < vocabulary_->bands().size(); ++band) {
      add_tokens(band, thread, *set);
      if (earley_->exhausted()) return set;
    }
  }
  if (options_.keeps) {
    keep(set->memory_bytes());
    masks_[config] = set;
  }
  return set;
}

// Adds the tokens of the threads that only few bytes can go on with, where they are many: names of members,
// choices. One walk for all of them ends early, and what they have in common it steps over once. Returns the
// other threads.
std::vector<Thread> Masks::split(ConfigId config, TokenSet& out) {
  static constexpr size_t kManyMin = 16, kFewBytesMax = 8;
  const auto threads = earley_->threads(config);
  std::vector<Thread> others(threads.begin(), threads.end()), narrow;
  if (others.size() < kManyMin) return others;
  const Automaton& automaton = earley_->automaton();
  const auto is_narrow = [&](const Thread& thread) {
    return automaton.first_bytes(thread.state).size() <= kFewBytesMax;
  };
  std::copy_if(others.begin(), others.end(), std::back_inserter(narrow), is_narrow);
  if (narrow.size() < kManyMin) return others;
  std::erase_if(others, is_narrow);
  const ConfigId from = earley_->alone(std::move(narrow));
  for (const Band& band : vocabulary_->bands())
    if (!earley_->exhausted()) add_allowed(band.trie(), from, out);
  return others;
}

void Masks::add_tokens(uint32_t band, const Thread& thread, TokenSet& out) {
  if (vocabulary_->bands()[band].trie().empty()) return;
  const auto tokens = tokens_of(band, thread.state);
  out.add(tokens->within);
  const Crossing& across = *tokens->across;
  if (!across.rests.empty()) add_allowed(across.rests, earley_->behind(thread), out);
  if (across.is_any) {
    add_allowed(vocabulary_->bands()[band].trie(), earley_->alone(thread), out);
  } else if (!across.wholes.empty()) {
    add_allowed(across.wholes, earley_->alone(thread), out);
  }
}

void Masks::add_allowed(const TokenTrie& texts, ConfigId from, TokenSet& out) {
  path_.assign(texts.depth_max() + 1, from);
  const auto nodes = texts.nodes();
  for (uint32_t i = 1; i < nodes.size();) {
    const ConfigId parent = path_[nodes[i].depth - 1];
    const bool may_follow = earley_->may_follow(parent, nodes[i].byte);
    const ConfigId config = may_follow ? earley_->step(parent, nodes[i].byte) : Earley::kRefused;
    if (config == Earley::kRefused) {
      i = nodes[i].end;
      continue;
    }
    path_[nodes[i].depth] = config;
    out.add(texts.own_tokens(i));
    ++i;
  }
}

std::shared_ptr<const StateTokens> Masks::tokens_of(uint32_t band, StateId exact) {
  const Band& texts = vocabulary_->bands()[band];
  if (auto known = texts.known(earley_->automaton().expression(exact)); known != nullptr) return known;
  const StateId state = earley_->automaton().clamped(exact, texts.text_max());
  if (auto known = texts.known(earley_->automaton().expression(state)); known != nullptr) return known;
  const auto found = states_.find({band, state});
  if (found != states_.end()) return found->second;
  auto tokens = std::make_shared<const StateTokens>(classify(band, state));
  if (options_.keeps && !earley_->exhausted()) {
    keep(tokens->within.memory_bytes());
    states_[{band, state}] = tokens;
  }
  return tokens;
}

StateTokens Masks::classify(uint32_t band, StateId state) {
  const Band& texts = vocabulary_->bands()[band];
  StateTokens tokens{TokenSet(vocabulary_->size()), nullptr};
  for (size_t s = 0; s < texts.slices().size(); ++s) {
    const Slice& slice = texts.slices()[s];
    if (!allows_slice(band, s, state)) continue;
    tokens.within.add(slice.tokens);
    CrossingNodes nodes = walk(slice.others, earley_->automaton(), state, tokens.within);
    tokens.across = crossing_of(band, slice.others, s, std::move(nodes));
    return tokens;
  }
  CrossingNodes nodes = walk(texts.trie(), earley_->automaton(), state, tokens.within);
  tokens.across = crossing_of(band, texts.trie(), texts.slices().size(), std::move(nodes));
  return tokens;
}

// Whether every text that the slice's automaton reads is one on the way to a match from `state`: all pairs of
// their states that a text leads to together are looked at.
bool Masks::allows_slice(uint32_t band, size_t slice, StateId state) {
  static constexpr size_t kPairsMax = 600;
  const Band& texts = vocabulary_->bands()[band];
  const auto& steps = texts.slices()[slice].steps;
  // (Most of those that do not allow it end within a row of letters.)
  uint16_t letters = 1;
  StateId behind = state;
  for (uint32_t i = 0; i < texts.text_max() && (letters = steps[letters]['a']) != 0; ++i) {
    behind = earley_->automaton().next(behind, 'a');
    if (behind == Automaton::kDead) return false;
  }
  std::vector<std::pair<uint16_t, StateId>> queue = {{uint16_t{1}, state}};
  absl::flat_hash_set<std::pair<uint16_t, StateId>> seen = {queue[0]};
  for (size_t i = 0; i < queue.size(); ++i) {
    if (queue.size() > kPairsMax) return false;
    const auto [place, at] = queue[i];
    for (const uint8_t byte : samples_[band][slice]) {
      const uint16_t next_place = steps[place][byte];
      if (next_place == 0) continue;
      const StateId next = earley_->automaton().next(at, byte);
      if (next == Automaton::kDead) return false;
      if (seen.insert({next_place, next}).second) queue.push_back({next_place, next});
    }
  }
  return true;
}

std::shared_ptr<const Crossing> Masks::crossing_of(uint32_t band, const TokenTrie& trie, size_t slice,
                                                   CrossingNodes nodes) {
  static const auto nothing = std::make_shared<const Crossing>();
  if (nodes.subtrees.empty()) return nothing;
  std::pair key(band, CrossingKey(slice, std::move(nodes.subtrees)));
  if (auto known = vocabulary_->bands()[band].known_crossing(key.second); known != nullptr) return known;
  const auto found = crossings_.find(key);
  if (found != crossings_.end()) return found->second;
  auto crossing = make_crossing(trie, {key.second.second});
  if (options_.keeps) {
    keep(crossing->memory_bytes() + key.second.second.size() * 8);
    crossings_.emplace(std::move(key), crossing);
  }
  return crossing;
}

}  // namespace troupe::grammar

#include "common/grammar/masks.h"

#include <map>

namespace troupe::grammar {

Masks::Masks(Earley* earley, const Vocabulary* vocabulary, const Options& options)
    : earley_(earley), vocabulary_(vocabulary), options_(options) {
  for (const Slice& slice : vocabulary->slices()) {
    std::map<std::vector<uint16_t>, uint8_t> samples;
    for (uint32_t b = 0; b < 256; ++b) {
      const auto byte = static_cast<uint8_t>(b);
      std::vector<uint16_t> column = {earley->automaton().byte_class(byte)};
      for (const auto& steps : slice.steps) column.push_back(steps[b]);
      samples.emplace(std::move(column), byte);
    }
    samples_.emplace_back();
    for (const auto& [column, byte] : samples) samples_.back().push_back(byte);
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
  // (Threads lie in a vector that grows.)
  const auto threads = earley_->threads(config);
  for (const Thread& thread : std::vector<Thread>(threads.begin(), threads.end())) {
    const auto tokens = tokens_of(thread.state);
    set->add(tokens->within);
    if (!tokens->across->rests.empty()) add_allowed(tokens->across->rests, earley_->behind(thread), *set);
    if (tokens->across->is_any) {
      add_allowed(vocabulary_->trie(), earley_->alone(thread), *set);
    } else if (!tokens->across->wholes.empty()) {
      add_allowed(tokens->across->wholes, earley_->alone(thread), *set);
    }
    if (earley_->exhausted()) return set;
  }
  if (options_.keeps) {
    keep(set->memory_bytes());
    masks_[config] = set;
  }
  return set;
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

std::shared_ptr<const StateTokens> Masks::tokens_of(StateId state) {
  if (auto known = vocabulary_->known(earley_->automaton().expression(state)); known != nullptr) return known;
  const auto found = states_.find(state);
  if (found != states_.end()) return found->second;
  auto tokens = std::make_shared<const StateTokens>(classify(state));
  if (options_.keeps && !earley_->exhausted()) {
    keep(tokens->within.memory_bytes());
    states_[state] = tokens;
  }
  return tokens;
}

StateTokens Masks::classify(StateId state) {
  StateTokens tokens{TokenSet(vocabulary_->size()), nullptr};
  for (size_t s = 0; s < vocabulary_->slices().size(); ++s) {
    const Slice& slice = vocabulary_->slices()[s];
    if (!allows_slice(s, state)) continue;
    tokens.within.add(slice.tokens);
    CrossingNodes nodes = walk(slice.others, earley_->automaton(), state, tokens.within);
    tokens.across = crossing_of(slice.others, s, std::move(nodes));
    return tokens;
  }
  CrossingNodes nodes = walk(vocabulary_->trie(), earley_->automaton(), state, tokens.within);
  tokens.across = crossing_of(vocabulary_->trie(), vocabulary_->slices().size(), std::move(nodes));
  return tokens;
}

// Whether every text that the slice's automaton reads is one on the way to a match from `state`: all pairs of
// their states that a text leads to together are looked at.
bool Masks::allows_slice(size_t slice, StateId state) {
  static constexpr size_t kPairsMax = 600;
  const auto& steps = vocabulary_->slices()[slice].steps;
  std::vector<std::pair<uint16_t, StateId>> queue = {{uint16_t{1}, state}};
  absl::flat_hash_set<std::pair<uint16_t, StateId>> seen = {queue[0]};
  for (size_t i = 0; i < queue.size(); ++i) {
    if (queue.size() > kPairsMax) return false;
    const auto [place, at] = queue[i];
    for (const uint8_t byte : samples_[slice]) {
      const uint16_t next_place = steps[place][byte];
      if (next_place == 0) continue;
      const StateId next = earley_->automaton().next(at, byte);
      if (next == Automaton::kDead) return false;
      if (seen.insert({next_place, next}).second) queue.push_back({next_place, next});
    }
  }
  return true;
}

std::shared_ptr<const Crossing> Masks::crossing_of(const TokenTrie& trie, size_t slice, CrossingNodes nodes) {
  static const auto nothing = std::make_shared<const Crossing>();
  if (nodes.subtrees.empty()) return nothing;
  CrossingKey key(slice, std::move(nodes.subtrees));
  if (auto known = vocabulary_->known_crossing(key); known != nullptr) return known;
  const auto found = crossings_.find(key);
  if (found != crossings_.end()) return found->second;
  auto crossing = make_crossing(trie, {key.second});
  if (options_.keeps) {
    keep(crossing->memory_bytes() + key.second.size() * 8);
    crossings_.emplace(std::move(key), crossing);
  }
  return crossing;
}

}  // namespace troupe::grammar

#include "common/grammar/regex/automaton.h"

#include "absl/container/flat_hash_set.h"

namespace troupe::grammar {

Automaton::Automaton(const RegexSet& expressions, const Limits& limits)
    : expressions_(expressions), limits_(limits) {
  expressions_.forget_derivatives();
  class_count_ = expressions_.byte_classes(classes_);
  samples_.resize(class_count_);
  for (uint32_t b = 256; b-- > 0;) samples_[classes_[b]] = static_cast<uint8_t>(b);
  states_.push_back({});
  table_.assign(class_count_, kDead);
  ids_[RegexSet::kNothing] = kDead;
}

StateId Automaton::state_of(RegexId expression) {
  const auto found = ids_.find(expression);
  if (found != ids_.end()) return found->second;
  if (!matches_something(expression)) {
    if (!exhausted()) ids_[expression] = kDead;
    return kDead;
  }
  if ((states_.size() + 1) * class_count_ * sizeof(StateId) > limits_.table_bytes_max) {
    exhausted_ = true;
    return kDead;
  }
  const auto id = static_cast<StateId>(states_.size());
  states_.push_back({.expression = expression, .accepting = expressions_.nullable(expression)});
  const ByteSet& first = expressions_.store().firsts[expression];
  for (const uint8_t sample : samples_) table_.push_back(first.has(sample) ? kUnknown : kDead);
  ids_[expression] = id;
  return id;
}

StateId Automaton::clamped(StateId state, uint32_t length) {
  const RegexId expression = states_[state].expression;
  if (expressions_.store().nodes[expression].counts_max <= length) return state;
  const std::pair key(state, length);
  if (const auto found = clamped_.find(key); found != clamped_.end()) return found->second;
  const StateId made = state_of(grammar::clamped(expressions_, expression, length));
  if (!exhausted()) clamped_.emplace(key, made);
  return made;
}

StateId Automaton::make_next(StateId state, uint8_t byte) {
  const uint8_t sample = samples_[classes_[byte]];
  const RegexId rest = expressions_.derivative(states_[state].expression, sample);
  const StateId next = state_of(rest);
  if (!exhausted()) table_[size_t{state} * class_count_ + classes_[byte]] = next;
  return next;
}

bool Automaton::continues(StateId state) {
  if (states_[state].continues == Answer::kUnknown) {
    bool found = false;
    if (states_[state].expression != RegexSet::kEmpty)
      for (size_t c = 0; c < samples_.size() && !found; ++c) found = next(state, samples_[c]) != kDead;
    states_[state].continues = found ? Answer::kYes : Answer::kNo;
  }
  return states_[state].continues == Answer::kYes;
}

uint8_t Automaton::loops(StateId state) {
  if (!states_[state].knows_loops) {
    uint32_t others = 0;  // kinds of which a byte leads elsewhere
    for (uint32_t b = 0; b < 256; ++b) {
      const auto byte = static_cast<uint8_t>(b);
      if ((others & kByteKinds[b]) == 0 && next(state, byte) != state) others |= kByteKinds[b];
    }
    states_[state].loops = static_cast<uint8_t>(~others);
    states_[state].knows_loops = !exhausted();
  }
  return states_[state].loops;
}

const ByteSet& Automaton::bytes(StateId state) {
  if (!states_[state].knows_bytes) {
    std::vector<bool> leads(class_count_);
    for (uint32_t c = 0; c < class_count_; ++c) leads[c] = next(state, samples_[c]) != kDead;
    for (uint32_t b = 0; b < 256; ++b)
      if (leads[classes_[b]]) states_[state].bytes.add(static_cast<uint8_t>(b));
    states_[state].knows_bytes = !exhausted();
  }
  return states_[state].bytes;
}

// Looks breadth first for a derivative that matches the empty text, or is known to match some text.
bool Automaton::matches_something(RegexId expression) {
  if (expressions_.is_plain(expression)) return expression != RegexSet::kNothing;
  const auto known = matches_.find(expression);
  if (known != matches_.end()) return known->second;
  std::vector<RegexId> queue = {expression};
  absl::flat_hash_set<RegexId> seen = {expression};
  bool found = false;
  for (size_t i = 0; i < queue.size() && !found; ++i) {
    const auto answer = matches_.find(queue[i]);
    if (answer != matches_.end() && !answer->second) continue;
    found = expressions_.nullable(queue[i]) || answer != matches_.end() ||
            (expressions_.is_plain(queue[i]) && queue[i] != RegexSet::kNothing);
    if (found) break;
    if (queue.size() > limits_.search_max) exhausted_ = true;
    if (exhausted()) return false;
    for (const uint8_t sample : samples_) {
      const RegexId rest = expressions_.derivative(queue[i], sample);
      if (rest != RegexSet::kNothing && seen.insert(rest).second) queue.push_back(rest);
    }
  }
  if (exhausted()) return false;
  if (found) {
    matches_[expression] = true;
  } else {
    for (const RegexId id : queue) matches_[id] = false;  // the search was exhaustive
  }
  return found;
}

}  // namespace troupe::grammar

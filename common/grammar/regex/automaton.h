#pragma once

// The deterministic automata of a set's expressions, built state by state as texts ask for them. States of
// all expressions share one table; state 0 is dead: no text leads from it to a match. A state that is not
// dead has such a text, so a byte that leads to one may be written.
//
// Bounded in states and in the work of finding dead ones; past that exhausted() stays true and next() leads
// to the dead state. Not thread-safe.

#include <array>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/grammar/regex/byte_kinds.h"
#include "common/grammar/regex/clamp.h"
#include "common/grammar/regex/regex_set.h"

namespace troupe::grammar {

using StateId = uint32_t;

class Automaton {
 public:
  static constexpr StateId kDead = 0;
  struct Limits {
    size_t table_bytes_max = 48u << 20;
    size_t search_max = 20'000;  // expressions visited to decide whether one matches anything
  };

  Automaton(const RegexSet& expressions, const Limits& limits);

  StateId start(RegexId expression) { return state_of(expression); }
  // A state that is as good as this one for texts of at most `length` bytes, and the same for many.
  StateId clamped(StateId state, uint32_t length);
  StateId next(StateId state, uint8_t byte) {
    const StateId known = table_[size_t{state} * class_count_ + classes_[byte]];
    return known != kUnknown ? known : make_next(state, byte);
  }
  RegexId expression(StateId state) const { return states_[state].expression; }
  // Whether the text so far matches.
  bool accepting(StateId state) const { return states_[state].accepting; }
  // Bytes of one class are alike in every state.
  uint8_t byte_class(uint8_t byte) const { return classes_[byte]; }
  // Whether a longer text matches too.
  bool continues(StateId state);
  // The kinds of bytes (byte_kinds.h) all of which lead back to the state.
  uint8_t loops(StateId state);
  // The bytes that lead on, and maybe others: known without a look at where they lead.
  const ByteSet& first_bytes(StateId state) const {
    return expressions_.store().firsts[states_[state].expression];
  }
  // The bytes that lead on.
  const ByteSet& bytes(StateId state);

  bool exhausted() const { return exhausted_ || expressions_.exhausted(); }
  size_t memory_bytes() const { return table_.size() * sizeof(StateId) + expressions_.size() * 128; }
  size_t state_count() const { return states_.size(); }

 private:
  static constexpr StateId kUnknown = UINT32_MAX;
  enum class Answer : uint8_t { kUnknown, kNo, kYes };
  struct State {
    RegexId expression = RegexSet::kNothing;
    bool accepting = false;
    Answer continues = Answer::kUnknown;
    bool knows_bytes = false, knows_loops = false;
    uint8_t loops = 0;
    ByteSet bytes{};
  };

  StateId state_of(RegexId expression);
  StateId make_next(StateId state, uint8_t byte);
  bool matches_something(RegexId expression);

  RegexSet expressions_;
  Limits limits_;
  bool exhausted_ = false;
  std::array<uint8_t, 256> classes_{};
  uint32_t class_count_ = 1;
  std::vector<uint8_t> samples_;  // a byte of each class
  std::vector<StateId> table_;    // (states, classes)
  std::vector<State> states_;
  absl::flat_hash_map<RegexId, StateId> ids_;
  absl::flat_hash_map<std::pair<StateId, uint32_t>, StateId> clamped_;
  absl::flat_hash_map<RegexId, bool> matches_;  // of those that are not plain
};

}  // namespace troupe::grammar

#pragma once

// An Earley recogniser as an automaton over bytes, its states made as texts ask for them.
//
// Earley's sets are columns here: one a place where a terminal may begin. A column's seeds are the items that
// a finished terminal moved on, each with the column that its production began in; columns with equal seeds
// are one, so what an array's tenth element may be is the same column as of its second, and the columns of an
// answer are as many as its text has shapes, not bytes. A configuration is everything the future depends on:
// the threads (terminals under way: the state of its automaton, the column it began in) and whether the text
// so far is a sentence. Configurations are kept once too, are immutable, and one is a number: going back is
// taking an older number, and a mask can be kept by it.
//
// Right recursion is short-cut as in Leo's parser (a column notes the one item that a rule's end leads to),
// so lists of either recursion cost a step of constant work. Not thread-safe. Bounded in memory; past that
// exhausted() stays true and step() leads nowhere.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "common/grammar/regex/automaton.h"
#include "common/grammar/rules/rules.h"

namespace troupe::grammar {

using ConfigId = uint32_t;
using ColumnId = uint32_t;

struct Thread {
  StateId state;
  uint32_t terminal;
  ColumnId column;
  auto operator<=>(const Thread&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const Thread& t) {
    return H::combine(std::move(h), t.state, t.terminal, t.column);
  }
};

class Earley {
 public:
  static constexpr ConfigId kRefused = 0;  // no sentence begins so
  struct Limits {
    size_t memory_bytes_max = 64u << 20;
    size_t column_work_max = 20'000;  // items that lead to others, some of them again
    size_t threads_max = 4096;
    Automaton::Limits automaton;
  };

  // `rules` must outlive this.
  Earley(const Rules* rules, const Limits& limits);

  ConfigId start() const { return start_; }
  ConfigId step(ConfigId config, uint8_t byte) {
    if (config == kRefused) return kRefused;
    const auto found = steps_.find(uint64_t{config} << 8 | byte);
    return found != steps_.end() ? found->second : make_step(config, byte);
  }
  bool accepting(ConfigId config) const { return configs_[config].accepting; }
  std::span<const Thread> threads(ConfigId config) const {
    return {threads_.data() + configs_[config].first, configs_[config].count};
  }
  // The configuration of one thread alone; of what may follow once a thread's terminal is complete.
  ConfigId alone(const Thread& thread) { return alone(std::vector<Thread>{thread}); }
  ConfigId alone(std::vector<Thread> threads) { return config_of(std::move(threads), false); }
  ConfigId behind(const Thread& thread);
  // False only if no text goes on with the byte: a look that costs less than the step.
  bool may_follow(ConfigId config, uint8_t byte);
  // The bytes that may follow.
  const ByteSet& bytes(ConfigId config);
  // The only byte that may follow, or -1. (Where the text may end, none is the only one.)
  int32_t only_byte(ConfigId config);

  Automaton& automaton() { return automaton_; }
  bool exhausted() const { return exhausted_ || automaton_.exhausted(); }
  size_t memory_bytes() const { return memory_bytes_ + automaton_.memory_bytes(); }

 private:
  static constexpr ColumnId kHere = UINT32_MAX;  // an item's production began in the column it is in
  struct Item {
    ItemId id;
    ColumnId origin;
    auto operator<=>(const Item&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Item& item) {
      return H::combine(std::move(h), item.id, item.origin);
    }
  };
  struct Waiting {
    uint32_t id;  // terminal or rule
    Item item;
    auto operator<=>(const Waiting&) const = default;
  };
  struct Column {
    std::vector<Waiting> terminals, rules;            // sorted
    std::vector<std::pair<RuleId, Item>> short_cuts;  // sorted by rule
    bool accepting = false;
  };
  struct Config {
    uint32_t first = 0, count = 0;  // in threads_
    bool accepting = false;
    bool knows_bytes = false, knows_firsts = false;
    ByteSet bytes{}, firsts{};  // firsts: may hold more
  };
  struct Draft;  // a column in the making

  ConfigId make_step(ConfigId config, uint8_t byte);
  void add_seeds(const Thread& thread, std::vector<Item>& seeds) const;
  ColumnId column_of(std::vector<Item> seeds);
  void advance(Draft& draft, const Item& item);
  void complete(Draft& draft, RuleId rule, ColumnId origin);
  void add_short_cuts(Column& column) const;
  static std::span<const Waiting> waiting(const std::vector<Waiting>& all, uint32_t id);
  void add_threads(ColumnId column, std::vector<Thread>& out);
  ConfigId config_of(std::vector<Thread> threads, bool accepting);
  bool take_memory(size_t bytes);

  const Rules* rules_;
  Limits limits_;
  Automaton automaton_;
  std::vector<StateId> terminal_starts_;
  bool exhausted_ = false;
  size_t memory_bytes_ = 0;
  std::vector<Column> columns_;
  std::vector<Config> configs_;
  std::vector<Thread> threads_;
  absl::flat_hash_map<std::vector<uint32_t>, ColumnId> column_ids_;
  absl::flat_hash_map<std::pair<std::vector<Thread>, bool>, ConfigId> config_ids_;
  absl::flat_hash_map<uint64_t, ConfigId> steps_;
  absl::flat_hash_map<uint64_t, ConfigId> behind_;  // by terminal and column
  ConfigId start_ = kRefused;
};

}  // namespace troupe::grammar

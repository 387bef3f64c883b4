#pragma once

// A context-free grammar whose terminals are regular expressions over bytes. Front ends fill a RuleBuilder;
// what build() returns is immutable and made for the Earley machine: items (a place in a production) are
// indices, and an item's successor is the next index.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/core/status.h"
#include "common/grammar/regex/regex_set.h"

namespace troupe::grammar {

using RuleId = uint32_t;
using ItemId = uint32_t;

struct Symbol {
  enum class Kind : uint8_t { kExpression, kRule };
  Kind kind = Kind::kExpression;
  uint32_t id = 0;  // RegexId or RuleId

  static Symbol expression(RegexId id) { return {Kind::kExpression, id}; }
  static Symbol rule(RuleId id) { return {Kind::kRule, id}; }
};

struct Rules {
  // Behind an item: the expression or rule that comes next, or the end of the rule's production.
  struct Next {
    enum class Kind : uint8_t { kTerminal, kRule, kEnd };
    Kind kind = Kind::kEnd;
    bool nullable = false;
    uint32_t id = 0;  // index in terminals, RuleId, RuleId of the production
  };
  RegexSet expressions;
  std::vector<RegexId> terminals;
  std::vector<Next> items;
  std::vector<std::vector<ItemId>> starts;  // of each rule's productions
  ItemId root = 0;  // before the start rule, in a production of the rule root_rule, which nothing refers to
  RuleId root_rule = 0;

  size_t memory_bytes() const { return expressions.size() * 128 + items.size() * 16 + terminals.size() * 8; }
};

class RuleBuilder {
 public:
  struct Limits {
    size_t symbols_max = 200'000;
  };
  explicit RuleBuilder(const Limits& limits);

  RegexSet& expressions() { return expressions_; }
  RuleId add_rule();
  // A production of `rule`: it may be `symbols` in turn. None of them: it may be empty.
  void add(RuleId rule, std::vector<Symbol> symbols);
  // A new rule with these productions, or the symbol itself if that is all.
  Symbol either(const std::vector<Symbol>& options);
  Symbol sequence(const std::vector<Symbol>& symbols);
  // `symbol` as many times, with `separator` between; left-recursive where that is unbounded.
  Symbol repeat(Symbol symbol, uint32_t min, uint32_t max,
                Symbol separator = Symbol::expression(RegexSet::kEmpty));

  // False past the limits; then build() says so too.
  bool fits() const { return symbol_count_ <= limits_.symbols_max && !expressions_.exhausted(); }
  // Leaves out what can never match. Errors (kInvalidArgument): past the limits; nothing matches. Ends the
  // builder.
  StatusOr<Rules> build(Symbol start);

 private:
  struct Production {
    RuleId rule;
    std::vector<Symbol> symbols;
  };
  std::vector<bool> rules_of(const std::vector<bool>& expressions) const;
  Symbol repeat_exactly(Symbol symbol, uint32_t count, Symbol separator);

  Limits limits_;
  RegexSet expressions_;
  RuleId rule_count_ = 0;
  size_t symbol_count_ = 0;
  std::vector<Production> productions_;
};

}  // namespace troupe::grammar

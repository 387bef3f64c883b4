#include "common/grammar/rules/rules.h"

#include <algorithm>

#include "common/grammar/regex/automaton.h"
#include "common/grammar/regex/json_lexemes.h"

namespace troupe::grammar {

RuleBuilder::RuleBuilder(const Limits& limits) : limits_(limits), expressions_(json_lexemes().expressions) {}

RuleId RuleBuilder::add_rule() {
  ++symbol_count_;
  return rule_count_++;
}

void RuleBuilder::add(RuleId rule, std::vector<Symbol> symbols) {
  symbol_count_ += symbols.size() + 1;
  if (fits()) productions_.push_back({rule, std::move(symbols)});
}

Symbol RuleBuilder::either(const std::vector<Symbol>& options) {
  if (options.size() == 1) return options[0];
  const bool is_expression = std::all_of(options.begin(), options.end(), [](const Symbol& symbol) {
    return symbol.kind == Symbol::Kind::kExpression;
  });
  if (is_expression) {
    std::vector<RegexId> ids;
    for (const Symbol& symbol : options) ids.push_back(symbol.id);
    return Symbol::expression(expressions_.either(std::move(ids)));
  }
  const RuleId rule = add_rule();
  for (const Symbol& symbol : options) add(rule, {symbol});
  return Symbol::rule(rule);
}

// Neighbours that are expressions become one.
Symbol RuleBuilder::sequence(const std::vector<Symbol>& symbols) {
  std::vector<Symbol> parts;
  for (const Symbol& symbol : symbols) {
    if (!parts.empty() && symbol.kind == Symbol::Kind::kExpression &&
        parts.back().kind == Symbol::Kind::kExpression) {
      parts.back().id = expressions_.concat(parts.back().id, symbol.id);
    } else {
      parts.push_back(symbol);
    }
  }
  std::erase_if(parts, [](const Symbol& symbol) {
    return symbol.kind == Symbol::Kind::kExpression && symbol.id == RegexSet::kEmpty;
  });
  if (parts.empty()) return Symbol::expression(RegexSet::kEmpty);
  if (parts.size() == 1) return parts[0];
  const RuleId rule = add_rule();
  add(rule, std::move(parts));
  return Symbol::rule(rule);
}

// `count` of them by halves: as many rules as the count has binary digits.
Symbol RuleBuilder::repeat_exactly(Symbol symbol, uint32_t count, Symbol separator) {
  if (count == 0) return Symbol::expression(RegexSet::kEmpty);
  if (count == 1) return symbol;
  const Symbol half = repeat_exactly(symbol, count / 2, separator);
  if (count % 2 == 0) return sequence({half, separator, half});
  return sequence({half, separator, half, separator, symbol});
}

Symbol RuleBuilder::repeat(Symbol symbol, uint32_t min, uint32_t max, Symbol separator) {
  const Symbol empty = Symbol::expression(RegexSet::kEmpty);
  if (max == 0) return empty;
  if (symbol.kind == Symbol::Kind::kExpression && separator.kind == Symbol::Kind::kExpression) {
    const RegexId more = expressions_.concat(separator.id, symbol.id);
    const uint32_t rest_max = max == RegexSet::kUnbounded ? max : max - 1;
    const RegexId all =
        separator.id == RegexSet::kEmpty
            ? expressions_.repeat(symbol.id, min, max)
            : expressions_.concat(symbol.id, expressions_.repeat(more, min > 0 ? min - 1 : 0, rest_max));
    return Symbol::expression(min == 0 ? expressions_.optional(all) : all);
  }
  const uint32_t least = std::max(min, 1u);
  Symbol list = repeat_exactly(symbol, least, separator);
  if (max == RegexSet::kUnbounded) {
    const RuleId rule = add_rule();
    add(rule, {list});
    add(rule, {Symbol::rule(rule), sequence({separator, symbol})});
    list = Symbol::rule(rule);
  } else if (max > least) {
    const Symbol more = sequence({separator, symbol});
    Symbol tail = empty;
    for (uint32_t i = least; i < max && fits(); ++i) tail = either({empty, sequence({more, tail})});
    list = sequence({list, tail});
  }
  return min == 0 ? either({empty, list}) : list;
}

// A rule has a property if all symbols of one of its productions have it; `expressions`: those that have.
std::vector<bool> RuleBuilder::rules_of(const std::vector<bool>& expressions) const {
  std::vector<bool> found(rule_count_);
  std::vector<std::vector<uint32_t>> uses(rule_count_);  // productions, by rule that they wait for
  std::vector<uint32_t> missing(productions_.size());
  std::vector<RuleId> queue;
  const auto mark = [&](RuleId rule) {
    if (!found[rule]) queue.push_back(rule);
    found[rule] = true;
  };
  for (uint32_t p = 0; p < productions_.size(); ++p) {
    bool possible = true;
    for (const Symbol& symbol : productions_[p].symbols) {
      if (symbol.kind == Symbol::Kind::kExpression) {
        possible = possible && expressions[symbol.id];
      } else {
        uses[symbol.id].push_back(p);
        ++missing[p];
      }
    }
    if (!possible) {
      missing[p] = UINT32_MAX;
    } else if (missing[p] == 0) {
      mark(productions_[p].rule);
    }
  }
  for (size_t i = 0; i < queue.size(); ++i)
    for (const uint32_t p : uses[queue[i]])
      if (missing[p] != UINT32_MAX && --missing[p] == 0) mark(productions_[p].rule);
  return found;
}

StatusOr<Rules> RuleBuilder::build(Symbol start) {
  const RuleId root = add_rule();
  add(root, {start});
  if (!fits()) return invalid_argument("the grammar is too large");
  std::vector<bool> matches(expressions_.size()), empty(expressions_.size());
  std::vector<bool> used(expressions_.size());
  for (const Production& production : productions_)
    for (const Symbol& symbol : production.symbols)
      if (symbol.kind == Symbol::Kind::kExpression) used[symbol.id] = true;
  {
    Automaton automaton(expressions_, {});
    for (RegexId id = 0; id < used.size(); ++id) {
      matches[id] = used[id] && automaton.start(id) != Automaton::kDead;
      empty[id] = expressions_.nullable(id);
    }
    if (automaton.exhausted()) return invalid_argument("the grammar's expressions are too costly");
  }
  const std::vector<bool> productive = rules_of(matches), nullable = rules_of(empty);
  if (!productive[root]) return invalid_argument("the grammar matches no text");
  Rules rules;
  rules.starts.resize(rule_count_);
  rules.root_rule = root;
  absl::flat_hash_map<RegexId, uint32_t> terminals;
  for (const Production& production : productions_) {
    const bool kept =
        std::all_of(production.symbols.begin(), production.symbols.end(), [&](const Symbol& symbol) {
          return symbol.kind == Symbol::Kind::kExpression ? matches[symbol.id] : productive[symbol.id];
        });
    if (!kept) continue;
    rules.starts[production.rule].push_back(static_cast<ItemId>(rules.items.size()));
    for (const Symbol& symbol : production.symbols) {
      if (symbol.kind == Symbol::Kind::kRule) {
        rules.items.push_back({Rules::Next::Kind::kRule, nullable[symbol.id], symbol.id});
        continue;
      }
      if (symbol.id == RegexSet::kEmpty) continue;
      const auto [found, is_new] = terminals.emplace(symbol.id, static_cast<uint32_t>(terminals.size()));
      if (is_new) rules.terminals.push_back(symbol.id);
      rules.items.push_back({Rules::Next::Kind::kTerminal, empty[symbol.id], found->second});
    }
    rules.items.push_back({Rules::Next::Kind::kEnd, false, production.rule});
  }
  rules.root = rules.starts[root][0];
  rules.expressions = std::move(expressions_);
  return rules;
}

}  // namespace troupe::grammar

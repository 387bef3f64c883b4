#include "common/grammar/regex/clamp.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"

namespace troupe::grammar {

namespace {

// Past these, parts are left as they are: right, too, but not one for as many expressions.
constexpr size_t kPartsMax = 64;         // of a sequence
constexpr int kDepthMax = 64;            // of expressions within one another
constexpr size_t kExpressionsMax = 512;  // that are looked at

struct Clamping {
  using Kind = RegexStore::Kind;

  // (A copy, as constructors move nodes.)
  RegexStore::Node node_of(RegexId id) const { return set.store().nodes[id]; }
  RegexId of(RegexId expression, int depth);
  RegexId made_of(RegexId expression, int depth);

  RegexSet& set;
  uint32_t length = 0;
  // Many expressions may share a part: GBNF's rules are put in where they are used.
  absl::flat_hash_map<RegexId, RegexId> known = {};
};

RegexId Clamping::of(RegexId expression, int depth) {
  if (node_of(expression).counts_max <= length || !node_of(expression).plain) return expression;
  if (const auto found = known.find(expression); found != known.end()) return found->second;
  if (depth > kDepthMax || known.size() >= kExpressionsMax) return expression;
  known[expression] = expression;
  const RegexId made = made_of(expression, depth);
  known[expression] = made;
  return made;
}

RegexId Clamping::made_of(RegexId expression, int depth) {
  std::vector<RegexId> parts;
  RegexId rest = expression;
  for (; node_of(rest).kind == Kind::kConcat && parts.size() < kPartsMax; rest = node_of(rest).b)
    parts.push_back(of(node_of(rest).a, depth + 1));
  if (rest != expression) {
    rest = of(rest, depth + 1);
  } else if (node_of(rest).kind == Kind::kEither) {
    const auto inner = set.store().items(node_of(rest));
    std::vector<RegexId> options(inner.begin(), inner.end());
    for (RegexId& id : options) id = of(id, depth + 1);
    rest = set.either(std::move(options));
  } else if (const RegexStore::Node node = node_of(rest); node.kind == Kind::kRepeat) {
    const uint32_t max = node.c > length ? RegexSet::kUnbounded : node.c;
    rest = set.repeat(of(node.a, depth + 1), std::min(node.b, length + 1), max);
  }
  for (size_t i = parts.size(); i-- > 0;) rest = set.concat(parts[i], rest);
  return rest;
}

}  // namespace

RegexId clamped(RegexSet& set, RegexId expression, uint32_t length) {
  return Clamping{set, length}.of(expression, 0);
}

}  // namespace troupe::grammar

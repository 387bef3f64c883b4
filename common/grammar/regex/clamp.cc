#include "common/grammar/regex/clamp.h"

#include <algorithm>

namespace troupe::grammar {

RegexId clamped(RegexSet& set, RegexId expression, uint32_t length) {
  static constexpr size_t kPartsMax = 64;  // of a sequence; what is behind them is left as it is
  using Kind = RegexStore::Kind;
  const auto node_of = [&set](RegexId id) { return set.store().nodes[id]; };  // (constructors move them)
  if (node_of(expression).counts_max <= length || !node_of(expression).plain) return expression;
  std::vector<RegexId> parts;
  RegexId rest = expression;
  for (; node_of(rest).kind == Kind::kConcat && parts.size() < kPartsMax; rest = node_of(rest).b)
    parts.push_back(clamped(set, node_of(rest).a, length));
  const RegexStore::Node node = node_of(rest);
  if (node.kind == Kind::kEither) {
    const auto inner = set.store().items(node);
    std::vector<RegexId> options(inner.begin(), inner.end());
    for (RegexId& id : options) id = clamped(set, id, length);
    rest = set.either(std::move(options));
  } else if (node.kind == Kind::kRepeat) {
    const uint32_t max = node.c > length ? RegexSet::kUnbounded : node.c;
    rest = set.repeat(clamped(set, node.a, length), std::min(node.b, length + 1), max);
  }
  for (size_t i = parts.size(); i-- > 0;) rest = set.concat(parts[i], rest);
  return rest;
}

}  // namespace troupe::grammar

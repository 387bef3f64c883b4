#include <algorithm>

#include "common/grammar/schema/containers.h"

namespace troupe::grammar {

size_t prefix_size(const Constraints& constraints) {
  size_t size = 0;
  for (const ArrayPart& part : constraints.arrays) size = std::max(size, part.prefix.size());
  return size;
}

SchemaSet element_schemas(const Constraints& constraints, size_t index) {
  SchemaSet schemas;
  for (const ArrayPart& part : constraints.arrays) {
    const bj::value* schema = index < part.prefix.size() ? part.prefix[index] : part.rest;
    if (schema != nullptr) schemas.add(schema);
  }
  return schemas;
}

StatusOr<Symbol> array_symbol(SchemaContext& context, const SchemaSet& schemas,
                              const Constraints& constraints) {
  RuleBuilder& builder = context.builder();
  const JsonLayout& layout = context.layout();
  const CountRange& count = constraints.items;
  const bj::value* at = schemas.schemas[0];
  static constexpr uint64_t kCountMax = 50'000;
  if (count.min > kCountMax) return context.reader().error(at, "minItems", "too large");
  if (count.max != kNoMax && count.max > kCountMax)
    return context.reader().error(at, "maxItems", "too large");
  if (count.min > count.max) return Symbol::expression(RegexSet::kNothing);
  const size_t prefix = std::min<size_t>(prefix_size(constraints), count.max);
  const Symbol separator = Symbol::expression(layout.item_separator);
  // Elements from the longest prefix on: all of one rule.
  const Symbol more = builder.sequence({separator, context.rule_of(element_schemas(constraints, prefix))});
  const uint32_t min = static_cast<uint32_t>(count.min > prefix ? count.min - prefix : 0);
  const uint32_t max = count.max == kNoMax ? RegexSet::kUnbounded : static_cast<uint32_t>(count.max - prefix);
  Symbol rest = max == 0 ? Symbol::expression(RegexSet::kEmpty) : builder.repeat(more, min, max);
  if (prefix == 0) {
    const Symbol element = context.rule_of(element_schemas(constraints, 0));
    rest = builder.repeat(element, min, max, separator);
  }
  for (size_t i = prefix; i-- > 0;) {
    const RuleId tail = builder.add_rule();  // the elements from i on
    const Symbol element = context.rule_of(element_schemas(constraints, i));
    if (i == 0) {
      builder.add(tail, {element, rest});
    } else {
      builder.add(tail, {separator, element, rest});
    }
    if (i >= count.min) builder.add(tail, {});
    rest = Symbol::rule(tail);
  }
  const RuleId array = builder.add_rule();
  builder.add(array, {Symbol::expression(layout.open_array), rest, Symbol::expression(layout.close_array)});
  return Symbol::rule(array);
}

}  // namespace troupe::grammar

#include "common/grammar/schema/compiler.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/core/work_limit.h"
#include "common/grammar/regex/json_lexemes.h"
#include "common/grammar/schema/containers.h"
#include "common/grammar/schema/context.h"
#include "common/grammar/schema/disjoint.h"
#include "common/grammar/schema/enumerated.h"
#include "common/grammar/schema/scalars.h"

namespace troupe::grammar {

static constexpr size_t kRulesMax = 20'000;

// The rule divides into one rule for each alternative.
static Status fill_group(SchemaContext& context, RuleId rule, const SchemaSet& schemas,
                         const Constraints::Group& group) {
  if (group.is_exclusive) TROUPE_RETURN_IF_ERROR(check_disjoint(context, schemas, group));
  SchemaSet rest = schemas;
  rest.chosen.insert(std::lower_bound(rest.chosen.begin(), rest.chosen.end(), group.keyword), group.keyword);
  for (const bj::value* alternative : group.alternatives) {
    SchemaSet chosen = rest;
    chosen.add(alternative);
    context.builder().add(rule, {context.rule_of(chosen)});
  }
  return {};
}

static Status fill_values(SchemaContext& context, RuleId rule, const Constraints& constraints) {
  std::vector<RegexId> options;
  for (const bj::value* value : *constraints.values) {
    TROUPE_RETURN_IF_ERROR(count_work(1024));
    TROUPE_ASSIGN_OR_RETURN(const bool passes, passes_constraints(context, *value, constraints));
    if (passes) options.push_back(context.layout().value(context.expressions(), *value));
  }
  context.builder().add(rule, {Symbol::expression(context.expressions().either(std::move(options)))});
  return {};
}

static Status fill(SchemaContext& context, RuleId rule, const SchemaSet& schemas) {
  TROUPE_ASSIGN_OR_RETURN(const Constraints constraints, context.reader().collect(schemas));
  if (constraints.types == 0) return {};
  if (!constraints.groups.empty()) return fill_group(context, rule, schemas, constraints.groups[0]);
  if (constraints.values) return fill_values(context, rule, constraints);
  const JsonLexemes& lexemes = json_lexemes();
  const auto add = [&](RegexId id) { context.builder().add(rule, {Symbol::expression(id)}); };
  const uint8_t types = constraints.types;
  if ((types & kNullBit) != 0) add(lexemes.null);
  if ((types & kBooleanBit) != 0) add(lexemes.boolean);
  if ((types & (kIntegerBit | kFractionBit)) != 0)
    add(number_expression(context.expressions(), constraints.number, types));
  if ((types & kStringBit) != 0) {
    const auto strings = string_expression(context.expressions(), constraints.string);
    if (!strings.ok())
      return annotate(strings.status(),
                      absl::StrCat("schema ", context.reader().path(schemas.schemas[0])).c_str());
    add(*strings);
  }
  if ((types & kArrayBit) != 0) {
    TROUPE_ASSIGN_OR_RETURN(const Symbol array, array_symbol(context, schemas, constraints));
    context.builder().add(rule, {array});
  }
  if ((types & kObjectBit) != 0) {
    TROUPE_ASSIGN_OR_RETURN(const Symbol object, object_symbol(context, schemas, constraints));
    context.builder().add(rule, {object});
  }
  return {};
}

StatusOr<Symbol> compile_schema(RuleBuilder& builder, SchemaReader& reader, const bj::value& root,
                                const JsonOptions& options) {
  SchemaContext context(&builder, &reader, options);
  SchemaSet schemas;
  schemas.add(&root);
  const Symbol start = context.rule_of(schemas);
  for (RuleId rule = 0; context.take_pending(rule, schemas);) {
    TROUPE_RETURN_IF_ERROR(count_work(4096));
    if (context.rule_count() > kRulesMax || !context.builder().fits())
      return invalid_argument("the schema is too large");
    TROUPE_RETURN_IF_ERROR(fill(context, rule, schemas));
  }
  return start;
}

}  // namespace troupe::grammar

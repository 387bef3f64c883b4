#include "common/grammar/schema/compiler.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/core/work_limit.h"
#include "common/grammar/schema/alternatives.h"
#include "common/grammar/schema/arguments.h"
#include "common/grammar/schema/containers.h"
#include "common/grammar/schema/context.h"
#include "common/grammar/schema/enumerated.h"
#include "common/grammar/schema/scalars.h"

namespace troupe::grammar {

static constexpr size_t kRulesMax = 20'000;

// The rule divides into one rule for each alternative.
static Status fill_group(SchemaContext& context, RuleId rule, const SchemaSet& schemas,
                         const Constraints::Group& group) {
  TROUPE_ASSIGN_OR_RETURN(const std::vector<SchemaSet> ways, alternatives_of(context, schemas, group));
  for (const SchemaSet& way : ways) context.builder().add(rule, {context.rule_of(way)});
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

static bool excludes(const Constraints& constraints, const bj::value& value) {
  return std::any_of(constraints.excluded.begin(), constraints.excluded.end(),
                     [&](const bj::value* one) { return *one == value; });
}

static Status fill(SchemaContext& context, RuleId rule, const SchemaSet& schemas) {
  TROUPE_ASSIGN_OR_RETURN(const Constraints constraints, context.reader().collect(schemas));
  if (constraints.types == 0) return {};
  if (!constraints.groups.empty()) return fill_group(context, rule, schemas, constraints.groups[0]);
  if (constraints.values) return fill_values(context, rule, constraints);
  TROUPE_RETURN_IF_ERROR(check_excluded(context, schemas, constraints));
  const JsonLayout& layout = context.layout();
  const auto add = [&](RegexId id) { context.builder().add(rule, {Symbol::expression(id)}); };
  const uint8_t types = constraints.types;
  if ((types & kNullBit) != 0) add(layout.null);
  if ((types & kBooleanBit) != 0) {
    for (const bool value : {false, true})
      if (!excludes(constraints, value)) add(value ? layout.true_word : layout.false_word);
  }
  if ((types & (kIntegerBit | kFractionBit)) != 0)
    add(number_expression(context.expressions(), constraints.number, types));
  if ((types & kStringBit) != 0) {
    const auto strings = string_expression(context.expressions(), constraints.string);
    if (!strings.ok())
      return annotate(strings.status(),
                      absl::StrCat("schema ", context.reader().path(schemas.schemas[0])).c_str());
    add(context.layout().strings(context.expressions(), *strings));
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

static Status fill_pending(SchemaContext& context) {
  SchemaSet schemas;
  for (RuleId rule = 0; context.take_pending(rule, schemas);) {
    TROUPE_RETURN_IF_ERROR(count_work(4096));
    if (context.rule_count() > kRulesMax || !context.builder().fits())
      return invalid_argument("the schema is too large");
    TROUPE_RETURN_IF_ERROR(fill(context, rule, schemas));
  }
  return {};
}

StatusOr<Symbol> compile_schema(RuleBuilder& builder, SchemaReader& reader, const bj::value& root,
                                const JsonOptions& options) {
  SchemaContext context(&builder, &reader, options);
  SchemaSet schemas;
  schemas.add(&root);
  const Symbol start = context.rule_of(schemas);
  TROUPE_RETURN_IF_ERROR(fill_pending(context));
  return start;
}

StatusOr<Symbol> compile_arguments(RuleBuilder& builder, SchemaReader& reader, const bj::value& root,
                                   const JsonOptions& options, const ArgumentLayout& layout) {
  SchemaContext context(&builder, &reader, options);
  SchemaSet schemas;
  schemas.add(&root);
  TROUPE_ASSIGN_OR_RETURN(const Symbol start, arguments_symbol(context, schemas, options, layout));
  TROUPE_RETURN_IF_ERROR(fill_pending(context));
  return start;
}

}  // namespace troupe::grammar

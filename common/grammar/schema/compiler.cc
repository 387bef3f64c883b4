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

// Names of members that the alternatives speak of.
static StatusOr<std::vector<std::string_view>> names_of(SchemaContext& context,
                                                        const std::vector<const bj::value*>& alternatives) {
  std::vector<std::string_view> names;
  for (const bj::value* alternative : alternatives) {
    SchemaSet set;
    set.add(alternative);
    TROUPE_ASSIGN_OR_RETURN(const Constraints constraints, context.reader().collect(set));
    names.insert(names.end(), constraints.required.begin(), constraints.required.end());
    for (const ObjectPart& part : constraints.objects) {
      if (part.properties == nullptr) continue;
      for (const auto& [name, schema] : *part.properties) names.emplace_back(name.data(), name.size());
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

// By alternative of a oneOf: the negations of those that may hold beside it.
static StatusOr<std::vector<SchemaSet>> others_excluded(SchemaContext& context, const SchemaSet& schemas,
                                                        const Constraints::Group& group) {
  std::vector<SchemaSet> excluded(group.alternatives.size());
  TROUPE_ASSIGN_OR_RETURN(const auto overlaps, overlaps_of(context, schemas, group));
  if (overlaps.empty()) return excluded;
  TROUPE_ASSIGN_OR_RETURN(const std::vector<std::string_view> names, names_of(context, group.alternatives));
  for (const auto& [first, second] : overlaps) {
    for (const auto& [one, other] : {std::pair(first, second), std::pair(second, first)}) {
      const auto negation = context.reader().made_up().not_of(group.alternatives[other], names);
      if (!negation.ok())
        return invalid_argument(absl::StrCat(
            "schema ", context.reader().path(group.keyword), ": alternatives ", first, " and ", second,
            " may both hold, so that exactly one does cannot be enforced: ", negation.status().message()));
      excluded[one].add(*negation);
    }
  }
  return excluded;
}

// The rule divides into one rule for each alternative.
static Status fill_group(SchemaContext& context, RuleId rule, const SchemaSet& schemas,
                         const Constraints::Group& group) {
  std::vector<SchemaSet> excluded(group.alternatives.size());
  if (group.is_exclusive) {
    TROUPE_ASSIGN_OR_RETURN(excluded, others_excluded(context, schemas, group));
  }
  SchemaSet rest = schemas;
  rest.chosen.insert(std::lower_bound(rest.chosen.begin(), rest.chosen.end(), group.keyword), group.keyword);
  for (size_t i = 0; i < group.alternatives.size(); ++i) {
    SchemaSet chosen = rest;
    chosen.add(group.alternatives[i]);
    for (const bj::value* negation : excluded[i].schemas) chosen.add(negation);
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

static bool excludes(const Constraints& constraints, const bj::value& value) {
  return std::any_of(constraints.excluded.begin(), constraints.excluded.end(),
                     [&](const bj::value* one) { return *one == value; });
}

// Arrays and objects are told from all others only where they are empty.
static Status check_excluded(SchemaContext& context, const SchemaSet& schemas,
                             const Constraints& constraints) {
  const auto is_refused = [&](const bj::value* value) {
    return (value->is_array() && (constraints.types & kArrayBit) != 0 && !value->as_array().empty()) ||
           (value->is_object() && (constraints.types & kObjectBit) != 0 && !value->as_object().empty());
  };
  if (std::any_of(constraints.excluded.begin(), constraints.excluded.end(), is_refused))
    return context.reader().error(schemas.schemas[0], "not", "one array or object cannot be excluded");
  return {};
}

static Status fill(SchemaContext& context, RuleId rule, const SchemaSet& schemas) {
  TROUPE_ASSIGN_OR_RETURN(const Constraints constraints, context.reader().collect(schemas));
  if (constraints.types == 0) return {};
  if (!constraints.groups.empty()) return fill_group(context, rule, schemas, constraints.groups[0]);
  if (constraints.values) return fill_values(context, rule, constraints);
  TROUPE_RETURN_IF_ERROR(check_excluded(context, schemas, constraints));
  const JsonLexemes& lexemes = json_lexemes();
  const auto add = [&](RegexId id) { context.builder().add(rule, {Symbol::expression(id)}); };
  const uint8_t types = constraints.types;
  if ((types & kNullBit) != 0) add(lexemes.null);
  if ((types & kBooleanBit) != 0) {
    for (const bool value : {false, true})
      if (!excludes(constraints, value)) add(context.expressions().literal(value ? "true" : "false"));
  }
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

#include "common/grammar/schema/compiler.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/core/work_limit.h"
#include "common/grammar/regex/json_lexemes.h"
#include "common/grammar/schema/containers.h"
#include "common/grammar/schema/disjoint.h"
#include "common/grammar/schema/enumerated.h"
#include "common/grammar/schema/scalars.h"

namespace troupe::grammar {

static constexpr size_t kRulesMax = 20'000;

SchemaCompiler::SchemaCompiler(SchemaReader* reader, const JsonOptions& options)
    : reader_(reader), builder_({}), layout_(JsonLayout::make(builder_.expressions(), options)) {}

StatusOr<Rules> SchemaCompiler::compile(const bj::value& root) {
  SchemaSet set;
  set.add(&root);
  const Symbol start = rule_of(set);
  TROUPE_RETURN_IF_ERROR(fill_pending());
  return builder_.build(start);
}

StatusOr<Rules> SchemaCompiler::compile_any_object() {
  any_value();
  return builder_.build(any_object());
}

Symbol SchemaCompiler::rule_of(const SchemaSet& schemas) {
  if (std::all_of(schemas.schemas.begin(), schemas.schemas.end(), is_any_schema)) return any_value();
  const auto found = rules_.find(schemas);
  if (found != rules_.end()) return Symbol::rule(found->second);
  const RuleId rule = builder_.add_rule();
  rules_.emplace(schemas, rule);
  pending_.emplace_back(rule, schemas);
  return Symbol::rule(rule);
}

Status SchemaCompiler::fill_pending() {
  while (!pending_.empty()) {
    TROUPE_RETURN_IF_ERROR(count_work(4096));
    if (rules_.size() > kRulesMax || !builder_.fits()) return invalid_argument("the schema is too large");
    const auto [rule, schemas] = std::move(pending_.back());
    pending_.pop_back();
    TROUPE_RETURN_IF_ERROR(fill(rule, schemas));
  }
  return {};
}

Status SchemaCompiler::fill(RuleId rule, const SchemaSet& schemas) {
  TROUPE_ASSIGN_OR_RETURN(const Constraints constraints, reader_->collect(schemas));
  if (constraints.types == 0) return {};
  if (!constraints.groups.empty()) return fill_group(rule, schemas, constraints.groups[0]);
  if (constraints.values) return fill_values(rule, schemas, constraints);
  const JsonLexemes& lexemes = json_lexemes();
  const auto add = [&](RegexId id) { builder_.add(rule, {Symbol::expression(id)}); };
  const uint8_t types = constraints.types;
  if ((types & kNullBit) != 0) add(lexemes.null);
  if ((types & kBooleanBit) != 0) add(lexemes.boolean);
  if ((types & (kIntegerBit | kFractionBit)) != 0)
    add(number_expression(expressions(), constraints.number, types));
  if ((types & kStringBit) != 0) {
    const auto strings = string_expression(expressions(), constraints.string);
    if (!strings.ok())
      return annotate(strings.status(), absl::StrCat("schema ", reader_->path(schemas.schemas[0])).c_str());
    add(*strings);
  }
  if ((types & kArrayBit) != 0) {
    TROUPE_ASSIGN_OR_RETURN(const Symbol array, array_symbol(*this, schemas, constraints));
    builder_.add(rule, {array});
  }
  if ((types & kObjectBit) != 0) {
    TROUPE_ASSIGN_OR_RETURN(const Symbol object, object_symbol(*this, schemas, constraints));
    builder_.add(rule, {object});
  }
  return {};
}

// The rule divides into one rule for each alternative.
Status SchemaCompiler::fill_group(RuleId rule, const SchemaSet& schemas, const Constraints::Group& group) {
  if (group.is_exclusive) TROUPE_RETURN_IF_ERROR(check_disjoint(*this, schemas, group));
  SchemaSet rest = schemas;
  rest.chosen.insert(std::lower_bound(rest.chosen.begin(), rest.chosen.end(), group.keyword), group.keyword);
  for (const bj::value* alternative : group.alternatives) {
    SchemaSet chosen = rest;
    chosen.add(alternative);
    builder_.add(rule, {rule_of(chosen)});
  }
  return {};
}

Status SchemaCompiler::fill_values(RuleId rule, const SchemaSet& schemas, const Constraints& constraints) {
  std::vector<RegexId> options;
  for (const bj::value* value : *constraints.values) {
    TROUPE_RETURN_IF_ERROR(count_work(1024));
    TROUPE_ASSIGN_OR_RETURN(const bool passes, passes_constraints(*this, *value, constraints, schemas));
    if (passes) options.push_back(layout_.value(expressions(), *value));
  }
  builder_.add(rule, {Symbol::expression(expressions().either(std::move(options)))});
  return {};
}

StatusOr<RegexId> SchemaCompiler::strings_of(const SchemaSet& schemas) {
  TROUPE_ASSIGN_OR_RETURN(const Constraints constraints, reader_->collect(schemas));
  if ((constraints.types & kStringBit) == 0) return RegexSet::kNothing;
  if (!constraints.groups.empty())
    return invalid_argument(
        absl::StrCat("schema ", reader_->path(schemas.schemas[0]), ": alternatives cannot be enforced here"));
  if (!constraints.values) return string_expression(expressions(), constraints.string);
  std::vector<RegexId> options;
  for (const bj::value* value : *constraints.values) {
    if (!value->is_string()) continue;
    TROUPE_ASSIGN_OR_RETURN(const bool passes, passes_constraints(*this, *value, constraints, schemas));
    if (passes) options.push_back(layout_.value(expressions(), *value));
  }
  return expressions().either(std::move(options));
}

Symbol SchemaCompiler::any_value() {
  if (has_any_value_) return any_value_;
  has_any_value_ = true;
  const JsonLexemes& lexemes = json_lexemes();
  const RuleId value = builder_.add_rule();
  any_value_ = Symbol::rule(value);
  for (const RegexId id : {lexemes.string, lexemes.number, lexemes.boolean, lexemes.null})
    builder_.add(value, {Symbol::expression(id)});
  const Symbol separator = Symbol::expression(layout_.item_separator);
  builder_.add(value, {any_object()});
  builder_.add(value, {Symbol::expression(layout_.open_array),
                       builder_.repeat(any_value_, 0, RegexSet::kUnbounded, separator),
                       Symbol::expression(layout_.close_array)});
  return any_value_;
}

Symbol SchemaCompiler::any_object() {
  if (any_object_.kind == Symbol::Kind::kRule) return any_object_;
  const RuleId object = builder_.add_rule(), member = builder_.add_rule();
  any_object_ = Symbol::rule(object);
  builder_.add(member, {Symbol::expression(json_lexemes().string), Symbol::expression(layout_.key_separator),
                        any_value()});
  const Symbol separator = Symbol::expression(layout_.item_separator);
  builder_.add(object, {Symbol::expression(layout_.open_object),
                        builder_.repeat(Symbol::rule(member), 0, RegexSet::kUnbounded, separator),
                        Symbol::expression(layout_.close_object)});
  return any_object_;
}

}  // namespace troupe::grammar

#include "common/grammar/schema/enumerated.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/core/work_limit.h"
#include "common/grammar/schema/containers.h"
#include "common/grammar/schema/scalars.h"

namespace troupe::grammar {

namespace {

constexpr int kDepthMax = 32;

uint8_t type_of(const bj::value& value) {
  switch (value.kind()) {
    case bj::kind::null:
      return kNullBit;
    case bj::kind::bool_:
      return kBooleanBit;
    case bj::kind::string:
      return kStringBit;
    case bj::kind::array:
      return kArrayBit;
    case bj::kind::object:
      return kObjectBit;
    default:
      return decimal_of(value)->fraction.empty() ? kIntegerBit : kFractionBit;
  }
}

bool is_in(uint64_t count, const CountRange& range) {
  return count >= range.min && count <= range.max;
}

class Check {
 public:
  Check(SchemaContext& context, int depth) : context_(context), depth_(depth) {}

  StatusOr<bool> passes(const bj::value& value, const Constraints& constraints) {
    const uint8_t type = type_of(value);
    if ((constraints.types & type) == 0) return false;
    for (const bj::value* excluded : constraints.excluded)
      if (*excluded == value) return false;
    RegexSet& set = context_.expressions();
    if ((type & (kIntegerBit | kFractionBit)) != 0) {
      if (constraints.number.is_any()) return true;
      const auto decimal = *decimal_of(value);
      const std::string text = (decimal.is_negative ? "-" : "") + decimal.whole +
                               (decimal.fraction.empty() ? "" : "." + decimal.fraction);
      return expression_matches(set, number_expression(set, constraints.number, kIntegerBit | kFractionBit),
                                text);
    }
    if (type == kStringBit) {
      if (constraints.string.is_any()) return true;
      TROUPE_ASSIGN_OR_RETURN(const RegexId strings, string_expression(set, constraints.string));
      std::string literal;
      append_json_string(literal, {value.as_string().data(), value.as_string().size()});
      return expression_matches(set, strings, literal);
    }
    if (type == kArrayBit) return array_passes(value.as_array(), constraints);
    if (type == kObjectBit) return object_passes(value.as_object(), constraints);
    return true;
  }

 private:
  StatusOr<bool> array_passes(const bj::array& array, const Constraints& constraints) {
    if (!is_in(array.size(), constraints.items)) return false;
    for (size_t i = 0; i < array.size(); ++i) {
      TROUPE_ASSIGN_OR_RETURN(
          const bool passes, passes_schemas(context_, array[i], element_schemas(constraints, i), depth_ + 1));
      if (!passes) return false;
    }
    return true;
  }

  StatusOr<bool> object_passes(const bj::object& object, const Constraints& constraints) {
    if (!is_in(object.size(), constraints.properties)) return false;
    for (const std::string_view name : constraints.required)
      if (!object.contains({name.data(), name.size()})) return false;
    for (const auto& [key, member] : object) {
      const std::string_view name{key.data(), key.size()};
      TROUPE_ASSIGN_OR_RETURN(const SchemaSet schemas, member_schemas(context_, constraints, name));
      TROUPE_ASSIGN_OR_RETURN(bool passes, passes_schemas(context_, member, schemas, depth_ + 1));
      for (const bj::value* names : constraints.names) {
        SchemaSet set;
        set.add(names);
        TROUPE_ASSIGN_OR_RETURN(const bool has_name,
                                passes_schemas(context_, bj::value(bj::string(key)), set, depth_ + 1));
        passes = passes && has_name;
      }
      if (!passes) return false;
    }
    return true;
  }

  SchemaContext& context_;
  const int depth_;
};

}  // namespace

StatusOr<bool> passes_schemas(SchemaContext& context, const bj::value& value, const SchemaSet& schemas,
                              int depth) {
  TROUPE_RETURN_IF_ERROR(count_work(256));
  if (schemas.schemas.empty()) return true;
  if (depth > kDepthMax)
    return context.reader().error(schemas.schemas[0], "enum", "values are nested too deeply");
  TROUPE_ASSIGN_OR_RETURN(const Constraints constraints, context.reader().collect(schemas));
  if (constraints.values && std::none_of(constraints.values->begin(), constraints.values->end(),
                                         [&](const bj::value* known) { return *known == value; }))
    return false;
  for (const Constraints::Group& group : constraints.groups) {
    if (group.negated != nullptr) {
      SchemaSet set;
      set.add(group.negated);
      TROUPE_ASSIGN_OR_RETURN(const bool holds, passes_schemas(context, value, set, depth + 1));
      if (holds) return false;
      continue;
    }
    size_t count = 0;
    for (const bj::value* alternative : group.alternatives) {
      SchemaSet set;
      set.add(alternative);
      TROUPE_ASSIGN_OR_RETURN(const bool passes, passes_schemas(context, value, set, depth + 1));
      count += passes ? 1 : 0;
    }
    if (count == 0 || (group.is_exclusive && count > 1)) return false;
  }
  return Check(context, depth).passes(value, constraints);
}

StatusOr<bool> passes_constraints(SchemaContext& context, const bj::value& value,
                                  const Constraints& constraints) {
  return Check(context, 0).passes(value, constraints);
}

StatusOr<RegexId> strings_of(SchemaContext& context, const SchemaSet& schemas) {
  TROUPE_ASSIGN_OR_RETURN(const Constraints constraints, context.reader().collect(schemas));
  if ((constraints.types & kStringBit) == 0) return RegexSet::kNothing;
  if (!constraints.groups.empty())
    return invalid_argument(absl::StrCat("schema ", context.reader().path(schemas.schemas[0]),
                                         ": alternatives cannot be enforced here"));
  if (!constraints.values) return string_expression(context.expressions(), constraints.string);
  std::vector<RegexId> options;
  for (const bj::value* value : *constraints.values) {
    if (!value->is_string()) continue;
    TROUPE_ASSIGN_OR_RETURN(const bool passes, passes_constraints(context, *value, constraints));
    if (passes) options.push_back(context.layout().value(context.expressions(), *value));
  }
  return context.expressions().either(std::move(options));
}

}  // namespace troupe::grammar

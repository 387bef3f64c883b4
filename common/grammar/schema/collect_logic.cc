// Keywords that divide a schema into alternatives.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/grammar/schema/collect.h"
#include "common/grammar/schema/negate.h"

namespace troupe::grammar {

Status SchemaReader::read_alternatives(Collecting& into, const bj::value& value) {
  if (!value.is_array() || value.as_array().empty())
    return error(into.schema, into.keyword, "must be an array of schemas");
  if (into.is_chosen(&value)) return {};
  Constraints::Group group{.keyword = &value,
                           .is_exclusive = into.keyword == "oneOf" && value.as_array().size() > 1};
  for (const bj::value& item : value.as_array()) group.alternatives.push_back(&item);
  into.constraints.groups.push_back(std::move(group));
  return {};
}

Status SchemaReader::read_dependencies(Collecting& into, const bj::value& value) {
  if (!value.is_object()) return error(into.schema, into.keyword, "must be an object");
  for (const auto& [name, needs] : value.as_object())
    if (!into.is_chosen(&needs))
      into.constraints.groups.push_back({&needs, schemas_.dependency(name, &needs).schemas});
  return {};
}

Status SchemaReader::read_if(Collecting& into, const bj::value& value) {
  const bj::value *then = into.sibling("then"), *otherwise = into.sibling("else");
  if ((then != nullptr || otherwise != nullptr) && !into.is_chosen(&value))
    into.constraints.groups.push_back({&value, schemas_.conditional(&value, then, otherwise).schemas});
  return {};
}

static void exclude(Constraints& constraints, const bj::value& value) {
  constraints.excluded.push_back(&value);
  if (value.is_null()) constraints.types &= static_cast<uint8_t>(~kNullBit);
  if (value.is_string()) constraints.string.excluded.push_back(view(value.as_string()));
  if (const auto decimal = decimal_of(value)) constraints.number.excluded.push_back(*decimal);
  if (value.is_array() && value.as_array().empty()) constraints.items.at_least(1);
  if (value.is_object() && value.as_object().empty()) constraints.properties.at_least(1);
}

// `schema` has one of the keywords that negates_directly() is true of.
Status SchemaReader::negate_directly(Collecting& into, const bj::object& schema) {
  Constraints& constraints = into.constraints;
  if (const bj::value* names = schema.if_contains("type"); names != nullptr) {
    const int bits = type_bits(*names, schema.if_contains("nullable"));
    if (bits < 0) return error(into.schema, into.keyword, "unknown type");
    constraints.types &= static_cast<uint8_t>(~bits);
    // (1.0 is an integer, too.)
    if ((bits & kIntegerBit) != 0 && (bits & kFractionBit) == 0)
      constraints.number.not_multiples.push_back({false, "1", ""});
  } else if (const bj::value* value = schema.if_contains("const"); value != nullptr) {
    exclude(constraints, *value);
  } else if (const bj::value* values = schema.if_contains("enum"); values != nullptr) {
    if (!values->is_array()) return error(into.schema, into.keyword, "enum: must be an array");
    for (const bj::value& item : values->as_array()) exclude(constraints, item);
  } else if (const bj::value* pattern = schema.if_contains("pattern"); pattern != nullptr) {
    if (!pattern->is_string()) return error(into.schema, into.keyword, "pattern: must be a string");
    constraints.types &= kStringBit;
    constraints.string.not_patterns.push_back(view(pattern->as_string()));
  } else {
    TROUPE_ASSIGN_OR_RETURN(Decimal multiple, read_multiple(into, schema.at("multipleOf")));
    constraints.types &= kIntegerBit | kFractionBit;
    constraints.number.not_multiples.push_back(std::move(multiple));
  }
  return {};
}

Status SchemaReader::read_not(Collecting& into, const bj::value& value) {
  const bj::value* target = schemas_.target_of(&value);
  if (target == nullptr) return error(into.schema, into.keyword, "its $ref is not in this document");
  if (target->is_bool() && !target->as_bool()) return {};
  if (!target->is_object() && !target->is_bool())
    return error(into.schema, into.keyword, "must be an object or a boolean");
  if (target->is_object() && negates_directly(target->as_object()))
    return negate_directly(into, target->as_object());
  const auto negation = schemas_.negation_of(target, {});
  if (!negation.ok()) return error(into.schema, into.keyword, std::string(negation.status().message()));
  const auto& [keyword, alternatives] = **negation;
  if (into.is_chosen(keyword)) return {};
  if (alternatives.empty()) into.constraints.types = 0;
  if (!alternatives.empty())
    into.constraints.groups.push_back({.keyword = keyword, .alternatives = alternatives, .negated = target});
  return {};
}

}  // namespace troupe::grammar

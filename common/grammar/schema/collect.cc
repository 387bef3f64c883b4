#include "common/grammar/schema/collect.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/core/work_limit.h"

namespace troupe::grammar {

void SchemaSet::add(const bj::value* schema) {
  const auto place = std::lower_bound(schemas.begin(), schemas.end(), schema);
  if (place == schemas.end() || *place != schema) schemas.insert(place, schema);
}

bool is_any_schema(const bj::value* schema) {
  if (schema->is_bool()) return schema->as_bool();
  return schema->is_object() && schema->as_object().empty();
}

StatusOr<SchemaReader> SchemaReader::make(const bj::value& root) {
  TROUPE_ASSIGN_OR_RETURN(SchemaIndex index, SchemaIndex::make(root));
  SchemaReader reader;
  reader.schemas_ = MadeUpSchemas(std::move(index));
  return reader;
}

Status SchemaReader::error(const bj::value* schema, std::string_view keyword,
                           std::string_view message) const {
  return invalid_argument(
      absl::StrCat("schema ", schemas_.index().path(schema), "/", to_absl(keyword), ": ", to_absl(message)));
}

const std::vector<SchemaReader::Keyword>& SchemaReader::keywords() {
  using R = SchemaReader;
  static const std::vector<Keyword> all = {
      {"$ref", &R::read_ref},
      {"allOf", &R::read_all_of},
      {"anyOf", &R::read_alternatives},
      {"oneOf", &R::read_alternatives},
      {"type", &R::read_type},
      {"enum", &R::read_values},
      {"const", &R::read_values},
      {"minimum", &R::read_number},
      {"maximum", &R::read_number},
      {"exclusiveMinimum", &R::read_number},
      {"exclusiveMaximum", &R::read_number},
      {"multipleOf", &R::read_number},
      {"pattern", &R::read_string},
      {"format", &R::read_string},
      {"minLength", &R::read_count},
      {"maxLength", &R::read_count},
      {"minItems", &R::read_count},
      {"maxItems", &R::read_count},
      {"minProperties", &R::read_count},
      {"maxProperties", &R::read_count},
      {"prefixItems", &R::read_items},
      {"items", &R::read_items},
      {"properties", &R::read_members},
      {"patternProperties", &R::read_members},
      {"additionalProperties", &R::read_members},
      {"propertyNames", &R::read_members},
      {"required", &R::read_required},
      {"dependentRequired", &R::read_dependencies},
      {"dependentSchemas", &R::read_dependencies},
      {"dependencies", &R::read_dependencies},
      {"unevaluatedProperties", &R::read_unevaluated},
      {"unevaluatedItems", &R::refuse},
      {"not", &R::read_not},
      {"if", &R::read_if},
      {"contains", &R::refuse},
      {"uniqueItems", &R::refuse},
      {"$dynamicRef", &R::refuse},
      {"$recursiveRef", &R::refuse},
      {"extends", &R::refuse},
      {"disallow", &R::refuse},
      {"divisibleBy", &R::refuse},
  };
  return all;
}

StatusOr<Constraints> SchemaReader::collect(const SchemaSet& schemas) {
  Collecting into{schemas, {}, schemas.schemas, nullptr, {}};
  std::vector<const bj::value*> seen;
  for (size_t i = 0; i < into.queue.size(); ++i) {
    TROUPE_RETURN_IF_ERROR(count_work(256));
    const bj::value* schema = into.queue[i];
    if (std::find(seen.begin(), seen.end(), schema) != seen.end()) continue;
    seen.push_back(schema);
    if (seen.size() > 500) return error(schema, "allOf", "too many schemas have to hold together");
    TROUPE_RETURN_IF_ERROR(read_schema(schema, into));
  }
  return std::move(into.constraints);
}

Status SchemaReader::read_schema(const bj::value* schema, Collecting& into) {
  if (schema->is_bool()) {
    if (!schema->as_bool()) into.constraints.types = 0;
    return {};
  }
  if (!schema->is_object())
    return invalid_argument(
        absl::StrCat("schema ", schemas_.index().path(schema), ": a schema is an object or a boolean"));
  into.schema = schema;
  for (const auto& [name, read] : keywords()) {
    const bj::value* value = into.sibling(name);
    if (value == nullptr) continue;
    into.keyword = name;
    TROUPE_RETURN_IF_ERROR((this->*read)(into, *value));
  }
  return {};
}

Status SchemaReader::refuse(Collecting& into, const bj::value& value) {
  // They ask for nothing in these forms.
  if (into.keyword == "uniqueItems" && value.is_bool() && !value.as_bool()) return {};
  if (into.keyword == "unevaluatedItems" && is_any_schema(&value)) return {};
  if (into.keyword == "contains") {
    const bj::value* least = into.sibling("minContains");
    const bool needs_none = least != nullptr && least->is_int64() && least->as_int64() == 0;
    if (needs_none && into.sibling("maxContains") == nullptr) return {};
  }
  return error(into.schema, into.keyword, "this keyword cannot be enforced");
}

Status SchemaReader::read_ref(Collecting& into, const bj::value& value) {
  if (!value.is_string()) return error(into.schema, into.keyword, "must be a string");
  const bj::value* target = schemas_.index().resolve(into.schema, view(value.as_string()));
  if (target == nullptr)
    return error(into.schema, into.keyword,
                 absl::StrCat("'", to_absl(view(value.as_string())), "' is not in this document").c_str());
  into.queue.push_back(target);
  return {};
}

Status SchemaReader::read_all_of(Collecting& into, const bj::value& value) {
  if (!value.is_array()) return error(into.schema, into.keyword, "must be an array");
  for (const bj::value& item : value.as_array()) into.queue.push_back(&item);
  return {};
}

static int type_bit(std::string_view name) {
  if (name == "null") return kNullBit;
  if (name == "boolean") return kBooleanBit;
  if (name == "integer") return kIntegerBit;
  if (name == "number") return kIntegerBit | kFractionBit;
  if (name == "string") return kStringBit;
  if (name == "array") return kArrayBit;
  if (name == "object") return kObjectBit;
  return -1;
}

int type_bits(const bj::value& names, const bj::value* nullable) {
  int bits = 0;
  const auto add = [&](const bj::value& name) {
    const int more = name.is_string() ? type_bit(view(name.as_string())) : -1;
    bits = bits < 0 || more < 0 ? -1 : bits | more;
  };
  if (names.is_array()) {
    for (const bj::value& item : names.as_array()) add(item);
  } else {
    add(names);
  }
  if (bits >= 0 && nullable != nullptr && nullable->is_bool() && nullable->as_bool()) bits |= kNullBit;
  return bits;
}

Status SchemaReader::read_type(Collecting& into, const bj::value& value) {
  const int bits = type_bits(value, into.sibling("nullable"));
  if (bits < 0) return error(into.schema, into.keyword, "unknown type");
  into.constraints.types &= static_cast<uint8_t>(bits);
  return {};
}

Status SchemaReader::read_values(Collecting& into, const bj::value& value) {
  std::vector<const bj::value*> values;
  if (into.keyword == "const") {
    values.push_back(&value);
  } else {
    if (!value.is_array() || value.as_array().empty())
      return error(into.schema, into.keyword, "must be an array");
    for (const bj::value& item : value.as_array()) values.push_back(&item);
  }
  auto& known = into.constraints.values;
  if (known) {
    std::erase_if(*known, [&](const bj::value* old) {
      return std::none_of(values.begin(), values.end(),
                          [&](const bj::value* other) { return *old == *other; });
    });
  } else {
    known = std::move(values);
  }
  return {};
}

StatusOr<Decimal> SchemaReader::read_multiple(const Collecting& into, const bj::value& value) const {
  const auto decimal = decimal_of(value);
  if (!decimal) return error(into.schema, into.keyword, "must be a number");
  if (decimal->is_negative || decimal->is_zero())
    return error(into.schema, into.keyword, "must be greater than 0");
  if (decimal->whole.size() + decimal->fraction.size() > 9)
    return error(into.schema, into.keyword, "has too many digits");
  return *decimal;
}

Status SchemaReader::read_number(Collecting& into, const bj::value& value) {
  const bool is_exclusive = into.keyword.starts_with("exclusive");
  const bool is_upper = into.keyword.ends_with("aximum");
  NumberConstraints& number = into.constraints.number;
  if (is_exclusive && value.is_bool()) return {};  // draft 4, read with the bound itself
  if (into.keyword == "multipleOf") {
    TROUPE_ASSIGN_OR_RETURN(Decimal multiple, read_multiple(into, value));
    number.multiples.push_back(std::move(multiple));
    return {};
  }
  const auto decimal = decimal_of(value);
  if (!decimal) return error(into.schema, into.keyword, "must be a number");
  const bj::value* strict =
      is_exclusive ? nullptr : into.sibling(is_upper ? "exclusiveMaximum" : "exclusiveMinimum");
  const bool is_strict = strict != nullptr && strict->is_bool() && strict->as_bool();
  number.bounds.push_back({*decimal, is_upper, is_exclusive || is_strict});
  return {};
}

Status SchemaReader::read_string(Collecting& into, const bj::value& value) {
  if (!value.is_string()) return error(into.schema, into.keyword, "must be a string");
  StringConstraints& string = into.constraints.string;
  (into.keyword == "pattern" ? string.patterns : string.formats).push_back(view(value.as_string()));
  return {};
}

Status SchemaReader::read_count(Collecting& into, const bj::value& value) {
  const auto decimal = decimal_of(value);
  if (!decimal || decimal->is_negative || !decimal->fraction.empty() || decimal->whole.size() > 18)
    return error(into.schema, into.keyword, "must be a count");
  const uint64_t count = std::stoull(decimal->whole);
  CountRange& range = into.keyword.ends_with("Length")  ? into.constraints.string.length
                      : into.keyword.ends_with("Items") ? into.constraints.items
                                                        : into.constraints.properties;
  if (into.keyword.starts_with("min")) {
    range.at_least(count);
  } else {
    range.at_most(count);
  }
  return {};
}

Status SchemaReader::read_items(Collecting& into, const bj::value& value) {
  const bool has_prefix = into.sibling("prefixItems") != nullptr;
  if (into.keyword == "items" && has_prefix) return {};  // read with it
  ArrayPart part;
  const bj::value* rest = &value;
  if (value.is_array()) {  // prefixItems, or items as before 2020-12
    for (const bj::value& item : value.as_array()) part.prefix.push_back(&item);
    rest = into.sibling(into.keyword == "items" ? "additionalItems" : "items");
  } else if (into.keyword == "prefixItems") {
    return error(into.schema, into.keyword, "must be an array");
  }
  if (rest != nullptr && !is_any_schema(rest)) part.rest = rest;
  into.constraints.arrays.push_back(std::move(part));
  return {};
}

Status SchemaReader::read_members(Collecting& into, const bj::value& value) {
  if (into.keyword == "propertyNames") {
    if (!is_any_schema(&value)) into.constraints.names.push_back(&value);
    return {};
  }
  // All three make one part, which the first of them adds.
  const bj::value* properties = into.sibling("properties");
  const bj::value* patterns = into.sibling("patternProperties");
  const bj::value* additional = into.sibling("additionalProperties");
  if (&value != (properties != nullptr ? properties : patterns != nullptr ? patterns : additional)) return {};
  for (const auto& [name, map] :
       {std::pair("properties", properties), std::pair("patternProperties", patterns)})
    if (map != nullptr && !map->is_object()) return error(into.schema, name, "must be an object");
  ObjectPart part;
  if (properties != nullptr) part.properties = &properties->as_object();
  if (patterns != nullptr) part.patterns = &patterns->as_object();
  if (additional != nullptr && !is_any_schema(additional)) part.additional = additional;
  into.constraints.objects.push_back(part);
  return {};
}

Status SchemaReader::read_required(Collecting& into, const bj::value& value) {
  if (value.is_bool()) return {};  // draft 3's, at a property: an annotation since
  if (!value.is_array()) return error(into.schema, into.keyword, "must be an array of strings");
  auto& required = into.constraints.required;
  for (const bj::value& item : value.as_array()) {
    if (!item.is_string()) return error(into.schema, into.keyword, "must be an array of strings");
    const std::string_view name = view(item.as_string());
    if (std::find(required.begin(), required.end(), name) == required.end()) required.push_back(name);
  }
  return {};
}

// Beside nothing that may evaluate members elsewhere it means additionalProperties.
Status SchemaReader::read_unevaluated(Collecting& into, const bj::value& value) {
  if (is_any_schema(&value)) return {};
  for (const std::string_view other :
       {"$ref", "allOf", "anyOf", "oneOf", "if", "additionalProperties", "dependentSchemas"})
    if (into.sibling(other) != nullptr)
      return error(into.schema, into.keyword,
                   absl::StrCat("cannot be enforced beside ", to_absl(other)).c_str());
  ObjectPart part;
  if (const bj::value* properties = into.sibling("properties"); properties != nullptr)
    part.properties = properties->if_object();
  if (const bj::value* patterns = into.sibling("patternProperties"); patterns != nullptr)
    part.patterns = patterns->if_object();
  part.additional = &value;
  into.constraints.objects.push_back(part);
  return {};
}

}  // namespace troupe::grammar

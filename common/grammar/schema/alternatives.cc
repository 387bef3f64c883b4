#include "common/grammar/schema/alternatives.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/grammar/schema/disjoint.h"

namespace troupe::grammar {

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

StatusOr<std::vector<SchemaSet>> alternatives_of(SchemaContext& context, const SchemaSet& schemas,
                                                 const Constraints::Group& group) {
  std::vector<SchemaSet> excluded(group.alternatives.size());
  if (group.is_exclusive) {
    TROUPE_ASSIGN_OR_RETURN(excluded, others_excluded(context, schemas, group));
  }
  SchemaSet rest = schemas;
  rest.chosen.insert(std::lower_bound(rest.chosen.begin(), rest.chosen.end(), group.keyword), group.keyword);
  std::vector<SchemaSet> ways(group.alternatives.size(), rest);
  for (size_t i = 0; i < ways.size(); ++i) {
    ways[i].add(group.alternatives[i]);
    for (const bj::value* negation : excluded[i].schemas) ways[i].add(negation);
  }
  return ways;
}

// Arrays and objects are told from all others only where they are empty.
Status check_excluded(SchemaContext& context, const SchemaSet& schemas, const Constraints& constraints) {
  const auto is_refused = [&](const bj::value* value) {
    return (value->is_array() && (constraints.types & kArrayBit) != 0 && !value->as_array().empty()) ||
           (value->is_object() && (constraints.types & kObjectBit) != 0 && !value->as_object().empty());
  };
  if (std::any_of(constraints.excluded.begin(), constraints.excluded.end(), is_refused))
    return context.reader().error(schemas.schemas[0], "not", "one array or object cannot be excluded");
  return {};
}

}  // namespace troupe::grammar

#include "common/grammar/schema/disjoint.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/core/work_limit.h"
#include "common/grammar/regex/automaton.h"
#include "common/grammar/schema/containers.h"
#include "common/grammar/schema/enumerated.h"
#include "common/grammar/schema/scalars.h"

namespace troupe::grammar {

namespace {

constexpr int kDepthMax = 8;

class Disjointness {
 public:
  explicit Disjointness(SchemaContext& context) : context_(context) {}

  // False also where it cannot be decided.
  StatusOr<bool> sets(const SchemaSet& first, const SchemaSet& second, int depth) {
    TROUPE_RETURN_IF_ERROR(count_work(2048));
    if (depth > kDepthMax || first.schemas.empty() || second.schemas.empty()) return false;
    TROUPE_ASSIGN_OR_RETURN(const Constraints a, context_.reader().collect(first));
    TROUPE_ASSIGN_OR_RETURN(const Constraints b, context_.reader().collect(second));
    if ((a.types & b.types) == 0) return true;
    if (a.values) return values(*a.values, second, depth);
    if (b.values) return values(*b.values, first, depth);
    for (const auto& [constraints, set, other] :
         {std::tuple(&a, &first, &second), std::tuple(&b, &second, &first)})
      for (const Constraints::Group& group : constraints->groups)
        // (The alternatives of a negation are not all that breaks the schema.)
        if (group.negated == nullptr) return groups(group, *set, *other, depth);
    const int common = a.types & b.types;
    if ((common & (kNullBit | kBooleanBit)) != 0) return false;
    if ((common & (kIntegerBit | kFractionBit)) != 0 && !numbers(a, b)) return false;
    if ((common & kStringBit) != 0 && !strings(a, b)) return false;
    if ((common & kArrayBit) != 0) {
      TROUPE_ASSIGN_OR_RETURN(const bool apart, arrays(a, b, depth));
      if (!apart) return false;
    }
    if ((common & kObjectBit) != 0) return objects(a, b, depth);
    return true;
  }

 private:
  // No value of `given` passes `other`.
  StatusOr<bool> values(const std::vector<const bj::value*>& given, const SchemaSet& other, int depth) {
    for (const bj::value* value : given) {
      TROUPE_ASSIGN_OR_RETURN(const bool passes, passes_schemas(context_, *value, other, depth));
      if (passes) return false;
    }
    return true;
  }

  // Each alternative of `set` is apart from `other`.
  StatusOr<bool> groups(const Constraints::Group& group, const SchemaSet& set, const SchemaSet& other,
                        int depth) {
    for (const bj::value* alternative : group.alternatives) {
      SchemaSet chosen = set;
      chosen.chosen.insert(std::lower_bound(chosen.chosen.begin(), chosen.chosen.end(), group.keyword),
                           group.keyword);
      chosen.add(alternative);
      TROUPE_ASSIGN_OR_RETURN(const bool apart, sets(chosen, other, depth + 1));
      if (!apart) return false;
    }
    return true;
  }

  bool is_empty(RegexId first, RegexId second) {
    const RegexId both = context_.expressions().both({first, second});
    Automaton automaton(context_.expressions(), {.search_max = 2000});
    return automaton.start(both) == Automaton::kDead && !automaton.exhausted();
  }

  bool numbers(const Constraints& a, const Constraints& b) {
    RegexSet& set = context_.expressions();
    // (Both written without exponents, as bounded numbers are.)
    const NumberConstraints::Bound floor{{true, "999999999999999", ""}, false, false};
    NumberConstraints first = a.number, second = b.number;
    first.bounds.push_back(floor);
    second.bounds.push_back(floor);
    return is_empty(number_expression(set, first, a.types), number_expression(set, second, b.types));
  }

  bool strings(const Constraints& a, const Constraints& b) {
    RegexSet& set = context_.expressions();
    if (a.string.is_any() || b.string.is_any()) return false;
    const CountRange &p = a.string.length, &q = b.string.length;
    if (p.min > q.max || q.min > p.max) return true;
    StringConstraints first = a.string, second = b.string;
    // (In canonical spelling, which patterns are compared in.)
    first.patterns.push_back("");
    second.patterns.push_back("");
    const auto one = string_expression(set, first), other = string_expression(set, second);
    return one.ok() && other.ok() && is_empty(*one, *other);
  }

  StatusOr<bool> arrays(const Constraints& a, const Constraints& b, int depth) {
    if (a.items.min > b.items.max || b.items.min > a.items.max) return true;
    const uint64_t common = std::min<uint64_t>(std::max(a.items.min, b.items.min), 8);
    for (uint64_t i = 0; i < common; ++i) {
      TROUPE_ASSIGN_OR_RETURN(const bool apart,
                              sets(element_schemas(a, i), element_schemas(b, i), depth + 1));
      if (apart) return true;
    }
    return false;
  }

  // A member that one requires is forbidden by the other, or of disjoint values in both.
  StatusOr<bool> objects(const Constraints& a, const Constraints& b, int depth) {
    if (a.properties.min > b.properties.max || b.properties.min > a.properties.max) return true;
    std::vector<std::string_view> names = a.required;
    names.insert(names.end(), b.required.begin(), b.required.end());
    for (const std::string_view name : names) {
      TROUPE_ASSIGN_OR_RETURN(const SchemaSet first, member_schemas(context_, a, name));
      TROUPE_ASSIGN_OR_RETURN(const SchemaSet second, member_schemas(context_, b, name));
      if (has_false(first) || has_false(second)) return true;
      const auto requires_it = [&](const Constraints& c) {
        return std::find(c.required.begin(), c.required.end(), name) != c.required.end();
      };
      if (!requires_it(a) || !requires_it(b)) continue;
      TROUPE_ASSIGN_OR_RETURN(const bool apart, sets(first, second, depth + 1));
      if (apart) return true;
    }
    return false;
  }

  SchemaContext& context_;
};

}  // namespace

StatusOr<std::vector<std::pair<size_t, size_t>>> overlaps_of(SchemaContext& context, const SchemaSet& schemas,
                                                             const Constraints::Group& group) {
  Disjointness disjointness(context);
  std::vector<std::pair<size_t, size_t>> overlaps;
  SchemaSet rest = schemas;  // what holds beside the group holds for each alternative
  rest.chosen.insert(std::lower_bound(rest.chosen.begin(), rest.chosen.end(), group.keyword), group.keyword);
  for (size_t i = 0; i < group.alternatives.size(); ++i) {
    for (size_t j = i + 1; j < group.alternatives.size(); ++j) {
      SchemaSet first = rest, second = rest;
      first.add(group.alternatives[i]);
      second.add(group.alternatives[j]);
      TROUPE_ASSIGN_OR_RETURN(const bool apart, disjointness.sets(first, second, 0));
      if (!apart) overlaps.emplace_back(i, j);
    }
  }
  return overlaps;
}

}  // namespace troupe::grammar

#include <algorithm>
#include <array>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/core/work_limit.h"
#include "common/grammar/regex/json_lexemes.h"
#include "common/grammar/regex/parse_regex.h"
#include "common/grammar/schema/containers.h"
#include "common/grammar/schema/enumerated.h"
#include "common/grammar/schema/scalars.h"

namespace troupe::grammar {

namespace {

constexpr size_t kPatternsMax = 6;
constexpr size_t kMembersMax = 3000;
// A separator and the name behind it are one terminal, unless so many names may follow that white space
// before each of them would be a state of its own.
constexpr size_t kOwnSeparatorsMax = 16;

std::string quoted(std::string_view name) {
  std::string literal;
  append_json_string(literal, name);
  return literal;
}

// A pattern of patternProperties, for names with their quotes.
StatusOr<RegexId> pattern_expression(SchemaContext& context, std::string_view pattern) {
  RegexSet& set = context.expressions();
  const auto id = parse_regex(set, pattern, {.encoding = Encoding::kJsonString, .searches = true});
  if (!id.ok())
    return annotate(id.status(), absl::StrCat("patternProperties '", to_absl(pattern), "'").c_str());
  const RegexId quote = set.literal("\"");
  return set.concat(std::array{quote, *id, quote});
}

std::string_view view(bj::string_view text) {
  return {text.data(), text.size()};
}

struct Pattern {
  const ObjectPart* part;
  const bj::value* schema;
  RegexId names;
};

StatusOr<std::vector<Pattern>> patterns_of(SchemaContext& context, const Constraints& constraints) {
  std::vector<Pattern> patterns;
  for (const ObjectPart& part : constraints.objects) {
    if (part.patterns == nullptr) continue;
    for (const auto& [pattern, schema] : *part.patterns) {
      TROUPE_ASSIGN_OR_RETURN(const RegexId names, pattern_expression(context, view(pattern)));
      patterns.push_back({&part, &schema, names});
    }
  }
  return patterns;
}

// Schemas of a member by which patterns match its name; `declared` says which parts name it themselves.
SchemaSet schemas_of(const Constraints& constraints, const std::vector<Pattern>& patterns,
                     const std::vector<bool>& matching, std::string_view name, bool has_name) {
  SchemaSet schemas;
  for (const ObjectPart& part : constraints.objects) {
    const bj::value* own = has_name && part.properties != nullptr
                               ? part.properties->if_contains({name.data(), name.size()})
                               : nullptr;
    bool is_named = own != nullptr;
    if (own != nullptr) schemas.add(own);
    for (size_t i = 0; i < patterns.size(); ++i) {
      if (patterns[i].part != &part || !matching[i]) continue;
      schemas.add(patterns[i].schema);
      is_named = true;
    }
    if (!is_named && part.additional != nullptr) schemas.add(part.additional);
  }
  return schemas;
}

// Members as JSON has them: others by which of the patterns match their names.
class JsonMembers : public MemberForm {
 public:
  static StatusOr<JsonMembers> make(SchemaContext& context, const SchemaSet& schemas,
                                    const Constraints& constraints);

  StatusOr<RegexId> name(std::string_view name) override;
  StatusOr<Symbol> value(std::string_view, const SchemaSet& schemas) override {
    return context_->rule_of(schemas);
  }
  StatusOr<std::vector<Symbol>> others(const std::vector<std::string_view>& declared) override;

 private:
  JsonMembers(SchemaContext& context, const SchemaSet& schemas, const Constraints& constraints)
      : context_(&context), schemas_(&schemas), constraints_(&constraints) {}

  SchemaContext* context_;
  const SchemaSet* schemas_;
  const Constraints* constraints_;
  RegexId allowed_names_ = RegexSet::kNothing;  // with quotes: propertyNames
};

StatusOr<JsonMembers> JsonMembers::make(SchemaContext& context, const SchemaSet& schemas,
                                        const Constraints& constraints) {
  JsonMembers members(context, schemas, constraints);
  members.open = context.layout().open_object;
  members.close = context.layout().close_object;
  members.separator = context.layout().item_separator;
  std::vector<RegexId> conditions = {json_lexemes().name};
  for (const bj::value* names : constraints.names) {
    SchemaSet set;
    set.add(names);
    auto strings = strings_of(context, set);
    if (!strings.ok()) return annotate(strings.status(), "propertyNames");
    conditions.push_back(*strings);
  }
  members.allowed_names_ = context.expressions().both(std::move(conditions));
  return members;
}

StatusOr<RegexId> JsonMembers::name(std::string_view name) {
  RegexSet& set = context_->expressions();
  const bool is_allowed =
      constraints_->names.empty() || expression_matches(set, allowed_names_, quoted(name));
  if (!is_allowed) return RegexSet::kNothing;
  return set.concat(context_->layout().text(set, name), context_->layout().key_separator);
}

StatusOr<std::vector<Symbol>> JsonMembers::others(const std::vector<std::string_view>& names) {
  RegexSet& set = context_->expressions();
  TROUPE_ASSIGN_OR_RETURN(const std::vector<Pattern> patterns, patterns_of(*context_, *constraints_));
  if (patterns.size() > kPatternsMax)
    return context_->reader().error(schemas_->schemas[0], "patternProperties", "too many");
  std::vector<RegexId> declared;
  for (const std::string_view name : names) declared.push_back(set.literal(quoted(name)));
  const RegexId allowed = context_->layout().strings(set, allowed_names_);
  const RegexId free = declared.empty() ? allowed : set.both({allowed, set.complement(set.either(declared))});
  std::vector<Symbol> others;
  for (uint32_t subset = 0; subset < 1u << patterns.size(); ++subset) {
    std::vector<RegexId> conditions = {free};
    std::vector<bool> matching;
    for (size_t i = 0; i < patterns.size(); ++i) {
      matching.push_back((subset >> i & 1) != 0);
      conditions.push_back(matching.back() ? patterns[i].names : set.complement(patterns[i].names));
    }
    const SchemaSet schemas = schemas_of(*constraints_, patterns, matching, {}, false);
    if (has_false(schemas)) continue;
    const RuleId other = context_->builder().add_rule();
    context_->builder().add(
        other, {Symbol::expression(set.both(std::move(conditions))),
                Symbol::expression(context_->layout().key_separator), context_->rule_of(schemas)});
    others.push_back(Symbol::rule(other));
  }
  return others;
}

class ObjectBuilder {
 public:
  ObjectBuilder(SchemaContext& context, const SchemaSet& schemas, const Constraints& constraints,
                MemberForm& form)
      : context_(context),
        builder_(context.builder()),
        schemas_(schemas),
        constraints_(constraints),
        form_(form) {}

  StatusOr<Symbol> build();

 private:
  struct Member {
    RegexId key;  // with what follows it up to the value
    Symbol value;
    bool is_required;
  };

  Status read_members();
  Symbol members_from(size_t index, uint64_t count);
  Symbol tail(uint64_t count);
  bool is_required(std::string_view name) const {
    return std::find(constraints_.required.begin(), constraints_.required.end(), name) !=
           constraints_.required.end();
  }

  SchemaContext& context_;
  RuleBuilder& builder_;
  const SchemaSet& schemas_;
  const Constraints& constraints_;
  MemberForm& form_;
  std::vector<Member> members_;
  bool has_others_ = false;
  Symbol other_{};
  uint64_t count_cap_ = 1;  // counts of members from here on are alike
  absl::flat_hash_map<std::pair<size_t, uint64_t>, RuleId> rules_;
  std::vector<std::pair<size_t, uint64_t>> pending_;
};

// The declared members: of all parts' properties, in order, and the required ones that none declares.
Status ObjectBuilder::read_members() {
  std::vector<std::string_view> names;
  absl::flat_hash_set<std::string_view> seen;
  for (const ObjectPart& part : constraints_.objects) {
    if (part.properties == nullptr) continue;
    for (const auto& [name, schema] : *part.properties)
      if (seen.insert(view(name)).second) names.push_back(view(name));
  }
  for (const std::string_view name : constraints_.required)
    if (seen.insert(name).second) names.push_back(name);
  if (names.size() > kMembersMax)
    return context_.reader().error(schemas_.schemas[0], "properties", "too many");
  for (const std::string_view name : names) {
    TROUPE_RETURN_IF_ERROR(count_work(256 + name.size()));
    TROUPE_ASSIGN_OR_RETURN(const SchemaSet schemas, member_schemas(context_, constraints_, name));
    TROUPE_ASSIGN_OR_RETURN(const RegexId key, form_.name(name));
    TROUPE_ASSIGN_OR_RETURN(const Symbol value, form_.value(name, schemas));
    members_.push_back({key, value, is_required(name)});
  }
  TROUPE_ASSIGN_OR_RETURN(const std::vector<Symbol> others, form_.others(names));
  has_others_ = !others.empty();
  if (has_others_) other_ = builder_.either(others);
  return {};
}

// Any more members once the declared ones are through and `count` are written.
Symbol ObjectBuilder::tail(uint64_t count) {
  const CountRange& range = constraints_.properties;
  const auto min = static_cast<uint32_t>(range.min > count ? range.min - count : 0);
  const uint32_t max = range.max == kNoMax ? RegexSet::kUnbounded : static_cast<uint32_t>(range.max - count);
  const Symbol none = Symbol::expression(min == 0 ? RegexSet::kEmpty : RegexSet::kNothing);
  if (!has_others_ || max == 0) return none;
  const Symbol separator = Symbol::expression(form_.separator);
  if (count == 0) return builder_.repeat(other_, min, max, separator);
  return builder_.repeat(builder_.sequence({separator, other_}), min, max);
}

// The rule of the declared members from `index` on, `count` being written before them.
Symbol ObjectBuilder::members_from(size_t index, uint64_t count) {
  if (count > constraints_.properties.max) return Symbol::expression(RegexSet::kNothing);
  count = std::min(count, count_cap_);
  const auto [found, is_new] = rules_.emplace(std::pair(index, count), 0);
  if (is_new) {
    found->second = builder_.add_rule();
    pending_.emplace_back(index, count);
  }
  return Symbol::rule(found->second);
}

StatusOr<Symbol> ObjectBuilder::build() {
  TROUPE_RETURN_IF_ERROR(read_members());
  const CountRange& range = constraints_.properties;
  const uint64_t bound = range.max == kNoMax ? range.min : range.max;
  if (bound > kMembersMax || range.min > kMembersMax)
    return context_.reader().error(schemas_.schemas[0],
                                   range.max == kNoMax ? "minProperties" : "maxProperties", "too large");
  if (range.min > range.max) return Symbol::expression(RegexSet::kNothing);
  // A name that is not declared may come twice and counts once, so a grammar can ask for one such member.
  const auto required = static_cast<uint64_t>(
      std::count_if(members_.begin(), members_.end(), [](const Member& one) { return one.is_required; }));
  if (has_others_ && range.min > required + 1) {
    return context_.reader().error(
        schemas_.schemas[0], "minProperties",
        absl::StrCat("cannot be enforced past ", required + 1,
                     " where other members may come, of which two may have one name; close the object "
                     "(additionalProperties false)"));
  }
  count_cap_ = std::max<uint64_t>(bound, 1);
  const Symbol separator = Symbol::expression(form_.separator);
  const Symbol first = members_from(0, 0);
  while (!pending_.empty()) {
    TROUPE_RETURN_IF_ERROR(count_work(256));
    if (!builder_.fits()) return invalid_argument("the schema is too large");
    const auto [index, count] = pending_.back();
    pending_.pop_back();
    const RuleId rule = rules_[{index, count}];
    if (index == members_.size()) {
      builder_.add(rule, {tail(count)});
      continue;
    }
    const Member& member = members_[index];
    const bool is_behind_shared = count != 0 && members_.size() > kOwnSeparatorsMax;
    const RegexId key =
        count == 0 || is_behind_shared ? member.key : context_.expressions().concat(separator.id, member.key);
    std::vector<Symbol> symbols = {Symbol::expression(key), member.value, members_from(index + 1, count + 1)};
    if (is_behind_shared) symbols.insert(symbols.begin(), separator);
    builder_.add(rule, std::move(symbols));
    if (!member.is_required) builder_.add(rule, {members_from(index + 1, count)});
  }
  const RuleId object = builder_.add_rule();
  builder_.add(object, {Symbol::expression(form_.open), first, Symbol::expression(form_.close)});
  return Symbol::rule(object);
}

}  // namespace

StatusOr<SchemaSet> member_schemas(SchemaContext& context, const Constraints& constraints,
                                   std::string_view name) {
  TROUPE_ASSIGN_OR_RETURN(const std::vector<Pattern> patterns, patterns_of(context, constraints));
  std::vector<bool> matching;
  const std::string literal = quoted(name);
  for (const Pattern& pattern : patterns)
    matching.push_back(expression_matches(context.expressions(), pattern.names, literal));
  return schemas_of(constraints, patterns, matching, name, true);
}

SchemaSet additional_schemas(const Constraints& constraints) {
  return schemas_of(constraints, {}, {}, {}, false);
}

bool has_false(const SchemaSet& schemas) {
  return std::any_of(schemas.schemas.begin(), schemas.schemas.end(),
                     [](const bj::value* schema) { return schema->is_bool() && !schema->as_bool(); });
}

StatusOr<Symbol> members_symbol(SchemaContext& context, const SchemaSet& schemas,
                                const Constraints& constraints, MemberForm& form) {
  return ObjectBuilder(context, schemas, constraints, form).build();
}

StatusOr<Symbol> object_symbol(SchemaContext& context, const SchemaSet& schemas,
                               const Constraints& constraints) {
  TROUPE_ASSIGN_OR_RETURN(JsonMembers form, JsonMembers::make(context, schemas, constraints));
  return members_symbol(context, schemas, constraints, form);
}

}  // namespace troupe::grammar

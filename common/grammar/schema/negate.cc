#include "common/grammar/schema/negate.h"

#include <algorithm>
#include <array>
#include <optional>

#include "absl/strings/str_cat.h"

namespace troupe::grammar {

namespace {

constexpr size_t kPairsMax = 4;  // alternatives of a oneOf of which two may hold

constexpr std::array<std::string_view, 5> kDirect = {"type", "const", "enum", "pattern", "multipleOf"};
// Some part of a value breaks them, or they are enforced more narrowly than they are defined.
constexpr std::array<std::string_view, 8> kClosed = {
    "format",        "items",       "prefixItems", "additionalItems", "patternProperties",
    "propertyNames", "uniqueItems", "contains"};
// They hang on what other keywords saw: without them little of the negation would be left.
constexpr std::array<std::string_view, 4> kRefused = {"unevaluatedProperties", "unevaluatedItems",
                                                      "$dynamicRef", "$recursiveRef"};

bool is_one_of(std::string_view key, const auto& keys) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

bj::object of_type(std::string_view type) {
  bj::object schema;
  schema["type"] = bj::string(type);
  return schema;
}

class Negation {
 public:
  Negation(const bj::object& schema, const ReferTo& refer, const std::vector<std::string_view>& names)
      : schema_(schema), refer_(refer), names_(names) {}

  StatusOr<std::vector<bj::value>> alternatives() {
    for (const auto& [key, value] : schema_) {
      const std::string_view keyword{key.data(), key.size()};
      if (is_one_of(keyword, kRefused)) return refused(keyword);
      if (is_one_of(keyword, kClosed)) {
        closed_ = keyword;
      } else if (is_one_of(keyword, kDirect)) {
        add_direct(keyword, value);
      } else {
        add_bound(keyword, value);
        add_members(keyword, value);
        add_logic(keyword, value);
      }
    }
    if (found_.empty() && !closed_.empty()) return refused(closed_);
    return std::move(found_);
  }

 private:
  static Status refused(std::string_view keyword) {
    return invalid_argument(absl::StrCat("what breaks '", to_absl(keyword), "' cannot be enforced"));
  }
  void add(bj::object schema) { found_.emplace_back(std::move(schema)); }
  const bj::value* sibling(std::string_view key) const {
    return schema_.if_contains({key.data(), key.size()});
  }
  bj::object reference(const bj::value& schema) const { return {{"$ref", refer_(schema)}}; }
  bj::object negated(const bj::value& schema) const { return {{"not", reference(schema)}}; }

  void add_direct(std::string_view keyword, const bj::value& value) {
    bj::object inner;
    inner[keyword] = value;
    if (const bj::value* nullable = sibling("nullable"); keyword == "type" && nullable != nullptr)
      inner["nullable"] = *nullable;
    add({{"not", std::move(inner)}});
  }

  // Numbers past a bound; strings, arrays and objects of another size.
  void add_bound(std::string_view keyword, const bj::value& value) {
    const bool is_upper = keyword.starts_with("max") || keyword == "exclusiveMaximum";
    if (keyword == "minimum" || keyword == "maximum") {
      const bj::value* strict = sibling(is_upper ? "exclusiveMaximum" : "exclusiveMinimum");
      const bool is_strict = strict != nullptr && strict->is_bool() && strict->as_bool();  // draft 4
      bj::object past = of_type("number");
      past[is_upper ? (is_strict ? "minimum" : "exclusiveMinimum")
                    : (is_strict ? "maximum" : "exclusiveMaximum")] = value;
      add(std::move(past));
    }
    if ((keyword == "exclusiveMinimum" || keyword == "exclusiveMaximum") && !value.is_bool()) {
      bj::object past = of_type("number");
      past[is_upper ? "minimum" : "maximum"] = value;
      add(std::move(past));
    }
    for (const auto& [ending, type] :
         {std::pair("Length", "string"), {"Items", "array"}, {"Properties", "object"}}) {
      if (keyword != absl::StrCat("min", ending) && keyword != absl::StrCat("max", ending)) continue;
      boost::system::error_code failed;
      const auto count = value.to_number<int64_t>(failed);
      if (failed || count < 0 || (!is_upper && count == 0)) continue;
      bj::object past = of_type(type);
      past[absl::StrCat(is_upper ? "min" : "max", ending)] = is_upper ? count + 1 : count - 1;
      add(std::move(past));
    }
  }

  void add_absent(const bj::value& name) {
    if (!name.is_string()) return;
    bj::object without = of_type("object");
    without["properties"] = bj::object{{name.as_string(), false}};
    add(std::move(without));
  }

  bj::object having(bj::string_view name) const {
    bj::object with = of_type("object");
    with["required"] = bj::array{bj::string(name)};
    return with;
  }

  void add_members(std::string_view keyword, const bj::value& value) {
    if (keyword == "required" && value.is_array())
      for (const bj::value& name : value.as_array()) add_absent(name);
    if (keyword == "properties" && value.is_object()) {
      for (const auto& [name, member] : value.as_object()) {
        if (member == true || member == bj::object()) continue;
        bj::object broken = having(name);
        broken["properties"] = bj::object{{name, negated(member)}};
        add(std::move(broken));
      }
    }
    if (keyword == "additionalProperties" && value.is_bool() && !value.as_bool()) {
      closed_ = keyword;
      const bj::value* own = sibling("properties");
      if (sibling("patternProperties") != nullptr) return;
      for (const std::string_view name : names_)
        if (own == nullptr || !own->is_object() || !own->as_object().contains({name.data(), name.size()}))
          add(having({name.data(), name.size()}));
    } else if (keyword == "additionalProperties" && value.is_object()) {
      closed_ = keyword;
    }
    if (keyword.starts_with("dependen") && value.is_object())
      for (const auto& [name, needs] : value.as_object()) add_dependency(name, needs);
  }

  // The member is there, and what it asks for does not hold.
  void add_dependency(bj::string_view name, const bj::value& needs) {
    if (!needs.is_array()) {
      bj::object broken = having(name);
      broken["allOf"] = bj::array{negated(needs)};
      return add(std::move(broken));
    }
    for (const bj::value& needed : needs.as_array()) {
      if (!needed.is_string()) continue;
      bj::object broken = having(name);
      broken["properties"] = bj::object{{needed.as_string(), false}};
      add(std::move(broken));
    }
  }

  void add_all(bj::array schemas) { add({{"allOf", std::move(schemas)}}); }

  void add_logic(std::string_view keyword, const bj::value& value) {
    if (keyword == "$ref") add(negated_target(value));
    if (keyword == "not") add(reference(value));
    if (keyword == "if") {
      const bj::value *then = sibling("then"), *otherwise = sibling("else");
      if (then != nullptr) add_all({reference(value), negated(*then)});
      if (otherwise != nullptr) add_all({negated(value), negated(*otherwise)});
    }
    if (!value.is_array()) return;
    const bj::array& items = value.as_array();
    if (keyword == "allOf")
      for (const bj::value& item : items) add(negated(item));
    if (keyword != "anyOf" && keyword != "oneOf") return;
    bj::array none;
    for (const bj::value& item : items) none.push_back(negated(item));
    add_all(std::move(none));
    for (size_t i = 0; keyword == "oneOf" && items.size() <= kPairsMax && i < items.size(); ++i)
      for (size_t j = 0; j < i; ++j) add_all({reference(items[i]), reference(items[j])});
  }

  // (The value of $ref stands for what it leads to: the caller resolves it where it lies.)
  bj::object negated_target(const bj::value& ref) const {
    return {{"not", bj::object{{"$ref", refer_(ref)}}}};
  }

  const bj::object& schema_;
  const ReferTo& refer_;
  const std::vector<std::string_view>& names_;
  std::vector<bj::value> found_;
  std::string_view closed_;  // a keyword without alternative
};

}  // namespace

StatusOr<std::vector<bj::value>> alternatives_of_not(const bj::object& schema, const ReferTo& refer,
                                                     const std::vector<std::string_view>& names) {
  return Negation(schema, refer, names).alternatives();
}

bool negates_directly(const bj::object& schema) {
  const auto is_direct = [](const auto& member) {
    return is_one_of(std::string_view{member.key().data(), member.key().size()}, kDirect);
  };
  const bool has_nullable = schema.contains("nullable") && schema.contains("type");
  return schema.size() == (has_nullable ? 2u : 1u) && std::any_of(schema.begin(), schema.end(), is_direct);
}

}  // namespace troupe::grammar

#include "common/grammar/schema/arguments.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "common/core/work_limit.h"
#include "common/grammar/regex/encode.h"
#include "common/grammar/schema/alternatives.h"
#include "common/grammar/schema/containers.h"
#include "common/grammar/schema/enumerated.h"
#include "common/grammar/schema/scalars.h"

namespace troupe::grammar {

namespace {

constexpr int kAlternativesMax = 1000;  // of groups within one another, spelled out
constexpr uint32_t kOtherNameMax = 64;  // bytes of a name that no property declares

class ArgumentForm : public MemberForm {
 public:
  ArgumentForm(SchemaContext& context, const Constraints& constraints, const JsonOptions& options,
               const ArgumentLayout& layout, const bj::value* schema);

  StatusOr<RegexId> name(std::string_view name) override;
  StatusOr<Symbol> value(std::string_view name, const SchemaSet& schemas) override;
  StatusOr<std::vector<Symbol>> others(const std::vector<std::string_view>& declared) override;

 private:
  bool can_stand(std::string_view name) const;
  StatusOr<Symbol> value_of(const SchemaSet& schemas, bool is_read_as_json, std::string_view name);
  // Bare texts that pass.
  StatusOr<RegexId> texts(const SchemaSet& schemas);
  StatusOr<RegexId> text_values(const Constraints& constraints);
  RegexId barred(RegexId texts) const {
    return barred_ == RegexSet::kNothing ? texts : set_.both({texts, set_.complement(barred_)});
  }
  // A name with all that stands around it, up to the value.
  RegexId framed(RegexId name) {
    const bool has_place = !layout_.name_ends.empty() && !layout_.value_opens.empty();
    return set_.concat(std::array{set_.literal(layout_.name_opens), name, set_.literal(layout_.name_ends),
                                  has_place ? breaks_ : RegexSet::kEmpty, set_.literal(layout_.value_opens)});
  }

  SchemaContext& context_;
  RegexSet& set_;
  const Constraints& constraints_;
  const ArgumentLayout& layout_;
  const bj::value* schema_;
  RegexId barred_, taken_for_json_ = RegexSet::kNothing, breaks_ = RegexSet::kEmpty;
  int alternatives_ = 0;
};

// Texts that a reader of JSON may take for something else than a text: by their first character, or whole
// words.
RegexId taken_for_json(RegexSet& set) {
  ByteSet spaces, first = ByteSet::range('0', '9');
  for (const char c : std::string_view(" \t\r\n")) spaces.add(static_cast<uint8_t>(c));
  for (const char c : std::string_view("-\"[{")) first.add(static_cast<uint8_t>(c));
  const RegexId space = set.repeat(set.bytes(spaces), 0, RegexSet::kUnbounded);
  const RegexId any = set.repeat(set.byte_range(0, 255), 0, RegexSet::kUnbounded);
  std::vector<RegexId> words;
  for (const char* word : {"null", "true", "false", "None", "True", "False"})
    words.push_back(set.literal(word));
  const RegexId word = set.concat(set.either(std::move(words)), space);
  return set.concat(space, set.either({set.concat(set.bytes(first), any), word}));
}

ArgumentForm::ArgumentForm(SchemaContext& context, const Constraints& constraints, const JsonOptions& options,
                           const ArgumentLayout& layout, const bj::value* schema)
    : context_(context),
      set_(context.expressions()),
      constraints_(constraints),
      layout_(layout),
      schema_(schema),
      barred_(containing(set_, options.barred)) {
  if (layout_.has_text) taken_for_json_ = taken_for_json(set_);
  open = close = separator = RegexSet::kEmpty;
  if (layout_.separator.empty()) {
    open = breaks_ = set_.repeat(set_.literal("\n"), 0, 2);
  } else {
    separator = set_.concat(set_.literal(layout_.separator), set_.optional(set_.literal(" ")));
  }
}

// Between tags nothing of a tag's may be in a name; elsewhere it is a word.
bool ArgumentForm::can_stand(std::string_view name) const {
  if (name.empty() || name.size() > 4096) return false;
  if (layout_.has_text && (name.front() == ' ' || name.back() == ' ')) return false;
  return std::all_of(name.begin(), name.end(), [this](char c) {
    const bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                         c == '_' || c == '-' || c == '.' || static_cast<uint8_t>(c) >= 0x80;
    return is_word || (layout_.has_text && c >= ' ' && c != '<' && c != '>');
  });
}

StatusOr<RegexId> ArgumentForm::name(std::string_view name) {
  if (!can_stand(name))
    return context_.reader().error(
        schema_, "properties",
        absl::StrCat("the name \"", to_absl(name), "\" cannot stand in this model's calls"));
  return framed(set_.literal(name));
}

StatusOr<RegexId> ArgumentForm::text_values(const Constraints& constraints) {
  std::vector<RegexId> options;
  for (const bj::value* value : *constraints.values) {
    if (!value->is_string()) continue;
    TROUPE_ASSIGN_OR_RETURN(const bool passes, passes_constraints(context_, *value, constraints));
    const bj::string& text = value->as_string();
    if (passes) options.push_back(set_.literal({text.data(), text.size()}));
  }
  return set_.either(std::move(options));
}

StatusOr<RegexId> ArgumentForm::texts(const SchemaSet& schemas) {
  TROUPE_RETURN_IF_ERROR(count_work(1024));
  if (schemas.schemas.empty()) return text_expression(set_, {});
  TROUPE_ASSIGN_OR_RETURN(const Constraints constraints, context_.reader().collect(schemas));
  if ((constraints.types & kStringBit) == 0) return RegexSet::kNothing;
  if (constraints.groups.empty()) {
    if (constraints.values) return text_values(constraints);
    const auto texts = text_expression(set_, constraints.string);
    if (texts.ok()) return texts;
    return annotate(texts.status(),
                    absl::StrCat("schema ", context_.reader().path(schemas.schemas[0])).c_str());
  }
  TROUPE_ASSIGN_OR_RETURN(const std::vector<SchemaSet> ways,
                          alternatives_of(context_, schemas, constraints.groups[0]));
  std::vector<RegexId> options;
  for (const SchemaSet& way : ways) {
    if (++alternatives_ > kAlternativesMax)
      return context_.reader().error(schemas.schemas[0], "anyOf", "too many alternatives of a text");
    TROUPE_ASSIGN_OR_RETURN(const RegexId option, texts(way));
    options.push_back(option);
  }
  return set_.either(std::move(options));
}

StatusOr<Symbol> ArgumentForm::value_of(const SchemaSet& schemas, bool is_read_as_json,
                                        std::string_view name) {
  std::vector<Symbol> values;
  if (layout_.has_text) {
    TROUPE_ASSIGN_OR_RETURN(RegexId bare, texts(schemas));
    bare = barred(bare);
    if (is_read_as_json) {
      bare = set_.both({bare, set_.complement(taken_for_json_)});
    } else if (bare == RegexSet::kNothing && !has_false(schemas)) {
      return context_.reader().error(
          schema_, "properties",
          absl::StrCat("the values of \"", to_absl(name), "\" are read as text and none passes"));
    }
    values.push_back(Symbol::expression(bare));
  }
  if (!layout_.has_text || is_read_as_json) values.push_back(context_.rule_of(schemas));
  const RegexId end = set_.concat(set_.literal(layout_.value_ends), breaks_);
  return context_.builder().sequence({context_.builder().either(values), Symbol::expression(end)});
}

StatusOr<Symbol> ArgumentForm::value(std::string_view name, const SchemaSet& schemas) {
  const auto& names = layout_.read_as_json;
  return value_of(schemas, std::binary_search(names.begin(), names.end(), name), name);
}

StatusOr<std::vector<Symbol>> ArgumentForm::others(const std::vector<std::string_view>& declared) {
  for (const ObjectPart& part : constraints_.objects) {
    if (part.patterns != nullptr && !part.patterns->empty())
      return context_.reader().error(schema_, "patternProperties",
                                     "cannot be enforced for arguments in this model's form of calls");
  }
  if (!constraints_.names.empty())
    return context_.reader().error(schema_, "propertyNames",
                                   "cannot be enforced for arguments in this model's form of calls");
  std::vector<Symbol> others;
  const SchemaSet schemas = additional_schemas(constraints_);
  if (has_false(schemas)) return others;
  ByteSet first = ByteSet::range('a', 'z');
  first.add_all(ByteSet::range('A', 'Z'));
  first.add(static_cast<uint8_t>('_'));
  ByteSet next = first;
  next.add_all(ByteSet::range('0', '9'));
  for (const char c : {'-', '.'}) next.add(static_cast<uint8_t>(c));
  std::vector<RegexId> taken;
  for (const std::string_view name : declared) taken.push_back(set_.literal(name));
  RegexId name = set_.concat(set_.bytes(first), set_.repeat(set_.bytes(next), 0, kOtherNameMax - 1));
  if (!taken.empty()) name = set_.both({name, set_.complement(set_.either(std::move(taken)))});
  TROUPE_ASSIGN_OR_RETURN(const Symbol value, value_of(schemas, layout_.others_read_as_json, "others"));
  others.push_back(context_.builder().sequence({Symbol::expression(framed(name)), value}));
  return others;
}

struct Arguments {
  SchemaContext& context;
  const JsonOptions& options;
  const ArgumentLayout& layout;
  int alternatives = 0;

  StatusOr<Symbol> of(const SchemaSet& schemas) {
    TROUPE_RETURN_IF_ERROR(count_work(4096));
    const bj::value* const at = schemas.schemas[0];
    if (!context.builder().fits() || ++alternatives > kAlternativesMax)
      return invalid_argument("the schema is too large");
    TROUPE_ASSIGN_OR_RETURN(const Constraints constraints, context.reader().collect(schemas));
    if ((constraints.types & kObjectBit) == 0) return Symbol::expression(RegexSet::kNothing);
    if (!constraints.groups.empty()) return of_group(schemas, constraints.groups[0]);
    if (constraints.values)
      return context.reader().error(at, "enum",
                                    "cannot be enforced for arguments in this model's form of calls");
    TROUPE_RETURN_IF_ERROR(check_excluded(context, schemas, constraints));
    ArgumentForm form(context, constraints, options, layout, at);
    return members_symbol(context, schemas, constraints, form);
  }

  StatusOr<Symbol> of_group(const SchemaSet& schemas, const Constraints::Group& group) {
    TROUPE_ASSIGN_OR_RETURN(const std::vector<SchemaSet> sets, alternatives_of(context, schemas, group));
    std::vector<Symbol> ways;
    for (const SchemaSet& set : sets) {
      TROUPE_ASSIGN_OR_RETURN(const Symbol way, of(set));
      ways.push_back(way);
    }
    return context.builder().either(ways);
  }
};

}  // namespace

StatusOr<Symbol> arguments_symbol(SchemaContext& context, const SchemaSet& schemas,
                                  const JsonOptions& options, const ArgumentLayout& layout) {
  return Arguments{context, options, layout}.of(schemas);
}

}  // namespace troupe::grammar

#include "common/grammar/front/format.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "common/core/work_limit.h"
#include "common/grammar/front/front_ends.h"
#include "common/grammar/regex/encode.h"

namespace troupe::grammar {

namespace {

// Texts of any bytes in which one of the marks ends for the first time, and it is the one given.
RegexId until_mark(RegexSet& expressions, const Format& format) {
  const RegexId byte = expressions.byte_range(0, 255);
  const RegexId any = expressions.repeat(byte, 0, RegexSet::kUnbounded);
  std::vector<RegexId> marks;
  for (const std::string& mark : format.marks) marks.push_back(expressions.literal(mark));
  const RegexId earlier = expressions.concat(std::array{any, expressions.either(std::move(marks)),
                                                        expressions.repeat(byte, 1, RegexSet::kUnbounded)});
  return expressions.both(
      {expressions.concat(any, expressions.literal(format.text)), expressions.complement(earlier)});
}

RegexId free_text(RegexSet& expressions, const Format& format) {
  if (format.marks.empty())
    return expressions.repeat(expressions.byte_range(0, 255), 0, RegexSet::kUnbounded);
  return expressions.complement(containing(expressions, format.marks));
}

StatusOr<Symbol> symbol_of(RuleBuilder& builder, const Format& format, int depth);

StatusOr<Symbol> symbol_of_parts(RuleBuilder& builder, const Format& format, int depth) {
  std::vector<Symbol> parts;
  for (const Format& part : format.parts) {
    TROUPE_ASSIGN_OR_RETURN(const Symbol symbol, symbol_of(builder, part, depth + 1));
    parts.push_back(symbol);
  }
  if (format.kind == Format::Kind::kSequence) return builder.sequence(parts);
  if (format.kind == Format::Kind::kEither) return builder.either(parts);
  return parts.size() > 1 ? builder.repeat(parts[0], format.min, format.max, parts[1])
                          : builder.repeat(parts[0], format.min, format.max);
}

StatusOr<Symbol> symbol_of_source(RuleBuilder& builder, const Format& format) {
  if (format.kind == Format::Kind::kSchema) return symbol_of_json_schema(builder, format.text, format.json);
  if (format.kind == Format::Kind::kArguments)
    return symbol_of_arguments(builder, format.text, format.json, format.arguments);
  if (format.kind == Format::Kind::kRegex) return symbol_of_regex(builder, format.text);
  return symbol_of_gbnf(builder, format.text);
}

StatusOr<Symbol> symbol_of(RuleBuilder& builder, const Format& format, int depth) {
  constexpr int kDepthMax = 64;
  TROUPE_RETURN_IF_ERROR(count_work(1024));
  if (depth > kDepthMax) return invalid_argument("its parts are nested too deeply");
  if (!builder.fits()) return invalid_argument("the grammar is too large");
  switch (format.kind) {
    case Format::Kind::kText:
      return Symbol::expression(builder.expressions().literal(format.text));
    case Format::Kind::kObject:
      return symbol_of_json_object(builder, format.json);
    case Format::Kind::kSchema:
    case Format::Kind::kArguments:
    case Format::Kind::kRegex:
    case Format::Kind::kGbnf: {
      auto symbol = symbol_of_source(builder, format);
      if (symbol.ok() || format.name.empty()) return symbol;
      return annotate(symbol.status(), format.name);
    }
    case Format::Kind::kFree:
      return Symbol::expression(free_text(builder.expressions(), format));
    case Format::Kind::kUntil:
      return Symbol::expression(until_mark(builder.expressions(), format));
    default:
      return symbol_of_parts(builder, format, depth);
  }
}

void append_key(std::string& key, const Format& format) {
  const auto add = [&key](std::string_view text) { absl::StrAppend(&key, text.size(), ":", to_absl(text)); };
  const auto add_all = [&](const std::vector<std::string>& texts) {
    absl::StrAppend(&key, texts.size(), ",");
    for (const std::string& text : texts) add(text);
  };
  absl::StrAppend(&key, "(", static_cast<int>(format.kind), ",", format.min, ",", format.max, ",",
                  format.json.any_whitespace ? 1 : 0, ",", static_cast<int>(format.json.notation), ",");
  const ArgumentLayout& arguments = format.arguments;
  for (const std::string& text : {arguments.name_opens, arguments.name_ends, arguments.value_opens,
                                  arguments.value_ends, arguments.separator})
    add(text);
  absl::StrAppend(&key, arguments.has_text ? 1 : 0, arguments.others_read_as_json ? 1 : 0);
  add_all(arguments.read_as_json);
  add_all(format.json.barred);
  add(format.json.item_separator);
  add(format.json.key_separator);
  add(format.text);
  add_all(format.marks);
  for (const Format& part : format.parts) append_key(key, part);
  key += ")";
}

}  // namespace

StatusOr<Rules> rules_of_format(const Format& format) {
  RuleBuilder builder({});
  TROUPE_ASSIGN_OR_RETURN(const Symbol start, symbol_of(builder, format, 0));
  return builder.build(start);
}

std::string key_of(const Format& format) {
  std::string key;
  append_key(key, format);
  return key;
}

}  // namespace troupe::grammar

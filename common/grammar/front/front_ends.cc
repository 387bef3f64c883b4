#include "common/grammar/front/front_ends.h"

#include "common/core/work_limit.h"
#include "common/grammar/regex/parse_regex.h"
#include "common/grammar/schema/compiler.h"
#include "common/grammar/schema/context.h"

namespace troupe::grammar {

static StatusOr<bj::value> parse_schema(std::string_view schema) {
  TROUPE_ASSIGN_OR_RETURN(bj::value root, parse_json(schema, {.bytes_max = kSchemaBytesMax}));
  if (!root.is_object() && !root.is_bool()) return invalid_argument("a schema is an object or a boolean");
  return root;
}

StatusOr<Symbol> symbol_of_json_schema(RuleBuilder& builder, std::string_view schema,
                                       const JsonOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(const bj::value root, parse_schema(schema));
  TROUPE_ASSIGN_OR_RETURN(SchemaReader reader, SchemaReader::make(root));
  return compile_schema(builder, reader, root, options);
}

StatusOr<Symbol> symbol_of_arguments(RuleBuilder& builder, std::string_view schema,
                                     const JsonOptions& options, const ArgumentLayout& layout) {
  TROUPE_ASSIGN_OR_RETURN(const bj::value root, parse_schema(schema));
  TROUPE_ASSIGN_OR_RETURN(SchemaReader reader, SchemaReader::make(root));
  return compile_arguments(builder, reader, root, options, layout);
}

StatusOr<Symbol> symbol_of_json_object(RuleBuilder& builder, const JsonOptions& options) {
  const bj::value any = true;
  TROUPE_ASSIGN_OR_RETURN(SchemaReader reader, SchemaReader::make(any));
  return SchemaContext(&builder, &reader, options).any_object();
}

StatusOr<Symbol> symbol_of_regex(RuleBuilder& builder, std::string_view regex) {
  TROUPE_ASSIGN_OR_RETURN(const RegexId id, parse_regex(builder.expressions(), regex, {}));
  return Symbol::expression(id);
}

StatusOr<Symbol> symbol_of_choice(RuleBuilder& builder, std::span<const std::string> texts) {
  std::vector<RegexId> options;
  size_t bytes = 0;
  for (const std::string& text : texts) {
    if (!is_valid_utf8(text)) return invalid_argument("a choice is not UTF-8");
    bytes += text.size();
    if (bytes > kChoiceBytesMax) return invalid_argument("the choices are too long");
    options.push_back(builder.expressions().literal(text));
  }
  return Symbol::expression(builder.expressions().either(std::move(options)));
}

template <typename Source, typename... Options>
static StatusOr<Rules> rules_of(StatusOr<Symbol> (*symbol_of)(RuleBuilder&, Source, Options...),
                                Source source, Options... options) {
  RuleBuilder builder({});
  TROUPE_ASSIGN_OR_RETURN(const Symbol start, symbol_of(builder, source, options...));
  return builder.build(start);
}

StatusOr<Rules> rules_of_json_schema(std::string_view schema, const JsonOptions& options) {
  return rules_of<std::string_view, const JsonOptions&>(symbol_of_json_schema, schema, options);
}

StatusOr<Rules> rules_of_arguments(std::string_view schema, const JsonOptions& options,
                                   const ArgumentLayout& layout) {
  return rules_of<std::string_view, const JsonOptions&, const ArgumentLayout&>(symbol_of_arguments, schema,
                                                                               options, layout);
}

StatusOr<Rules> rules_of_json_object(const JsonOptions& options) {
  return rules_of<const JsonOptions&>(symbol_of_json_object, options);
}

StatusOr<Rules> rules_of_regex(std::string_view regex) {
  return rules_of(symbol_of_regex, regex);
}

StatusOr<Rules> rules_of_choice(std::span<const std::string> texts) {
  return rules_of(symbol_of_choice, texts);
}

StatusOr<Rules> rules_of_gbnf(std::string_view grammar) {
  return rules_of(symbol_of_gbnf, grammar);
}

}  // namespace troupe::grammar

#include "common/grammar/front/front_ends.h"

#include "common/core/work_limit.h"
#include "common/grammar/regex/parse_regex.h"
#include "common/grammar/schema/compiler.h"
#include "common/grammar/schema/context.h"

namespace troupe::grammar {

static constexpr size_t kChoiceBytesMax = 256u << 10;

StatusOr<Rules> rules_of_json_schema(std::string_view schema, const JsonOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(const bj::value root, parse_json(schema, {.bytes_max = kSchemaBytesMax}));
  if (!root.is_object() && !root.is_bool()) return invalid_argument("a schema is an object or a boolean");
  TROUPE_ASSIGN_OR_RETURN(SchemaReader reader, SchemaReader::make(root));
  return compile_schema(reader, root, options);
}

StatusOr<Rules> rules_of_json_object(const JsonOptions& options) {
  const bj::value any = true;
  TROUPE_ASSIGN_OR_RETURN(SchemaReader reader, SchemaReader::make(any));
  SchemaContext context(&reader, options);
  const Symbol object = context.any_object();
  return context.builder().build(object);
}

StatusOr<Rules> rules_of_regex(std::string_view regex) {
  RuleBuilder builder({});
  TROUPE_ASSIGN_OR_RETURN(const RegexId id, parse_regex(builder.expressions(), regex, {}));
  return builder.build(Symbol::expression(id));
}

StatusOr<Rules> rules_of_choice(std::span<const std::string> texts) {
  RuleBuilder builder({});
  std::vector<RegexId> options;
  size_t bytes = 0;
  for (const std::string& text : texts) {
    if (!is_valid_utf8(text)) return invalid_argument("a choice is not UTF-8");
    bytes += text.size();
    if (bytes > kChoiceBytesMax) return invalid_argument("the choices are too long");
    options.push_back(builder.expressions().literal(text));
  }
  return builder.build(Symbol::expression(builder.expressions().either(std::move(options))));
}

}  // namespace troupe::grammar

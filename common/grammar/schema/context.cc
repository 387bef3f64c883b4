#include "common/grammar/schema/context.h"

#include <algorithm>
#include <tuple>

#include "common/grammar/regex/json_lexemes.h"

namespace troupe::grammar {

SchemaContext::SchemaContext(RuleBuilder* builder, SchemaReader* reader, const JsonOptions& options)
    : builder_(*builder), reader_(reader), layout_(JsonLayout::make(builder_.expressions(), options)) {}

Symbol SchemaContext::rule_of(const SchemaSet& schemas) {
  if (std::all_of(schemas.schemas.begin(), schemas.schemas.end(), is_any_schema)) return any_value();
  const auto found = rules_.find(schemas);
  if (found != rules_.end()) return Symbol::rule(found->second);
  const RuleId rule = builder_.add_rule();
  rules_.emplace(schemas, rule);
  pending_.emplace_back(rule, schemas);
  return Symbol::rule(rule);
}

bool SchemaContext::take_pending(RuleId& rule, SchemaSet& schemas) {
  if (pending_.empty()) return false;
  std::tie(rule, schemas) = std::move(pending_.back());
  pending_.pop_back();
  return true;
}

Symbol SchemaContext::any_value() {
  if (has_any_value_) return any_value_;
  has_any_value_ = true;
  const JsonLexemes& lexemes = json_lexemes();
  const RuleId value = builder_.add_rule();
  any_value_ = Symbol::rule(value);
  for (const RegexId id : {layout_.string, lexemes.number, layout_.boolean(expressions()), layout_.null})
    builder_.add(value, {Symbol::expression(id)});
  const Symbol separator = Symbol::expression(layout_.item_separator);
  builder_.add(value, {any_object()});
  builder_.add(value, {Symbol::expression(layout_.open_array),
                       builder_.repeat(any_value_, 0, RegexSet::kUnbounded, separator),
                       Symbol::expression(layout_.close_array)});
  return any_value_;
}

Symbol SchemaContext::any_object() {
  if (any_object_.kind == Symbol::Kind::kRule) return any_object_;
  const RuleId object = builder_.add_rule(), member = builder_.add_rule();
  any_object_ = Symbol::rule(object);
  builder_.add(member,
               {Symbol::expression(layout_.string), Symbol::expression(layout_.key_separator), any_value()});
  const Symbol separator = Symbol::expression(layout_.item_separator);
  builder_.add(object, {Symbol::expression(layout_.open_object),
                        builder_.repeat(Symbol::rule(member), 0, RegexSet::kUnbounded, separator),
                        Symbol::expression(layout_.close_object)});
  return any_object_;
}

}  // namespace troupe::grammar

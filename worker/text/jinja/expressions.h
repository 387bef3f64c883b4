#pragma once

// Parses expressions, by Jinja2's grammar. Nesting is bounded.

#include "worker/text/jinja/ast.h"
#include "worker/text/jinja/token_stream.h"

namespace troupe::jinja {

// The statements around an expression, as far as it reads or writes something of them.
struct ExprScope {
  MacroExtras extras;         // those read so far within the macro being parsed
  int conditional_level = 0;  // within an if, an unknown filter is an error only when it runs
};

class ExpressionParser {
 public:
  // Both live longer.
  ExpressionParser(TokenStream& tokens, ExprScope& scope) : tokens_(tokens), scope_(scope) {}

  // Syntax accepted in an expression's place.
  enum class TupleKind : uint8_t { kFull, kNoCondition };

  // Throw JinjaError, with the line.
  ExprPtr parse_tuple(TupleKind kind);
  ExprPtr parse_expression();  // with the inline if
  // Any filters, tests and calls behind a value.
  ExprPtr parse_filters(ExprPtr expr);
  // One filter, behind its "|".
  ExprPtr parse_filter(ExprPtr input);
  // Whether a tuple ends here, perhaps behind a comma.
  bool at_tuple_end() const;

 private:
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filters);
  ExprPtr parse_primary();
  ExprPtr parse_name();
  ExprPtr parse_parenthesised();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr expr);
  ExprPtr parse_call(ExprPtr callee);
  ExprPtr parse_subscript(ExprPtr expr);
  ExprPtr parse_slice_or_index();
  ExprPtr parse_test(ExprPtr input);

  TokenStream& tokens_;
  ExprScope& scope_;
  int level_ = 0;
};

}  // namespace troupe::jinja

#pragma once

// Parses the arguments of calls, filters and tests.

#include "absl/functional/function_ref.h"
#include "worker/text/jinja/ast.h"
#include "worker/text/jinja/token_stream.h"

namespace troupe::jinja {

// From "(" to ")", into `call`. `parse_expression` reads one argument.
void parse_arguments(TokenStream& tokens, Expr& call, absl::FunctionRef<ExprPtr()> parse_expression);

}  // namespace troupe::jinja

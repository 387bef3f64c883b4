#include "worker/text/jinja/arguments.h"

namespace troupe::jinja {

void parse_arguments(TokenStream& tokens, Expr& call, absl::FunctionRef<ExprPtr()> parse_expression) {
  tokens.expect_operator("(");
  while (!tokens.at_operator(")")) {
    const bool has_star = call.star != nullptr || call.double_star != nullptr;
    if (has_star || !call.positional.empty() || !call.named.empty()) tokens.expect_operator(",");
    if (tokens.at_operator(")")) break;
    if (tokens.at_operator("*") || tokens.at_operator("**")) {
      ExprPtr& star = tokens.next().text == "*" ? call.star : call.double_star;
      if (star != nullptr || call.double_star != nullptr)
        tokens.fail("'*' and '**' may stand once each, '**' last");
      star = parse_expression();
      continue;
    }
    bool is_named = tokens.peek().type == TokenType::kName && tokens.peek(1).type == TokenType::kOperator &&
                    tokens.peek(1).text == "=";
    if (is_named) {
      if (call.double_star != nullptr) tokens.fail("a named argument follows '**'");
      std::string name = tokens.next().text;
      tokens.expect_operator("=");
      call.named.emplace_back(std::move(name), parse_expression());
    } else {
      if (has_star || !call.named.empty())
        tokens.fail("a positional argument follows a named one, '*' or '**'");
      call.positional.push_back(parse_expression());
    }
  }
  tokens.expect_operator(")");
}

}  // namespace troupe::jinja

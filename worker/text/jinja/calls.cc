// Parses the parts after a value: filters, tests, and the arguments of either and of calls.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/text/jinja/filters.h"
#include "worker/text/jinja/parser.h"

namespace troupe::jinja {

ExprPtr Parser::parse_filters(ExprPtr expr) {
  for (;;) {
    if (skip_operator("|")) {
      expr = parse_filter(std::move(expr));
    } else if (skip_name("is")) {
      expr = parse_test(std::move(expr));
    } else if (at_operator("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::parse_filter(ExprPtr input) {
  ExprPtr filter = make(ExprType::kFilter);
  filter->name = expect_identifier("a filter's name");
  if (conditional_level_ == 0 && !is_filter(filter->name)) fail("no filter is named '" + filter->name + "'");
  filter->items.push_back(std::move(input));
  if (at_operator("(")) parse_arguments(*filter);
  return finish(std::move(filter));
}

bool Parser::at_test_argument() const {
  TokenType type = peek().type;
  if (type == TokenType::kName) {
    constexpr std::string_view kNoArguments[] = {"else", "or", "and"};
    return std::find(std::begin(kNoArguments), std::end(kNoArguments), peek().text) == std::end(kNoArguments);
  }
  return type == TokenType::kString || type == TokenType::kInteger || type == TokenType::kFloat ||
         at_operator("(") || at_operator("[") || at_operator("{");
}

ExprPtr Parser::parse_test(ExprPtr input) {
  bool negated = skip_name("not");
  ExprPtr test = make(ExprType::kTest);
  test->name = expect_identifier("a test's name");
  if (conditional_level_ == 0 && !is_test(test->name)) fail("no test is named '" + test->name + "'");
  test->items.push_back(std::move(input));
  if (at_operator("(")) {
    parse_arguments(*test);
  } else if (at_test_argument()) {
    if (at_name("is")) fail("You cannot chain multiple tests with is");
    test->positional.push_back(parse_postfix(parse_primary()));
  }
  test = finish(std::move(test));
  if (!negated) return test;
  ExprPtr inverse = make(ExprType::kNot);
  inverse->items.push_back(std::move(test));
  return finish(std::move(inverse));
}

void Parser::parse_arguments(Expr& call) {
  expect_operator("(");
  while (!at_operator(")")) {
    const bool has_star = call.star != nullptr || call.double_star != nullptr;
    if (has_star || !call.positional.empty() || !call.named.empty()) expect_operator(",");
    if (at_operator(")")) break;
    if (at_operator("*") || at_operator("**")) {
      ExprPtr& star = next().text == "*" ? call.star : call.double_star;
      if (star != nullptr || call.double_star != nullptr) fail("'*' and '**' may stand once each, '**' last");
      star = parse_expression();
      continue;
    }
    bool is_named =
        peek().type == TokenType::kName && peek(1).type == TokenType::kOperator && peek(1).text == "=";
    if (is_named) {
      if (call.double_star != nullptr) fail("a named argument follows '**'");
      std::string name = next().text;
      expect_operator("=");
      call.named.emplace_back(std::move(name), parse_expression());
    } else {
      if (has_star || !call.named.empty()) fail("a positional argument follows a named one, '*' or '**'");
      call.positional.push_back(parse_expression());
    }
  }
  expect_operator(")");
}

}  // namespace troupe::jinja

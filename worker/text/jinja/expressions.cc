// From the loosest binding to the tightest:
// a if b else c < or < and < not < comparison < + - < ~ < * / // % < ** < unary - + < . [] () < | is.

#include "worker/text/jinja/expressions.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "worker/text/jinja/arguments.h"
#include "worker/text/jinja/filters.h"
#include "worker/text/jinja/nodes.h"

namespace troupe::jinja {
namespace {

constexpr int kExprLevelsMax = 150;

ExprPtr make_binary(const TokenStream& tokens, ExprType type, std::string name, ExprPtr left, ExprPtr right) {
  ExprPtr expr = make_expr(tokens, type);
  expr->line = left->line;
  expr->name = std::move(name);
  expr->items.push_back(std::move(left));
  expr->items.push_back(std::move(right));
  return finish_expr(tokens, std::move(expr));
}

// Returns an operator of comparison that is read, or nothing: there is none.
std::string skip_comparison(TokenStream& tokens) {
  for (std::string_view sign : {"==", "!=", "<=", ">=", "<", ">"}) {
    if (tokens.skip_operator(sign)) return std::string(sign);
  }
  if (tokens.skip_name("in")) return "in";
  if (tokens.at_name("not") && tokens.peek(1).type == TokenType::kName && tokens.peek(1).text == "in") {
    tokens.next();
    tokens.next();
    return "not in";
  }
  return {};
}

ExprPtr parse_number(TokenStream& tokens) {
  ExprPtr expr = make_expr(tokens, ExprType::kConst);
  bool is_float = tokens.peek().type == TokenType::kFloat;
  const std::string& digits = tokens.peek().text;
  int64_t integer = 0;
  double number = 0;
  const char* end = digits.data() + digits.size();
  auto result =
      is_float ? std::from_chars(digits.data(), end, number) : std::from_chars(digits.data(), end, integer);
  if (result.ec != std::errc()) tokens.fail("the number " + digits + " is out of range");
  expr->value = is_float ? Value(number) : Value(integer);
  tokens.next();
  return expr;
}

bool at_test_argument(const TokenStream& tokens) {
  TokenType type = tokens.peek().type;
  if (type == TokenType::kName) {
    constexpr std::string_view kNoArguments[] = {"else", "or", "and"};
    return std::find(std::begin(kNoArguments), std::end(kNoArguments), tokens.peek().text) ==
           std::end(kNoArguments);
  }
  return type == TokenType::kString || type == TokenType::kInteger || type == TokenType::kFloat ||
         tokens.at_operator("(") || tokens.at_operator("[") || tokens.at_operator("{");
}

}  // namespace

bool ExpressionParser::at_tuple_end() const {
  TokenType type = tokens_.peek().type;
  return type == TokenType::kVariableEnd || type == TokenType::kBlockEnd || tokens_.at_operator(")") ||
         tokens_.at_operator("=");
}

ExprPtr ExpressionParser::parse_tuple(TupleKind kind) {
  ExprPtr first = kind == TupleKind::kFull ? parse_expression() : parse_or();
  if (!tokens_.at_operator(",")) return first;
  ExprPtr tuple = make_expr(tokens_, ExprType::kTuple);
  tuple->items.push_back(std::move(first));
  while (tokens_.skip_operator(",")) {
    if (at_tuple_end()) break;
    tuple->items.push_back(kind == TupleKind::kFull ? parse_expression() : parse_or());
  }
  return finish_expr(tokens_, std::move(tuple));
}

ExprPtr ExpressionParser::parse_expression() {
  NestingLevel level(tokens_, level_, kExprLevelsMax);
  ExprPtr expr = parse_or();
  while (tokens_.skip_name("if")) {
    ++scope_.conditional_level;
    ExprPtr condition = make_expr(tokens_, ExprType::kCondition);
    condition->items.push_back(std::move(expr));
    condition->items.push_back(parse_or());
    condition->items.push_back(tokens_.skip_name("else") ? parse_expression() : nullptr);
    expr = finish_expr(tokens_, std::move(condition));
    --scope_.conditional_level;
  }
  return expr;
}

ExprPtr ExpressionParser::parse_or() {
  ExprPtr left = parse_and();
  while (tokens_.skip_name("or"))
    left = make_binary(tokens_, ExprType::kOr, "or", std::move(left), parse_and());
  return left;
}

ExprPtr ExpressionParser::parse_and() {
  ExprPtr left = parse_not();
  while (tokens_.skip_name("and"))
    left = make_binary(tokens_, ExprType::kAnd, "and", std::move(left), parse_not());
  return left;
}

ExprPtr ExpressionParser::parse_not() {
  if (!tokens_.at_name("not")) return parse_compare();
  NestingLevel level(tokens_, level_, kExprLevelsMax);
  ExprPtr expr = make_expr(tokens_, ExprType::kNot);
  tokens_.expect_name("not");
  expr->items.push_back(parse_not());
  return finish_expr(tokens_, std::move(expr));
}

ExprPtr ExpressionParser::parse_compare() {
  ExprPtr left = parse_sum();
  std::string name = skip_comparison(tokens_);
  if (name.empty()) return left;
  ExprPtr compare = make_expr(tokens_, ExprType::kCompare);
  compare->items.push_back(std::move(left));
  for (; !name.empty(); name = skip_comparison(tokens_)) {
    compare->names.push_back(name);
    compare->items.push_back(parse_sum());
  }
  return finish_expr(tokens_, std::move(compare));
}

ExprPtr ExpressionParser::parse_sum() {
  ExprPtr left = parse_concat();
  while (tokens_.at_operator("+") || tokens_.at_operator("-")) {
    std::string sign = tokens_.next().text;
    left = make_binary(tokens_, ExprType::kBinary, sign, std::move(left), parse_concat());
  }
  return left;
}

ExprPtr ExpressionParser::parse_concat() {
  ExprPtr first = parse_product();
  if (!tokens_.at_operator("~")) return first;
  ExprPtr concat = make_expr(tokens_, ExprType::kConcat);
  concat->items.push_back(std::move(first));
  while (tokens_.skip_operator("~")) concat->items.push_back(parse_product());
  return finish_expr(tokens_, std::move(concat));
}

ExprPtr ExpressionParser::parse_product() {
  ExprPtr left = parse_power();
  while (tokens_.at_operator("*") || tokens_.at_operator("/") || tokens_.at_operator("//") ||
         tokens_.at_operator("%")) {
    std::string sign = tokens_.next().text;
    left = make_binary(tokens_, ExprType::kBinary, sign, std::move(left), parse_power());
  }
  return left;
}

ExprPtr ExpressionParser::parse_power() {
  ExprPtr left = parse_unary(true);
  while (tokens_.skip_operator("**"))
    left = make_binary(tokens_, ExprType::kBinary, "**", std::move(left), parse_unary(true));
  return left;
}

ExprPtr ExpressionParser::parse_unary(bool with_filters) {
  NestingLevel level(tokens_, level_, kExprLevelsMax);
  ExprPtr expr;
  if (tokens_.at_operator("-") || tokens_.at_operator("+")) {
    ExprPtr sign = make_expr(tokens_, tokens_.at_operator("-") ? ExprType::kNegate : ExprType::kPlus);
    tokens_.next();
    sign->items.push_back(parse_unary(false));
    expr = finish_expr(tokens_, std::move(sign));
  } else {
    expr = parse_primary();
  }
  expr = parse_postfix(std::move(expr));
  return with_filters ? parse_filters(std::move(expr)) : std::move(expr);
}

ExprPtr ExpressionParser::parse_name() {
  ExprPtr expr = make_expr(tokens_, ExprType::kConst);
  std::string_view name = tokens_.peek().text;
  if (name == "true" || name == "True") {
    expr->value = Value(true);
  } else if (name == "false" || name == "False") {
    expr->value = Value(false);
  } else if (name == "none" || name == "None") {
    expr->value = Value(None{});
  } else {
    expr->type = ExprType::kName;
    expr->name = name;
    scope_.extras.varargs = scope_.extras.varargs || name == "varargs";
    scope_.extras.kwargs = scope_.extras.kwargs || name == "kwargs";
    scope_.extras.caller = scope_.extras.caller || name == "caller";
  }
  tokens_.next();
  return expr;
}

ExprPtr ExpressionParser::parse_primary() {
  const Token& token = tokens_.peek();
  if (token.type == TokenType::kName) return parse_name();
  if (token.type == TokenType::kInteger || token.type == TokenType::kFloat) return parse_number(tokens_);
  if (token.type == TokenType::kString) {
    ExprPtr expr = make_expr(tokens_, ExprType::kConst);
    std::string text;
    while (tokens_.peek().type == TokenType::kString) text += tokens_.next().text;
    expr->value = Value(std::move(text));
    return expr;
  }
  if (tokens_.at_operator("(")) return parse_parenthesised();
  if (tokens_.at_operator("[")) return parse_list();
  if (tokens_.at_operator("{")) return parse_dict();
  tokens_.fail("expected an expression, found " + describe(token));
}

ExprPtr ExpressionParser::parse_parenthesised() {
  tokens_.expect_operator("(");
  if (tokens_.skip_operator(")")) return make_expr(tokens_, ExprType::kTuple);
  ExprPtr expr = parse_tuple(TupleKind::kFull);
  tokens_.expect_operator(")");
  return expr;
}

ExprPtr ExpressionParser::parse_list() {
  ExprPtr list = make_expr(tokens_, ExprType::kList);
  tokens_.expect_operator("[");
  while (!tokens_.at_operator("]")) {
    if (!list->items.empty()) tokens_.expect_operator(",");
    if (tokens_.at_operator("]")) break;
    list->items.push_back(parse_expression());
  }
  tokens_.expect_operator("]");
  return finish_expr(tokens_, std::move(list));
}

ExprPtr ExpressionParser::parse_dict() {
  ExprPtr dict = make_expr(tokens_, ExprType::kDict);
  tokens_.expect_operator("{");
  while (!tokens_.at_operator("}")) {
    if (!dict->items.empty()) tokens_.expect_operator(",");
    if (tokens_.at_operator("}")) break;
    dict->items.push_back(parse_expression());
    tokens_.expect_operator(":");
    dict->items.push_back(parse_expression());
  }
  tokens_.expect_operator("}");
  return finish_expr(tokens_, std::move(dict));
}

ExprPtr ExpressionParser::parse_postfix(ExprPtr expr) {
  for (;;) {
    if (tokens_.at_operator(".") || tokens_.at_operator("[")) {
      expr = parse_subscript(std::move(expr));
    } else if (tokens_.at_operator("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

// REQUIRES: at "(".
ExprPtr ExpressionParser::parse_call(ExprPtr callee) {
  ExprPtr call = make_expr(tokens_, ExprType::kCall);
  call->items.push_back(std::move(callee));
  parse_arguments(tokens_, *call, [this] { return parse_expression(); });
  return finish_expr(tokens_, std::move(call));
}

ExprPtr ExpressionParser::parse_subscript(ExprPtr expr) {
  ExprPtr result = make_expr(tokens_, ExprType::kItem);
  result->items.push_back(std::move(expr));
  if (tokens_.skip_operator(".")) {
    if (tokens_.peek().type == TokenType::kInteger) {
      result->items.push_back(parse_primary());
    } else {
      result->type = ExprType::kAttribute;
      result->name = tokens_.expect_identifier("a name or a number behind '.'");
    }
    return finish_expr(tokens_, std::move(result));
  }
  tokens_.expect_operator("[");
  ExprPtr index = parse_slice_or_index();
  if (tokens_.at_operator(",")) {
    ExprPtr tuple = make_expr(tokens_, ExprType::kTuple);
    tuple->items.push_back(std::move(index));
    while (tokens_.skip_operator(",")) tuple->items.push_back(parse_slice_or_index());
    index = finish_expr(tokens_, std::move(tuple));
  }
  tokens_.expect_operator("]");
  result->items.push_back(std::move(index));
  return finish_expr(tokens_, std::move(result));
}

ExprPtr ExpressionParser::parse_slice_or_index() {
  ExprPtr first = tokens_.at_operator(":") ? nullptr : parse_expression();
  if (!tokens_.at_operator(":")) return first;
  ExprPtr slice = make_expr(tokens_, ExprType::kSlice);
  slice->items.push_back(std::move(first));
  while (slice->items.size() < 3 && tokens_.skip_operator(":")) {
    bool left_out = tokens_.at_operator(":") || tokens_.at_operator("]") || tokens_.at_operator(",");
    slice->items.push_back(left_out ? nullptr : parse_expression());
  }
  slice->items.resize(3);
  return finish_expr(tokens_, std::move(slice));
}

ExprPtr ExpressionParser::parse_filters(ExprPtr expr) {
  for (;;) {
    if (tokens_.skip_operator("|")) {
      expr = parse_filter(std::move(expr));
    } else if (tokens_.skip_name("is")) {
      expr = parse_test(std::move(expr));
    } else if (tokens_.at_operator("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr ExpressionParser::parse_filter(ExprPtr input) {
  ExprPtr filter = make_expr(tokens_, ExprType::kFilter);
  filter->name = tokens_.expect_identifier("a filter's name");
  if (scope_.conditional_level == 0 && !is_filter(filter->name))
    tokens_.fail("no filter is named '" + filter->name + "'");
  filter->items.push_back(std::move(input));
  if (tokens_.at_operator("(")) parse_arguments(tokens_, *filter, [this] { return parse_expression(); });
  return finish_expr(tokens_, std::move(filter));
}

ExprPtr ExpressionParser::parse_test(ExprPtr input) {
  bool negated = tokens_.skip_name("not");
  ExprPtr test = make_expr(tokens_, ExprType::kTest);
  test->name = tokens_.expect_identifier("a test's name");
  if (scope_.conditional_level == 0 && !is_test(test->name))
    tokens_.fail("no test is named '" + test->name + "'");
  test->items.push_back(std::move(input));
  if (tokens_.at_operator("(")) {
    parse_arguments(tokens_, *test, [this] { return parse_expression(); });
  } else if (at_test_argument(tokens_)) {
    if (tokens_.at_name("is")) tokens_.fail("You cannot chain multiple tests with is");
    test->positional.push_back(parse_postfix(parse_primary()));
  }
  test = finish_expr(tokens_, std::move(test));
  if (!negated) return test;
  ExprPtr inverse = make_expr(tokens_, ExprType::kNot);
  inverse->items.push_back(std::move(test));
  return finish_expr(tokens_, std::move(inverse));
}

}  // namespace troupe::jinja

// The expression half of the parser, from the loosest binding to the tightest:
// a if b else c < or < and < not < comparison < + - < ~ < * / // % < ** < unary - + < . [] () < | is.

#include <algorithm>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "worker/text/jinja/parser.h"

namespace troupe::jinja {
namespace {

constexpr int kExprLevelsMax = 150;

int depth_of(const ExprPtr& expr) {
  return expr == nullptr ? 0 : expr->depth;
}

}  // namespace

Parser::Level::Level(Parser& parser, int max) : depth_(parser.expr_level_) {
  if (depth_ >= max) parser.fail("expressions nested too deeply");
  ++depth_;
}

ExprPtr Parser::make(ExprType type) const {
  auto expr = std::make_unique<Expr>();
  expr->type = type;
  expr->line = peek().line;
  return expr;
}

ExprPtr Parser::finish(ExprPtr expr) const {
  int depth = 0;
  for (const ExprPtr& item : expr->items) depth = std::max(depth, depth_of(item));
  for (const ExprPtr& argument : expr->positional) depth = std::max(depth, depth_of(argument));
  for (const auto& [name, argument] : expr->named) depth = std::max(depth, depth_of(argument));
  depth = std::max({depth, depth_of(expr->star), depth_of(expr->double_star)});
  expr->depth = depth + 1;
  if (expr->depth > kExprDepthMax)
    fail(absl::StrCat("an expression of more than ", kExprDepthMax, " levels"));
  return expr;
}

ExprPtr Parser::make_binary(ExprType type, std::string name, ExprPtr left, ExprPtr right) const {
  ExprPtr expr = make(type);
  expr->line = left->line;
  expr->name = std::move(name);
  expr->items.push_back(std::move(left));
  expr->items.push_back(std::move(right));
  return finish(std::move(expr));
}

bool Parser::at_tuple_end() const {
  TokenType type = peek().type;
  return type == TokenType::kVariableEnd || type == TokenType::kBlockEnd || at_operator(")") ||
         at_operator("=");
}

ExprPtr Parser::parse_tuple(TupleKind kind) {
  return parse_tuple_rest(kind == TupleKind::kFull ? parse_expression() : parse_or(), kind);
}

ExprPtr Parser::parse_tuple_rest(ExprPtr first, TupleKind kind) {
  if (!at_operator(",")) return first;
  ExprPtr tuple = make(ExprType::kTuple);
  tuple->items.push_back(std::move(first));
  while (skip_operator(",")) {
    if (at_tuple_end()) break;
    tuple->items.push_back(kind == TupleKind::kFull ? parse_expression() : parse_or());
  }
  return finish(std::move(tuple));
}

ExprPtr Parser::parse_expression() {
  Level level(*this, kExprLevelsMax);
  ExprPtr expr = parse_or();
  while (skip_name("if")) {
    ++conditional_level_;
    ExprPtr condition = make(ExprType::kCondition);
    condition->items.push_back(std::move(expr));
    condition->items.push_back(parse_or());
    condition->items.push_back(skip_name("else") ? parse_expression() : nullptr);
    expr = finish(std::move(condition));
    --conditional_level_;
  }
  return expr;
}

ExprPtr Parser::parse_or() {
  ExprPtr left = parse_and();
  while (skip_name("or")) left = make_binary(ExprType::kOr, "or", std::move(left), parse_and());
  return left;
}

ExprPtr Parser::parse_and() {
  ExprPtr left = parse_not();
  while (skip_name("and")) left = make_binary(ExprType::kAnd, "and", std::move(left), parse_not());
  return left;
}

ExprPtr Parser::parse_not() {
  if (!at_name("not")) return parse_compare();
  Level level(*this, kExprLevelsMax);
  ExprPtr expr = make(ExprType::kNot);
  expect_name("not");
  expr->items.push_back(parse_not());
  return finish(std::move(expr));
}

std::string Parser::skip_comparison() {
  for (std::string_view sign : {"==", "!=", "<=", ">=", "<", ">"}) {
    if (skip_operator(sign)) return std::string(sign);
  }
  if (skip_name("in")) return "in";
  if (at_name("not") && peek(1).type == TokenType::kName && peek(1).text == "in") {
    pos_ += 2;
    return "not in";
  }
  return {};
}

ExprPtr Parser::parse_compare() {
  ExprPtr left = parse_sum();
  std::string name = skip_comparison();
  if (name.empty()) return left;
  ExprPtr compare = make(ExprType::kCompare);
  compare->items.push_back(std::move(left));
  for (; !name.empty(); name = skip_comparison()) {
    compare->names.push_back(name);
    compare->items.push_back(parse_sum());
  }
  return finish(std::move(compare));
}

ExprPtr Parser::parse_sum() {
  ExprPtr left = parse_concat();
  while (at_operator("+") || at_operator("-")) {
    std::string sign = next().text;
    left = make_binary(ExprType::kBinary, sign, std::move(left), parse_concat());
  }
  return left;
}

ExprPtr Parser::parse_concat() {
  ExprPtr first = parse_product();
  if (!at_operator("~")) return first;
  ExprPtr concat = make(ExprType::kConcat);
  concat->items.push_back(std::move(first));
  while (skip_operator("~")) concat->items.push_back(parse_product());
  return finish(std::move(concat));
}

ExprPtr Parser::parse_product() {
  ExprPtr left = parse_power();
  while (at_operator("*") || at_operator("/") || at_operator("//") || at_operator("%")) {
    std::string sign = next().text;
    left = make_binary(ExprType::kBinary, sign, std::move(left), parse_power());
  }
  return left;
}

ExprPtr Parser::parse_power() {
  ExprPtr left = parse_unary(true);
  while (skip_operator("**")) left = make_binary(ExprType::kBinary, "**", std::move(left), parse_unary(true));
  return left;
}

ExprPtr Parser::parse_unary(bool with_filters) {
  Level level(*this, kExprLevelsMax);
  ExprPtr expr;
  if (at_operator("-") || at_operator("+")) {
    ExprPtr sign = make(at_operator("-") ? ExprType::kNegate : ExprType::kPlus);
    next();
    sign->items.push_back(parse_unary(false));
    expr = finish(std::move(sign));
  } else {
    expr = parse_primary();
  }
  expr = parse_postfix(std::move(expr));
  return with_filters ? parse_filters(std::move(expr)) : std::move(expr);
}

ExprPtr Parser::parse_name() {
  ExprPtr expr = make(ExprType::kConst);
  std::string_view name = peek().text;
  if (name == "true" || name == "True") {
    expr->value = Value(true);
  } else if (name == "false" || name == "False") {
    expr->value = Value(false);
  } else if (name == "none" || name == "None") {
    expr->value = Value(None{});
  } else {
    expr->type = ExprType::kName;
    expr->name = name;
    extras_.varargs = extras_.varargs || name == "varargs";
    extras_.kwargs = extras_.kwargs || name == "kwargs";
    extras_.caller = extras_.caller || name == "caller";
  }
  next();
  return expr;
}

ExprPtr Parser::parse_number() {
  ExprPtr expr = make(ExprType::kConst);
  bool is_float = peek().type == TokenType::kFloat;
  const std::string& digits = peek().text;
  int64_t integer = 0;
  double number = 0;
  const char* end = digits.data() + digits.size();
  auto result =
      is_float ? std::from_chars(digits.data(), end, number) : std::from_chars(digits.data(), end, integer);
  if (result.ec != std::errc()) fail("the number " + digits + " is out of range");
  expr->value = is_float ? Value(number) : Value(integer);
  next();
  return expr;
}

ExprPtr Parser::parse_primary() {
  const Token& token = peek();
  if (token.type == TokenType::kName) return parse_name();
  if (token.type == TokenType::kInteger || token.type == TokenType::kFloat) return parse_number();
  if (token.type == TokenType::kString) {
    ExprPtr expr = make(ExprType::kConst);
    std::string text;
    while (peek().type == TokenType::kString) text += next().text;
    expr->value = Value(std::move(text));
    return expr;
  }
  if (at_operator("(")) return parse_parenthesised();
  if (at_operator("[")) return parse_list();
  if (at_operator("{")) return parse_dict();
  fail("expected an expression, found " + describe(token));
}

ExprPtr Parser::parse_parenthesised() {
  expect_operator("(");
  if (skip_operator(")")) return make(ExprType::kTuple);
  ExprPtr expr = parse_tuple(TupleKind::kFull);
  expect_operator(")");
  return expr;
}

ExprPtr Parser::parse_list() {
  ExprPtr list = make(ExprType::kList);
  expect_operator("[");
  while (!at_operator("]")) {
    if (!list->items.empty()) expect_operator(",");
    if (at_operator("]")) break;
    list->items.push_back(parse_expression());
  }
  expect_operator("]");
  return finish(std::move(list));
}

ExprPtr Parser::parse_dict() {
  ExprPtr dict = make(ExprType::kDict);
  expect_operator("{");
  while (!at_operator("}")) {
    if (!dict->items.empty()) expect_operator(",");
    if (at_operator("}")) break;
    dict->items.push_back(parse_expression());
    expect_operator(":");
    dict->items.push_back(parse_expression());
  }
  expect_operator("}");
  return finish(std::move(dict));
}

ExprPtr Parser::parse_postfix(ExprPtr expr) {
  for (;;) {
    if (at_operator(".") || at_operator("[")) {
      expr = parse_subscript(std::move(expr));
    } else if (at_operator("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

// REQUIRES: at "(".
ExprPtr Parser::parse_call(ExprPtr callee) {
  ExprPtr call = make(ExprType::kCall);
  call->items.push_back(std::move(callee));
  parse_arguments(*call);
  return finish(std::move(call));
}

ExprPtr Parser::parse_subscript(ExprPtr expr) {
  ExprPtr result = make(ExprType::kItem);
  result->items.push_back(std::move(expr));
  if (skip_operator(".")) {
    if (peek().type == TokenType::kInteger) {
      result->items.push_back(parse_primary());
    } else {
      result->type = ExprType::kAttribute;
      result->name = expect_identifier("a name or a number behind '.'");
    }
    return finish(std::move(result));
  }
  expect_operator("[");
  ExprPtr index = parse_slice_or_index();
  if (at_operator(",")) {
    ExprPtr tuple = make(ExprType::kTuple);
    tuple->items.push_back(std::move(index));
    while (skip_operator(",")) tuple->items.push_back(parse_slice_or_index());
    index = finish(std::move(tuple));
  }
  expect_operator("]");
  result->items.push_back(std::move(index));
  return finish(std::move(result));
}

ExprPtr Parser::parse_slice_or_index() {
  ExprPtr first = at_operator(":") ? nullptr : parse_expression();
  if (!at_operator(":")) return first;
  ExprPtr slice = make(ExprType::kSlice);
  slice->items.push_back(std::move(first));
  while (slice->items.size() < 3 && skip_operator(":")) {
    bool left_out = at_operator(":") || at_operator("]") || at_operator(",");
    slice->items.push_back(left_out ? nullptr : parse_expression());
  }
  slice->items.resize(3);
  return finish(std::move(slice));
}

}  // namespace troupe::jinja

#include "worker/text/jinja/nodes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace troupe::jinja {
namespace {

int depth_of(const ExprPtr& expr) {
  return expr == nullptr ? 0 : expr->depth;
}

}  // namespace

ExprPtr make_expr(const TokenStream& tokens, ExprType type) {
  auto expr = std::make_unique<Expr>();
  expr->type = type;
  expr->line = tokens.peek().line;
  return expr;
}

ExprPtr finish_expr(const TokenStream& tokens, ExprPtr expr) {
  int depth = 0;
  for (const ExprPtr& item : expr->items) depth = std::max(depth, depth_of(item));
  for (const ExprPtr& argument : expr->positional) depth = std::max(depth, depth_of(argument));
  for (const auto& [name, argument] : expr->named) depth = std::max(depth, depth_of(argument));
  depth = std::max({depth, depth_of(expr->star), depth_of(expr->double_star)});
  expr->depth = depth + 1;
  if (expr->depth > kExprDepthMax)
    tokens.fail(absl::StrCat("an expression of more than ", kExprDepthMax, " levels"));
  return expr;
}

NestingLevel::NestingLevel(const TokenStream& tokens, int& depth, int max) : depth_(depth) {
  if (depth_ >= max) tokens.fail("expressions nested too deeply");
  ++depth_;
}

}  // namespace troupe::jinja

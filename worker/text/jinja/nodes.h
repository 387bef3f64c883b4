#pragma once

// How parsers make the nodes of an expression, and bound its nesting.

#include "worker/text/jinja/ast.h"
#include "worker/text/jinja/token_stream.h"

namespace troupe::jinja {

// A node with the line of the next token.
ExprPtr make_expr(const TokenStream& tokens, ExprType type);
// Sets the node's depth from its children. Throws JinjaError beyond kExprDepthMax.
ExprPtr finish_expr(const TokenStream& tokens, ExprPtr expr);

// Holds one level of recursion until the end of the scope. Throws JinjaError beyond `max` levels.
class NestingLevel {
 public:
  NestingLevel(const TokenStream& tokens, int& depth, int max);
  ~NestingLevel() { --depth_; }
  NestingLevel(const NestingLevel&) = delete;
  NestingLevel& operator=(const NestingLevel&) = delete;

 private:
  int& depth_;
};

}  // namespace troupe::jinja

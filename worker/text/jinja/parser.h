#pragma once

// Tokens → syntax tree, by Jinja2's grammar: the statements; expressions.h parses what is in them. Nesting is
// bounded in both.

#include <string_view>
#include <utility>
#include <vector>

#include "worker/text/jinja/ast.h"
#include "worker/text/jinja/expressions.h"
#include "worker/text/jinja/lexer.h"
#include "worker/text/jinja/token_stream.h"

namespace troupe::jinja {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)), expressions_(tokens_, scope_) {}
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;
  // Throws JinjaError, with the line.
  Block parse_template();

 private:
  // Parses up to a block tag whose name is one of `ends` (that name is left as the next token).
  Block parse_body(const std::vector<std::string_view>& ends);
  void parse_body_to(Block& body, std::string_view end);
  Stmt parse_statement();
  Stmt parse_for();
  Stmt parse_if();
  Stmt parse_set();
  Stmt parse_macro();
  Stmt parse_call_block();
  Stmt parse_filter_block();
  Stmt parse_with();
  Stmt parse_generation();
  ExprPtr parse_target(bool with_namespace);
  ExprPtr parse_single_target(bool with_namespace);
  std::vector<Parameter> parse_parameters();
  void parse_macro_body(Stmt& stmt, std::string_view end);
  Stmt make_stmt(StmtType type) const;

  TokenStream tokens_;
  ExprScope scope_;
  ExpressionParser expressions_;
  int block_level_ = 0;
  int loop_level_ = 0;
  int target_level_ = 0;
};

}  // namespace troupe::jinja

#pragma once

// Tokens → syntax tree, by Jinja2's grammar: expressions.cc and statements.cc. Nesting is bounded in both.

#include <string>
#include <string_view>
#include <vector>

#include "worker/text/jinja/ast.h"
#include "worker/text/jinja/lexer.h"

namespace troupe::jinja {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  // Throws JinjaError, with the line.
  Block parse_template();

 private:
  // Holds one level of recursion until the end of the scope.
  class Level {
   public:
    Level(Parser& parser, int max);
    ~Level() { --depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    int& depth_;
  };

  // Syntax accepted in an expression's place.
  enum class TupleKind : uint8_t { kFull, kNoCondition };

  const Token& peek(size_t ahead = 0) const;
  Token next();
  bool at_operator(std::string_view sign) const;
  bool at_name(std::string_view name) const;
  bool skip_operator(std::string_view sign);
  bool skip_name(std::string_view name);
  void expect_operator(std::string_view sign);
  void expect_name(std::string_view name);
  std::string expect_identifier(std::string_view what);
  void expect(TokenType type, std::string_view what);
  [[noreturn]] void fail(const std::string& message) const;

  ExprPtr make(ExprType type) const;
  // Sets the node's depth from its children and checks it.
  ExprPtr finish(ExprPtr expr) const;
  ExprPtr make_binary(ExprType type, std::string name, ExprPtr left, ExprPtr right) const;

  ExprPtr parse_tuple(TupleKind kind);
  ExprPtr parse_tuple_rest(ExprPtr first, TupleKind kind);
  bool at_tuple_end() const;
  ExprPtr parse_expression();  // with the inline if
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  std::string skip_comparison();  // empty: there is none
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filters);
  ExprPtr parse_primary();
  ExprPtr parse_name();
  ExprPtr parse_number();
  ExprPtr parse_parenthesised();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr expr);
  ExprPtr parse_call(ExprPtr callee);
  ExprPtr parse_subscript(ExprPtr expr);
  ExprPtr parse_slice_or_index();
  ExprPtr parse_filters(ExprPtr expr);
  ExprPtr parse_filter(ExprPtr input);
  ExprPtr parse_test(ExprPtr input);
  bool at_test_argument() const;
  void parse_arguments(Expr& call);

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

  std::vector<Token> tokens_;
  size_t pos_ = 0;
  int expr_level_ = 0;
  int block_level_ = 0;
  int loop_level_ = 0;
  MacroExtras extras_;         // those read so far within the macro being parsed
  int conditional_level_ = 0;  // within an if, an unknown filter is an error only when it runs
};

}  // namespace troupe::jinja

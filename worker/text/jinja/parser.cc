#include "worker/text/jinja/parser.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "worker/text/jinja/nodes.h"

namespace troupe::jinja {
namespace {

constexpr std::string_view kStatements =
    "for, if, set, macro, call, filter, with, generation, break, continue, raw";

}  // namespace

Stmt Parser::make_stmt(StmtType type) const {
  Stmt stmt;
  stmt.type = type;
  stmt.line = tokens_.peek().line;
  return stmt;
}

Block Parser::parse_template() {
  Block body = parse_body({});
  if (tokens_.peek().type != TokenType::kEnd) tokens_.fail("unexpected " + describe(tokens_.peek()));
  return body;
}

Block Parser::parse_body(const std::vector<std::string_view>& ends) {
  Block body;
  for (;;) {
    Stmt stmt = make_stmt(StmtType::kText);
    if (tokens_.peek().type == TokenType::kData) {
      stmt.text = tokens_.next().text;
    } else if (tokens_.peek().type == TokenType::kVariableBegin) {
      tokens_.next();
      stmt.type = StmtType::kOutput;
      stmt.expr = expressions_.parse_tuple(ExpressionParser::TupleKind::kFull);
      tokens_.expect(TokenType::kVariableEnd, "'}}'");
    } else if (tokens_.peek().type == TokenType::kBlockBegin) {
      const Token& name = tokens_.peek(1);
      bool is_end =
          name.type == TokenType::kName && std::find(ends.begin(), ends.end(), name.text) != ends.end();
      if (is_end) {
        tokens_.next();
        return body;
      }
      tokens_.next();
      stmt = parse_statement();
      tokens_.expect(TokenType::kBlockEnd, "'%}'");
    } else {
      if (!ends.empty())
        tokens_.fail(absl::StrCat("expected '{% ", std::string(ends.back()), " %}', found ",
                                  describe(tokens_.peek())));
      return body;
    }
    body.push_back(std::move(stmt));
  }
}

void Parser::parse_body_to(Block& body, std::string_view end) {
  tokens_.expect(TokenType::kBlockEnd, "'%}'");
  body = parse_body({end});
  tokens_.expect_name(end);
}

Stmt Parser::parse_statement() {
  if (block_level_ >= kBlockDepthMax)
    tokens_.fail(absl::StrCat("more than ", kBlockDepthMax, " blocks in one another"));
  ++block_level_;
  Stmt stmt = make_stmt(StmtType::kBreak);
  std::string name = tokens_.expect_identifier("a statement");
  if (name == "for") {
    stmt = parse_for();
  } else if (name == "if") {
    stmt = parse_if();
  } else if (name == "set") {
    stmt = parse_set();
  } else if (name == "macro") {
    stmt = parse_macro();
  } else if (name == "call") {
    stmt = parse_call_block();
  } else if (name == "filter") {
    stmt = parse_filter_block();
  } else if (name == "with") {
    stmt = parse_with();
  } else if (name == "generation") {
    stmt = parse_generation();
  } else if (name == "break" || name == "continue") {
    if (loop_level_ == 0) tokens_.fail("'" + name + "' outside of a loop");
    if (name == "continue") stmt.type = StmtType::kContinue;
  } else {
    tokens_.fail(
        absl::StrCat("unknown or misplaced statement '", name, "' (supported: ", to_absl(kStatements), ")"));
  }
  --block_level_;
  return stmt;
}

Stmt Parser::parse_for() {
  Stmt stmt = make_stmt(StmtType::kFor);
  stmt.target = parse_target(false);
  tokens_.expect_name("in");
  stmt.expr = expressions_.parse_tuple(ExpressionParser::TupleKind::kNoCondition);
  if (tokens_.skip_name("if")) stmt.filter = expressions_.parse_expression();
  stmt.recursive = tokens_.skip_name("recursive");
  tokens_.expect(TokenType::kBlockEnd, "'%}'");
  ++loop_level_;
  stmt.body = parse_body({"else", "endfor"});
  --loop_level_;
  if (tokens_.skip_name("else")) {
    parse_body_to(stmt.else_body, "endfor");
  } else {
    tokens_.expect_name("endfor");
  }
  return stmt;
}

Stmt Parser::parse_if() {
  Stmt stmt = make_stmt(StmtType::kIf);
  ++scope_.conditional_level;
  for (;;) {
    Branch branch;
    branch.condition = expressions_.parse_tuple(ExpressionParser::TupleKind::kNoCondition);
    tokens_.expect(TokenType::kBlockEnd, "'%}'");
    branch.body = parse_body({"elif", "else", "endif"});
    stmt.branches.push_back(std::move(branch));
    if (tokens_.skip_name("elif")) continue;
    if (tokens_.skip_name("else")) {
      stmt.branches.emplace_back();
      parse_body_to(stmt.branches.back().body, "endif");
    } else {
      tokens_.expect_name("endif");
    }
    --scope_.conditional_level;
    return stmt;
  }
}

Stmt Parser::parse_set() {
  Stmt stmt = make_stmt(StmtType::kSet);
  stmt.target = parse_target(true);
  if (tokens_.skip_operator("=")) {
    stmt.expr = expressions_.parse_tuple(ExpressionParser::TupleKind::kFull);
    return stmt;
  }
  stmt.type = StmtType::kSetBlock;
  if (tokens_.at_operator("|"))
    stmt.expr = expressions_.parse_filters(make_expr(tokens_, ExprType::kFilterInput));
  parse_body_to(stmt.body, "endset");
  return stmt;
}

ExprPtr Parser::parse_single_target(bool with_namespace) {
  if (tokens_.skip_operator("(")) {
    NestingLevel level(tokens_, target_level_, kBlockDepthMax);
    ExprPtr target = parse_target(false);
    tokens_.expect_operator(")");
    return target;
  }
  ExprPtr target = make_expr(tokens_, ExprType::kName);
  target->name = tokens_.expect_identifier("a variable's name");
  constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False", "None"};
  if (std::find(std::begin(kReserved), std::end(kReserved), target->name) != std::end(kReserved)) {
    tokens_.fail("'" + target->name + "' cannot be assigned to");
  }
  if (!with_namespace || !tokens_.skip_operator(".")) return target;
  ExprPtr field = make_expr(tokens_, ExprType::kAttribute);
  field->name = tokens_.expect_identifier("a namespace's field");
  field->items.push_back(std::move(target));
  return finish_expr(tokens_, std::move(field));
}

ExprPtr Parser::parse_target(bool with_namespace) {
  ExprPtr first = parse_single_target(with_namespace);
  if (!tokens_.at_operator(",")) return first;
  ExprPtr tuple = make_expr(tokens_, ExprType::kTuple);
  tuple->items.push_back(std::move(first));
  while (tokens_.skip_operator(",")) {
    if (tokens_.at_name("in") || expressions_.at_tuple_end()) break;
    tuple->items.push_back(parse_single_target(with_namespace));
  }
  return finish_expr(tokens_, std::move(tuple));
}

std::vector<Parameter> Parser::parse_parameters() {
  std::vector<Parameter> parameters;
  tokens_.expect_operator("(");
  while (!tokens_.at_operator(")")) {
    if (!parameters.empty()) tokens_.expect_operator(",");
    if (tokens_.at_operator(")")) break;
    Parameter parameter;
    parameter.name = tokens_.expect_identifier("a parameter's name");
    if (tokens_.skip_operator("=")) {
      parameter.fallback = expressions_.parse_expression();
    } else if (!parameters.empty() && parameters.back().fallback != nullptr) {
      tokens_.fail("a parameter without default follows one with");
    }
    parameters.push_back(std::move(parameter));
  }
  tokens_.expect_operator(")");
  return parameters;
}

Stmt Parser::parse_macro() {
  Stmt stmt = make_stmt(StmtType::kMacro);
  stmt.name = tokens_.expect_identifier("a macro's name");
  stmt.parameters = parse_parameters();
  parse_macro_body(stmt, "endmacro");
  return stmt;
}

void Parser::parse_macro_body(Stmt& stmt, std::string_view end) {
  int loops = std::exchange(loop_level_, 0);
  MacroExtras outer = std::exchange(scope_.extras, {});
  parse_body_to(stmt.body, end);
  stmt.extras = scope_.extras;
  // Names read by an inner macro count as read by the outer one, too.
  scope_.extras = {outer.varargs || scope_.extras.varargs, outer.kwargs || scope_.extras.kwargs,
                   outer.caller || scope_.extras.caller};
  loop_level_ = loops;
}

Stmt Parser::parse_call_block() {
  Stmt stmt = make_stmt(StmtType::kCallBlock);
  if (tokens_.at_operator("(")) stmt.parameters = parse_parameters();
  stmt.expr = expressions_.parse_expression();
  if (stmt.expr->type != ExprType::kCall) tokens_.fail("expected a call, as in {% call name() %}");
  parse_macro_body(stmt, "endcall");
  return stmt;
}

Stmt Parser::parse_filter_block() {
  Stmt stmt = make_stmt(StmtType::kFilterBlock);
  stmt.expr =
      expressions_.parse_filters(expressions_.parse_filter(make_expr(tokens_, ExprType::kFilterInput)));
  parse_body_to(stmt.body, "endfilter");
  return stmt;
}

Stmt Parser::parse_with() {
  Stmt stmt = make_stmt(StmtType::kWith);
  while (tokens_.peek().type != TokenType::kBlockEnd) {
    if (!stmt.assignments.empty()) tokens_.expect_operator(",");
    ExprPtr target = parse_single_target(false);
    tokens_.expect_operator("=");
    stmt.assignments.emplace_back(std::move(target), expressions_.parse_expression());
  }
  parse_body_to(stmt.body, "endwith");
  return stmt;
}

Stmt Parser::parse_generation() {
  Stmt stmt = make_stmt(StmtType::kScope);
  int loops = std::exchange(loop_level_, 0);
  parse_body_to(stmt.body, "endgeneration");
  loop_level_ = loops;
  return stmt;
}

}  // namespace troupe::jinja

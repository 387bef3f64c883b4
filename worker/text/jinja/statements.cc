// The statement half of the parser, and the token handling of both halves.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "worker/text/jinja/parser.h"

namespace troupe::jinja {
namespace {

constexpr std::string_view kStatements =
    "for, if, set, macro, call, filter, with, generation, break, continue, raw";

}  // namespace

const Token& Parser::peek(size_t ahead) const {
  return tokens_[std::min(pos_ + ahead, tokens_.size() - 1)];
}

Token Parser::next() {
  Token token = peek();
  if (pos_ + 1 < tokens_.size()) ++pos_;
  return token;
}

bool Parser::at_operator(std::string_view sign) const {
  return peek().type == TokenType::kOperator && peek().text == sign;
}

bool Parser::at_name(std::string_view name) const {
  return peek().type == TokenType::kName && peek().text == name;
}

bool Parser::skip_operator(std::string_view sign) {
  if (!at_operator(sign)) return false;
  next();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  next();
  return true;
}

void Parser::expect_operator(std::string_view sign) {
  if (!skip_operator(sign)) fail(absl::StrCat("expected '", to_absl(sign), "', found ", describe(peek())));
}

void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) fail(absl::StrCat("expected '", to_absl(name), "', found ", describe(peek())));
}

std::string Parser::expect_identifier(std::string_view what) {
  if (peek().type != TokenType::kName)
    fail(absl::StrCat("expected ", to_absl(what), ", found ", describe(peek())));
  return next().text;
}

void Parser::expect(TokenType type, std::string_view what) {
  if (peek().type != type) fail(absl::StrCat("expected ", to_absl(what), ", found ", describe(peek())));
  next();
}

void Parser::fail(const std::string& message) const {
  throw JinjaError(message, peek().line);
}

Stmt Parser::make_stmt(StmtType type) const {
  Stmt stmt;
  stmt.type = type;
  stmt.line = peek().line;
  return stmt;
}

Block Parser::parse_template() {
  Block body = parse_body({});
  if (peek().type != TokenType::kEnd) fail("unexpected " + describe(peek()));
  return body;
}

Block Parser::parse_body(const std::vector<std::string_view>& ends) {
  Block body;
  for (;;) {
    Stmt stmt = make_stmt(StmtType::kText);
    if (peek().type == TokenType::kData) {
      stmt.text = next().text;
    } else if (peek().type == TokenType::kVariableBegin) {
      next();
      stmt.type = StmtType::kOutput;
      stmt.expr = parse_tuple(TupleKind::kFull);
      expect(TokenType::kVariableEnd, "'}}'");
    } else if (peek().type == TokenType::kBlockBegin) {
      const Token& name = peek(1);
      bool is_end =
          name.type == TokenType::kName && std::find(ends.begin(), ends.end(), name.text) != ends.end();
      if (is_end) {
        next();
        return body;
      }
      next();
      stmt = parse_statement();
      expect(TokenType::kBlockEnd, "'%}'");
    } else {
      if (!ends.empty())
        fail(absl::StrCat("expected '{% ", std::string(ends.back()), " %}', found ", describe(peek())));
      return body;
    }
    body.push_back(std::move(stmt));
  }
}

void Parser::parse_body_to(Block& body, std::string_view end) {
  expect(TokenType::kBlockEnd, "'%}'");
  body = parse_body({end});
  expect_name(end);
}

Stmt Parser::parse_statement() {
  if (block_level_ >= kBlockDepthMax)
    fail(absl::StrCat("more than ", kBlockDepthMax, " blocks in one another"));
  ++block_level_;
  Stmt stmt = make_stmt(StmtType::kBreak);
  std::string name = expect_identifier("a statement");
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
    if (loop_level_ == 0) fail("'" + name + "' outside of a loop");
    if (name == "continue") stmt.type = StmtType::kContinue;
  } else {
    fail(absl::StrCat("unknown or misplaced statement '", name, "' (supported: ", to_absl(kStatements), ")"));
  }
  --block_level_;
  return stmt;
}

Stmt Parser::parse_for() {
  Stmt stmt = make_stmt(StmtType::kFor);
  stmt.target = parse_target(false);
  expect_name("in");
  stmt.expr = parse_tuple(TupleKind::kNoCondition);
  if (skip_name("if")) stmt.filter = parse_expression();
  stmt.recursive = skip_name("recursive");
  expect(TokenType::kBlockEnd, "'%}'");
  ++loop_level_;
  stmt.body = parse_body({"else", "endfor"});
  --loop_level_;
  if (skip_name("else")) {
    parse_body_to(stmt.else_body, "endfor");
  } else {
    expect_name("endfor");
  }
  return stmt;
}

Stmt Parser::parse_if() {
  Stmt stmt = make_stmt(StmtType::kIf);
  ++conditional_level_;
  for (;;) {
    Branch branch;
    branch.condition = parse_tuple(TupleKind::kNoCondition);
    expect(TokenType::kBlockEnd, "'%}'");
    branch.body = parse_body({"elif", "else", "endif"});
    stmt.branches.push_back(std::move(branch));
    if (skip_name("elif")) continue;
    if (skip_name("else")) {
      stmt.branches.emplace_back();
      parse_body_to(stmt.branches.back().body, "endif");
    } else {
      expect_name("endif");
    }
    --conditional_level_;
    return stmt;
  }
}

Stmt Parser::parse_set() {
  Stmt stmt = make_stmt(StmtType::kSet);
  stmt.target = parse_target(true);
  if (skip_operator("=")) {
    stmt.expr = parse_tuple(TupleKind::kFull);
    return stmt;
  }
  stmt.type = StmtType::kSetBlock;
  if (at_operator("|")) stmt.expr = parse_filters(make(ExprType::kFilterInput));
  parse_body_to(stmt.body, "endset");
  return stmt;
}

ExprPtr Parser::parse_single_target(bool with_namespace) {
  if (skip_operator("(")) {
    Level level(*this, kBlockDepthMax);
    ExprPtr target = parse_target(false);
    expect_operator(")");
    return target;
  }
  ExprPtr target = make(ExprType::kName);
  target->name = expect_identifier("a variable's name");
  constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False", "None"};
  if (std::find(std::begin(kReserved), std::end(kReserved), target->name) != std::end(kReserved)) {
    fail("'" + target->name + "' cannot be assigned to");
  }
  if (!with_namespace || !skip_operator(".")) return target;
  ExprPtr field = make(ExprType::kAttribute);
  field->name = expect_identifier("a namespace's field");
  field->items.push_back(std::move(target));
  return finish(std::move(field));
}

ExprPtr Parser::parse_target(bool with_namespace) {
  ExprPtr first = parse_single_target(with_namespace);
  if (!at_operator(",")) return first;
  ExprPtr tuple = make(ExprType::kTuple);
  tuple->items.push_back(std::move(first));
  while (skip_operator(",")) {
    if (at_name("in") || at_tuple_end()) break;
    tuple->items.push_back(parse_single_target(with_namespace));
  }
  return finish(std::move(tuple));
}

std::vector<Parameter> Parser::parse_parameters() {
  std::vector<Parameter> parameters;
  expect_operator("(");
  while (!at_operator(")")) {
    if (!parameters.empty()) expect_operator(",");
    if (at_operator(")")) break;
    Parameter parameter;
    parameter.name = expect_identifier("a parameter's name");
    if (skip_operator("=")) {
      parameter.fallback = parse_expression();
    } else if (!parameters.empty() && parameters.back().fallback != nullptr) {
      fail("a parameter without default follows one with");
    }
    parameters.push_back(std::move(parameter));
  }
  expect_operator(")");
  return parameters;
}

Stmt Parser::parse_macro() {
  Stmt stmt = make_stmt(StmtType::kMacro);
  stmt.name = expect_identifier("a macro's name");
  stmt.parameters = parse_parameters();
  parse_macro_body(stmt, "endmacro");
  return stmt;
}

void Parser::parse_macro_body(Stmt& stmt, std::string_view end) {
  int loops = std::exchange(loop_level_, 0);
  MacroExtras outer = std::exchange(extras_, {});
  parse_body_to(stmt.body, end);
  stmt.extras = extras_;
  // Names read by an inner macro count as read by the outer one, too.
  extras_ = {outer.varargs || extras_.varargs, outer.kwargs || extras_.kwargs,
             outer.caller || extras_.caller};
  loop_level_ = loops;
}

Stmt Parser::parse_call_block() {
  Stmt stmt = make_stmt(StmtType::kCallBlock);
  if (at_operator("(")) stmt.parameters = parse_parameters();
  stmt.expr = parse_expression();
  if (stmt.expr->type != ExprType::kCall) fail("expected a call, as in {% call name() %}");
  parse_macro_body(stmt, "endcall");
  return stmt;
}

Stmt Parser::parse_filter_block() {
  Stmt stmt = make_stmt(StmtType::kFilterBlock);
  stmt.expr = parse_filters(parse_filter(make(ExprType::kFilterInput)));
  parse_body_to(stmt.body, "endfilter");
  return stmt;
}

Stmt Parser::parse_with() {
  Stmt stmt = make_stmt(StmtType::kWith);
  while (peek().type != TokenType::kBlockEnd) {
    if (!stmt.assignments.empty()) expect_operator(",");
    ExprPtr target = parse_single_target(false);
    expect_operator("=");
    stmt.assignments.emplace_back(std::move(target), parse_expression());
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

#pragma once

// A parsed template. Expressions and statements are plain tagged structs: `type` determines the meaning of
// the fields, as noted beside it. Immutable after parse.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/text/jinja/value.h"

namespace troupe::jinja {

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using Block = std::vector<Stmt>;

enum class ExprType : uint8_t {
  kConst,      // value
  kName,       // name
  kList,       // items
  kTuple,      // items
  kDict,       // items: key, value, key, value …
  kAttribute,  // items[0].name
  kItem,       // items[0][items[1]]
  kSlice,      // items: start, stop, step; null where left out. Only as items[1] of kItem
  kCall,       // items[0](arguments)
  kFilter,     // items[0]|name(arguments)
  kTest,       // items[0] is name(arguments)
  kNot,        // not items[0]
  kNegate,     // -items[0]
  kPlus,       // +items[0]
  kBinary,     // items[0] name items[1]; name is + - * / // % **
  kConcat,     // items joined by ~
  kCompare,    // items[0] names[0] items[1] names[1] items[2] …
  kAnd,        // items[0] and items[1]
  kOr,
  kCondition,    // items[0]: then, items[1]: if, items[2]: else or null
  kFilterInput,  // what a filter block captured
};

struct Expr {
  ExprType type = ExprType::kConst;
  int line = 0;
  int depth = 1;  // expression levels, this one included: bounds recursion
  Value value;
  std::string name;
  std::vector<std::string> names;
  std::vector<ExprPtr> items;
  // Arguments of calls, filters and tests, besides items; named ones in `named`.
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;         // *star; may be null
  ExprPtr double_star;  // **double_star; may be null
};

// Names that a macro's body may read although they are no parameters.
struct MacroExtras {
  bool varargs = false;  // positional arguments beyond the parameters
  bool kwargs = false;   // named ones
  bool caller = false;   // the body of a {% call %}
};

enum class StmtType : uint8_t {
  kText,         // text
  kOutput,       // expr
  kIf,           // branches in order; an else is a branch without condition
  kFor,          // target, expr (the iterable), filter or null, body, else_body, recursive
  kSet,          // target = expr
  kSetBlock,     // target = body's output, through the filters of expr (may be null)
  kMacro,        // name, parameters, body
  kCallBlock,    // expr (the call) with a caller() of parameters and body
  kFilterBlock,  // body's output through the filters of expr
  kWith,         // targets[i] = values[i], body
  kScope,        // body with variables of its own ({% generation %})
  kBreak,
  kContinue,
};

struct Parameter {
  std::string name;
  ExprPtr fallback;  // may be null
};

struct Branch {
  ExprPtr condition;
  Block body;
};

struct Stmt {
  StmtType type = StmtType::kText;
  int line = 0;
  std::string text;
  std::string name;
  ExprPtr target;  // kName, kTuple of targets, or kAttribute of a name (a namespace's field)
  ExprPtr expr;
  ExprPtr filter;
  bool recursive = false;
  Block body;
  Block else_body;
  std::vector<Branch> branches;
  std::vector<Parameter> parameters;
  MacroExtras extras;  // of kMacro and kCallBlock
  std::vector<std::pair<ExprPtr, ExprPtr>> assignments;
};

// Deepest nesting of expressions (long chains of + and ~ count a level each) and of blocks.
inline constexpr int kExprDepthMax = 400;
inline constexpr int kBlockDepthMax = 60;

}  // namespace troupe::jinja

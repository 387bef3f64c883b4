// GBNF: rules `name ::= alternatives`, each to the end of its line unless it goes on in parentheses or behind
// a `|`. Read into trees first, since rules may be used before they are defined; then rules that are small
// expressions and not recursive are put in where they are used, which leaves the parser less to do.

#include "absl/strings/str_cat.h"
#include "common/core/work_limit.h"
#include "common/grammar/front/front_ends.h"
#include "common/grammar/front/gbnf_tree.h"
#include "common/grammar/regex/encode.h"
#include "common/json/json.h"

namespace troupe::grammar {

namespace {

class GbnfCompiler {
 public:
  GbnfCompiler(RuleBuilder& builder, const GbnfTree& tree)
      : tree_(tree), builder_(builder), rules_(tree.names.size()) {}

  StatusOr<Symbol> compile() {
    int64_t root = -1;
    for (size_t i = 0; i < tree_.names.size(); ++i) {
      if (tree_.bodies[i] < 0)
        return invalid_argument(absl::StrCat("grammar: rule '", tree_.names[i], "' is not defined"));
      if (tree_.names[i] == "root") root = static_cast<int64_t>(i);
    }
    if (root < 0) return invalid_argument("grammar: rule 'root' is not defined");
    return rule(static_cast<uint32_t>(root), 0);
  }

 private:
  static constexpr int kDepthMax = 200;
  static constexpr uint32_t kInlineDepthMax = 4;
  enum class Progress : uint8_t { kNone, kUnderway, kDone };
  struct Rule {
    Progress progress = Progress::kNone;
    bool has_id = false;  // a rule of the builder; else it is put in as an expression
    Symbol symbol{};
  };

  Symbol own_rule(uint32_t index) {
    Rule& rule = rules_[index];
    if (!rule.has_id) rule.symbol = Symbol::rule(builder_.add_rule());
    rule.has_id = true;
    return rule.symbol;
  }

  StatusOr<Symbol> rule(uint32_t index, int depth) {
    if (rules_[index].progress == Progress::kDone) return rules_[index].symbol;
    if (rules_[index].progress == Progress::kUnderway) return own_rule(index);
    rules_[index].progress = Progress::kUnderway;
    TROUPE_ASSIGN_OR_RETURN(const Symbol body, node(static_cast<uint32_t>(tree_.bodies[index]), depth + 1));
    rules_[index].progress = Progress::kDone;
    const bool is_small = body.kind == Symbol::Kind::kExpression &&
                          builder_.expressions().store().nodes[body.id].depth <= kInlineDepthMax;
    if (is_small && !rules_[index].has_id) {
      rules_[index].symbol = body;
    } else {
      builder_.add(own_rule(index).id, {body});
    }
    return rules_[index].symbol;
  }

  StatusOr<Symbol> node(uint32_t id, int depth) {
    const GbnfTree::Node& node = tree_.nodes[id];
    TROUPE_RETURN_IF_ERROR(count_work(64));
    if (depth > kDepthMax) return invalid_argument("grammar: rules are nested too deeply");
    if (!builder_.fits()) return invalid_argument("the grammar is too large");
    switch (node.kind) {
      case GbnfTree::Kind::kText:
        return Symbol::expression(builder_.expressions().literal(node.text));
      case GbnfTree::Kind::kChars:
        return Symbol::expression(encode(builder_.expressions(), node.chars, Encoding::kUtf8));
      case GbnfTree::Kind::kRule:
        return rule(node.rule, depth);
      default:
        break;
    }
    std::vector<Symbol> parts;
    for (const uint32_t child : node.children) {
      TROUPE_ASSIGN_OR_RETURN(const Symbol part, this->node(child, depth + 1));
      parts.push_back(part);
    }
    if (node.kind == GbnfTree::Kind::kSequence) return builder_.sequence(parts);
    if (node.kind == GbnfTree::Kind::kAlternatives) return builder_.either(parts);
    return builder_.repeat(parts[0], node.min, node.max);
  }

  const GbnfTree& tree_;
  RuleBuilder& builder_;
  std::vector<Rule> rules_;
};

}  // namespace

StatusOr<Symbol> symbol_of_gbnf(RuleBuilder& builder, std::string_view grammar) {
  if (grammar.size() > kGbnfBytesMax) return invalid_argument("the grammar is too long");
  if (!is_valid_utf8(grammar)) return invalid_argument("the grammar is not UTF-8");
  TROUPE_ASSIGN_OR_RETURN(const GbnfTree tree, parse_gbnf(grammar));
  return GbnfCompiler(builder, tree).compile();
}

}  // namespace troupe::grammar

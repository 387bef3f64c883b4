#include "common/grammar/regex/regex_tree.h"

#include "absl/strings/str_cat.h"
#include "common/grammar/regex/regex_reader.h"

namespace troupe::grammar {

namespace {

constexpr int kDepthMax = 60;
constexpr uint32_t kRepeatMax = 100'000;

class Parser {
 public:
  Parser(std::string_view text, const RegexOptions& options) : reader_(text), options_(options) {}

  StatusOr<RegexTree> parse() {
    TROUPE_RETURN_IF_ERROR(read_flags());
    TROUPE_ASSIGN_OR_RETURN(tree_.root, alternatives(0));
    if (!reader_.at_end()) return reader_.error("unmatched ')'");
    return std::move(tree_);
  }

 private:
  using Kind = RegexTree::Kind;

  // (?i) and (?s) at the very beginning, as Python has them.
  Status read_flags() {
    for (;;) {
      if (reader_.take("(?i)")) {
        options_.ignores_case = true;
      } else if (reader_.take("(?s)")) {
        options_.dot_is_all = true;
      } else {
        return {};
      }
    }
  }

  uint32_t add(RegexTree::Node node) {
    for (const uint32_t child : node.children)
      node.has_anchor = node.has_anchor || tree_.nodes[child].has_anchor;
    if (node.kind == Kind::kTextStart || node.kind == Kind::kTextEnd) node.has_anchor = true;
    tree_.nodes.push_back(std::move(node));
    return static_cast<uint32_t>(tree_.nodes.size()) - 1;
  }

  StatusOr<uint32_t> alternatives(int depth) {
    if (depth > kDepthMax) return reader_.error("groups are nested too deeply");
    RegexTree::Node node{.kind = Kind::kAlternatives};
    do {
      TROUPE_ASSIGN_OR_RETURN(const uint32_t option, sequence(depth));
      node.children.push_back(option);
    } while (reader_.take("|"));
    if (node.children.size() == 1) return node.children[0];
    return add(std::move(node));
  }

  StatusOr<uint32_t> sequence(int depth) {
    RegexTree::Node node{.kind = Kind::kSequence};
    while (!reader_.at_end() && reader_.peek() != '|' && reader_.peek() != ')') {
      TROUPE_ASSIGN_OR_RETURN(uint32_t item, atom(depth));
      TROUPE_ASSIGN_OR_RETURN(item, quantified(item));
      node.children.push_back(item);
    }
    if (node.children.size() == 1) return node.children[0];
    return add(std::move(node));
  }

  StatusOr<uint32_t> atom(int depth) {
    if (reader_.take("^")) return add({.kind = Kind::kTextStart});
    if (reader_.take("$")) return add({.kind = Kind::kTextEnd});
    if (reader_.take("(")) return group(depth);
    if (reader_.take(".")) {
      CharSet ends = CharSet::of('\n');
      for (const uint32_t c : {0x0Du, 0x2028u, 0x2029u}) ends.add(CharSet::of(c));
      return chars(options_.dot_is_all ? CharSet::all() : ends.complement());
    }
    if (reader_.peek() == '*' || reader_.peek() == '+' || reader_.peek() == '?')
      return reader_.error("nothing to repeat");
    TROUPE_ASSIGN_OR_RETURN(const CharSet set,
                            reader_.take("[") ? reader_.char_class(options_.ignores_case) : reader_.single());
    return chars(set);
  }

  uint32_t chars(const CharSet& set) {
    return add({.kind = Kind::kChars, .chars = options_.ignores_case ? set.with_both_cases() : set});
  }

  StatusOr<uint32_t> group(int depth) {
    for (const std::string_view look : {"?=", "?!", "?<=", "?<!"})
      if (reader_.take(look)) return reader_.error("look-around is not supported");
    if (reader_.take("?<") || reader_.take("?P<")) {
      while (!reader_.at_end() && reader_.peek() != '>') reader_.skip();
      if (!reader_.take(">")) return reader_.error("a group's name does not end");
    } else if (!reader_.take("?:") && reader_.peek() == '?') {
      return reader_.error("groups of this kind are not supported");
    }
    TROUPE_ASSIGN_OR_RETURN(const uint32_t inner, alternatives(depth + 1));
    if (!reader_.take(")")) return reader_.error("a group does not end");
    return inner;
  }

  StatusOr<uint32_t> quantified(uint32_t item) {
    uint32_t min = 0, max = RegexSet::kUnbounded;
    if (reader_.take("*")) {
    } else if (reader_.take("+")) {
      min = 1;
    } else if (reader_.take("?")) {
      max = 1;
    } else if (!reader_.counts(min, max)) {
      return item;
    }
    if (min > kRepeatMax || (max != RegexSet::kUnbounded && max > kRepeatMax))
      return reader_.error("too many repetitions");
    if (max < min) return reader_.error("a repetition's bounds are out of order");
    reader_.take("?");  // lazy
    const char next = reader_.at_end() ? '\0' : reader_.peek();
    if (next == '*' || next == '+' || next == '?') return reader_.error("a quantifier is repeated");
    return add({.kind = Kind::kRepeat, .children = {item}, .min = min, .max = max});
  }

  RegexReader reader_;
  RegexOptions options_;
  RegexTree tree_;
};

}  // namespace

StatusOr<RegexTree> parse_regex_tree(std::string_view text, const RegexOptions& options) {
  return Parser(text, options).parse();
}

}  // namespace troupe::grammar

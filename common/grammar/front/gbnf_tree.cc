#include "common/grammar/front/gbnf_tree.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/core/work_limit.h"
#include "common/grammar/regex/encode.h"
#include "common/grammar/regex/regex_reader.h"
#include "common/grammar/regex/regex_set.h"

namespace troupe::grammar {

namespace {

constexpr int kNestingMax = 60;
constexpr uint32_t kRepeatMax = 20'000;

using Tree = GbnfTree;
using Node = GbnfTree::Node;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  StatusOr<Tree> parse() {
    skip_space(true);
    while (at_ < text_.size()) {
      TROUPE_RETURN_IF_ERROR(count_work(64));
      TROUPE_ASSIGN_OR_RETURN(const uint32_t rule, rule_name());
      skip_space(false);
      if (!take("::=")) return error("'::=' is missing");
      if (tree_.bodies[rule] >= 0) return error("a rule is defined twice");
      skip_space(true);
      TROUPE_ASSIGN_OR_RETURN(tree_.bodies[rule], alternatives(0));
      if (at_ < text_.size() && peek() != '\n' && peek() != '\r') return error("unexpected text");
      skip_space(true);
    }
    return std::move(tree_);
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(std::string_view token) {
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  Status error(std::string_view message) const {
    return invalid_argument(absl::StrCat("grammar: ", to_absl(message), " at byte ", at_));
  }
  uint32_t add(Node node) {
    tree_.nodes.push_back(std::move(node));
    return static_cast<uint32_t>(tree_.nodes.size()) - 1;
  }
  static bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  }

  void skip_space(bool lines) {
    while (at_ < text_.size()) {
      const char c = peek();
      if (c == '#') {
        while (at_ < text_.size() && peek() != '\n') ++at_;
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  StatusOr<uint32_t> rule_name() {
    const size_t begin = at_;
    while (is_name_char(peek())) ++at_;
    if (at_ == begin) return error("a rule's name is missing");
    const std::string name(text_.substr(begin, at_ - begin));
    const auto [found, is_new] = rules_.emplace(name, static_cast<uint32_t>(tree_.names.size()));
    if (is_new) {
      tree_.names.push_back(name);
      tree_.bodies.push_back(-1);
    }
    return found->second;
  }

  StatusOr<uint32_t> alternatives(int depth) {
    if (depth > kNestingMax) return error("groups are nested too deeply");
    Node node{.kind = GbnfTree::Kind::kAlternatives};
    do {
      skip_space(depth > 0 || !node.children.empty());
      TROUPE_ASSIGN_OR_RETURN(const uint32_t option, sequence(depth));
      node.children.push_back(option);
    } while (take("|"));
    if (node.children.size() == 1) return node.children[0];
    return add(std::move(node));
  }

  StatusOr<uint32_t> sequence(int depth) {
    Node node{.kind = GbnfTree::Kind::kSequence};
    for (;;) {
      skip_space(depth > 0);
      const char c = peek();
      if (c == '\0' || c == '|' || c == ')' || c == '\n' || c == '\r') break;
      TROUPE_ASSIGN_OR_RETURN(uint32_t item, element(depth));
      for (;;) {
        TROUPE_ASSIGN_OR_RETURN(const bool is_repeated, repeat(item));
        if (!is_repeated) break;
      }
      node.children.push_back(item);
    }
    return add(std::move(node));
  }

  StatusOr<uint32_t> element(int depth) {
    if (take("(")) {
      TROUPE_ASSIGN_OR_RETURN(const uint32_t inner, alternatives(depth + 1));
      skip_space(true);
      if (!take(")")) return error("')' is missing");
      return inner;
    }
    if (take("\"")) return quoted_text();
    if (take("[")) return char_class();
    if (take(".")) return add({.kind = GbnfTree::Kind::kChars, .chars = CharSet::all()});
    if (peek() == '<' || peek() == '!') return error("tokens in a grammar are not supported");
    TROUPE_ASSIGN_OR_RETURN(const uint32_t rule, rule_name());
    return add({.kind = GbnfTree::Kind::kRule, .rule = rule});
  }

  StatusOr<uint32_t> character() {
    if (!take("\\")) return next_character(text_, at_);
    if (at_ >= text_.size()) return error("an escape does not end");
    const char c = text_[at_++];
    switch (c) {
      case 'x':
        return hex(2);
      case 'u':
        return hex(4);
      case 'U':
        return hex(8);
      case 't':
        return '\t';
      case 'r':
        return '\r';
      case 'n':
        return '\n';
      case '\\':
      case '"':
      case '[':
      case ']':
        return static_cast<uint32_t>(c);
      default:
        return error("unknown escape");
    }
  }

  StatusOr<uint32_t> hex(size_t digits) {
    uint64_t value = 0;
    for (size_t i = 0; i < digits; ++i) {
      const char c = peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return error("a hexadecimal digit is missing");
      value = value << 4 | static_cast<uint64_t>(digit);
      ++at_;
    }
    if (value > CharSet::kLast || (value >= 0xD800 && value <= 0xDFFF)) return error("no such character");
    return static_cast<uint32_t>(value);
  }

  StatusOr<uint32_t> quoted_text() {
    Node node{.kind = GbnfTree::Kind::kText};
    while (!take("\"")) {
      if (at_ >= text_.size()) return error("a text does not end");
      TROUPE_ASSIGN_OR_RETURN(const uint32_t c, character());
      append_utf8(node.text, c);
    }
    return add(std::move(node));
  }

  StatusOr<uint32_t> char_class() {
    const bool is_negated = take("^");
    CharSet set;
    while (!take("]")) {
      if (at_ >= text_.size()) return error("a class does not end");
      TROUPE_ASSIGN_OR_RETURN(const uint32_t first, character());
      uint32_t last = first;
      if (peek() == '-' && text_.substr(at_, 2) != "-]") {
        ++at_;
        if (at_ >= text_.size()) return error("a class does not end");
        TROUPE_ASSIGN_OR_RETURN(last, character());
      }
      set.add(CharSet::range(first, last));
    }
    return add({.kind = GbnfTree::Kind::kChars, .chars = is_negated ? set.complement() : set});
  }

  StatusOr<bool> repeat(uint32_t& item) {
    skip_space(false);
    uint32_t min = 0, max = RegexSet::kUnbounded;
    if (take("*")) {
    } else if (take("+")) {
      min = 1;
    } else if (take("?")) {
      max = 1;
    } else if (take("{")) {
      const bool has_min = number(min);
      max = min;
      skip_space(false);
      if (take(",")) {
        skip_space(false);
        if (!number(max)) max = RegexSet::kUnbounded;
      } else if (!has_min) {
        return error("a count is missing");
      }
      skip_space(false);
      if (!take("}")) return error("'}' is missing");
    } else {
      return false;
    }
    if (min > kRepeatMax || (max > kRepeatMax && max != RegexSet::kUnbounded))
      return error("too many repetitions");
    if (max < min) return error("a repetition's bounds are out of order");
    item = add({.kind = GbnfTree::Kind::kRepeat, .children = {item}, .min = min, .max = max});
    return true;
  }

  bool number(uint32_t& out) {
    skip_space(false);
    uint64_t value = 0;
    const size_t begin = at_;
    for (; peek() >= '0' && peek() <= '9'; ++at_)
      value = std::min<uint64_t>(value * 10 + static_cast<uint64_t>(peek() - '0'), UINT32_MAX - 1);
    out = static_cast<uint32_t>(value);
    return at_ > begin;
  }

  std::string_view text_;
  size_t at_ = 0;
  Tree tree_;
  absl::flat_hash_map<std::string, uint32_t> rules_;
};

}  // namespace

StatusOr<GbnfTree> parse_gbnf(std::string_view text) {
  return Parser(text).parse();
}

}  // namespace troupe::grammar

#include "common/grammar/regex/parse_regex.h"

#include <algorithm>
#include <array>

#include "common/grammar/regex/regex_tree.h"
#include "common/json/json.h"

namespace troupe::grammar {

namespace {

// Anchors bind the expression's ends to the text's. So the meaning of a tree is built from its edges: of each
// alternative the sequence of its items, where ^ may stand first and $ last, also in groups that do.
class Meaning {
 public:
  Meaning(RegexSet& expressions, const RegexTree& tree, const RegexOptions& options)
      : expressions_(expressions), tree_(tree), options_(options) {
    const RegexId any = encode(expressions, CharSet::all(), options.encoding);
    rest_ = options.searches ? expressions.repeat(any, 0, RegexSet::kUnbounded) : RegexSet::kEmpty;
  }

  StatusOr<RegexId> of_root() { return of_items({tree_.root}, rest_, rest_, 0); }

 private:
  using Kind = RegexTree::Kind;
  static constexpr size_t kSplitsMax = 2000;  // alternatives that are spelled out for their anchors' sake
  static constexpr int kDepthMax = 200;

  const RegexTree::Node& node(uint32_t id) const { return tree_.nodes[id]; }

  StatusOr<RegexId> of_items(std::vector<uint32_t> items, RegexId before, RegexId behind, int depth) {
    if (++splits_ > kSplitsMax || depth > kDepthMax)
      return invalid_argument("too many anchors in a regular expression");
    const auto is_anchor = [&](uint32_t id, Kind kind) { return node(id).kind == kind; };
    while (!items.empty() && is_anchor(items.front(), Kind::kTextStart)) {
      before = RegexSet::kEmpty;
      items.erase(items.begin());
    }
    while (!items.empty() && is_anchor(items.back(), Kind::kTextEnd)) {
      behind = RegexSet::kEmpty;
      items.pop_back();
    }
    for (const bool is_first : {true, false}) {
      if (items.empty()) break;
      const uint32_t edge = is_first ? items.front() : items.back();
      if (node(edge).has_anchor && node(edge).kind != Kind::kRepeat && !is_anchor(edge, Kind::kTextStart) &&
          !is_anchor(edge, Kind::kTextEnd))
        return split(items, is_first, before, behind, depth);
    }
    RegexId middle = RegexSet::kEmpty;
    for (size_t i = items.size(); i-- > 0;) {
      if (node(items[i]).has_anchor)
        return invalid_argument("^ or $ inside a regular expression is not supported");
      middle = expressions_.concat(of(items[i]), middle);
    }
    return expressions_.concat(std::array{before, middle, behind});
  }

  // Opens the group at an edge: once for each of its alternatives.
  StatusOr<RegexId> split(const std::vector<uint32_t>& items, bool is_first, RegexId before, RegexId behind,
                          int depth) {
    const uint32_t edge = is_first ? items.front() : items.back();
    const bool has_options = node(edge).kind == Kind::kAlternatives;
    std::vector<RegexId> results;
    for (size_t i = 0; i < (has_options ? node(edge).children.size() : 1); ++i) {
      std::vector<uint32_t> rest = items;
      const std::vector<uint32_t> inner =
          has_options ? std::vector<uint32_t>{node(edge).children[i]} : node(edge).children;
      const auto at = is_first ? rest.erase(rest.begin()) : rest.erase(rest.end() - 1);
      rest.insert(at, inner.begin(), inner.end());
      TROUPE_ASSIGN_OR_RETURN(const RegexId result, of_items(std::move(rest), before, behind, depth + 1));
      results.push_back(result);
    }
    return expressions_.either(std::move(results));
  }

  // REQUIRES: no anchor within.
  RegexId of(uint32_t id) {
    const RegexTree::Node& at = node(id);
    if (at.kind == Kind::kChars) return encode(expressions_, at.chars, options_.encoding);
    std::vector<RegexId> parts;
    for (const uint32_t child : at.children) parts.push_back(of(child));
    if (at.kind == Kind::kAlternatives) return expressions_.either(std::move(parts));
    if (at.kind == Kind::kRepeat) return expressions_.repeat(parts[0], at.min, at.max);
    return expressions_.concat(parts);
  }

  RegexSet& expressions_;
  const RegexTree& tree_;
  const RegexOptions& options_;
  RegexId rest_ = RegexSet::kEmpty;
  size_t splits_ = 0;
};

}  // namespace

StatusOr<RegexId> parse_regex(RegexSet& expressions, std::string_view text, const RegexOptions& options) {
  if (text.size() > kRegexTextMax) return invalid_argument("a regular expression is too long");
  if (!is_valid_utf8(text)) return invalid_argument("a regular expression is not UTF-8");
  TROUPE_ASSIGN_OR_RETURN(const RegexTree tree, parse_regex_tree(text, options));
  return Meaning(expressions, tree, options).of_root();
}

}  // namespace troupe::grammar

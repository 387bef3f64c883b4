#pragma once

// A regular expression as it was written, before its meaning: anchors still are places in it.

#include <string_view>
#include <vector>

#include "common/core/status.h"
#include "common/grammar/regex/char_set.h"
#include "common/grammar/regex/regex_options.h"

namespace troupe::grammar {

struct RegexTree {
  enum class Kind : uint8_t { kChars, kSequence, kAlternatives, kRepeat, kTextStart, kTextEnd };
  struct Node {
    Kind kind = Kind::kSequence;
    CharSet chars{};
    std::vector<uint32_t> children{};  // indices in nodes
    uint32_t min = 0, max = 0;         // kRepeat
    bool has_anchor = false;           // here or below
  };
  std::vector<Node> nodes;
  uint32_t root = 0;
};

StatusOr<RegexTree> parse_regex_tree(std::string_view text, const RegexOptions& options);

}  // namespace troupe::grammar

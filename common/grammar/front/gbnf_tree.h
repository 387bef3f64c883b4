#pragma once

// A GBNF grammar as it was written.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"
#include "common/grammar/regex/char_set.h"

namespace troupe::grammar {

struct GbnfTree {
  enum class Kind : uint8_t { kText, kChars, kRule, kSequence, kAlternatives, kRepeat };
  struct Node {
    Kind kind = Kind::kSequence;
    std::string text{};                // kText
    CharSet chars{};                   // kChars
    std::vector<uint32_t> children{};  // nodes
    uint32_t rule = 0;                 // kRule
    uint32_t min = 0, max = 0;         // kRepeat
  };
  std::vector<Node> nodes;
  std::vector<std::string> names;  // of rules
  std::vector<int64_t> bodies;     // of rules: nodes; -1: it is used and not defined
};

// REQUIRES: `text` is UTF-8. Errors (kInvalidArgument) say where.
StatusOr<GbnfTree> parse_gbnf(std::string_view text);

}  // namespace troupe::grammar

#pragma once

// Expressions as RegexSet keeps them.

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/grammar/regex/byte_set.h"
#include "common/grammar/regex/number_test.h"

namespace troupe::grammar {

using RegexId = uint32_t;

struct RegexLimits {
  size_t nodes_max = 1u << 18;
  uint32_t depth_max = 400;
  size_t work_max = 2'000'000;  // parts of unions and intersections, each time one is made
};

struct RegexStore {
  enum class Kind : uint8_t {
    kNothing,
    kEmpty,
    kBytes,
    kConcat,
    kEither,
    kBoth,
    kComplement,
    kRepeat,
    kNumber
  };
  // a, b, c by kind: index of a set; two expressions; first and count in lists_; an expression; expression,
  // min, max; index of a test, its state.
  struct Node {
    Kind kind = Kind::kNothing;
    bool nullable = false;
    bool plain = true;
    uint32_t depth = 1;       // how deep derivatives go into it; a measure of its size
    uint32_t counts_max = 0;  // the largest finite bound of a repetition within
    uint32_t a = 0, b = 0, c = 0;
  };

  std::vector<Node> nodes;
  std::vector<ByteSet> firsts;  // by node: its derivatives by all other bytes are kNothing
  std::vector<ByteSet> sets;
  std::vector<uint32_t> lists;
  std::vector<NumberTest> tests;
  absl::flat_hash_map<std::vector<uint32_t>, RegexId> ids;  // by kind and content

  // `content`: as RegexSet::add() takes it.
  ByteSet first_bytes(const Node& node, std::span<const uint32_t> content) const;
  uint32_t counts_max(const Node& node, std::span<const uint32_t> content) const;
  std::span<const uint32_t> items(const Node& node) const { return {lists.data() + node.a, node.b}; }
  // Puts the parts of parts of `kind` in their places, sorts them and leaves doubles out.
  void flatten(Kind kind, std::vector<RegexId>& parts) const;
};

}  // namespace troupe::grammar

#pragma once

// Regular expressions over bytes, each kept once (equal ones have equal ids), with Brzozowski's derivatives:
// the derivative of an expression by a byte matches what may follow that byte. Intersection and complement
// cost nothing more than union, so "a string that matches this pattern and is none of these" is one
// expression. Constructors simplify, so that the derivatives of an expression are finitely many.
//
// Bounded: past `nodes_max` expressions or `depth_max` of nesting every constructor returns kNothing and
// exhausted() stays true; the compiler and the automaton check it. Not thread-safe; copyable.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/grammar/regex/regex_store.h"

namespace troupe::grammar {

class RegexSet {
 public:
  static constexpr RegexId kNothing = 0;  // matches no text
  static constexpr RegexId kEmpty = 1;    // matches the empty text
  static constexpr uint32_t kUnbounded = UINT32_MAX;

  explicit RegexSet(const RegexLimits& limits = {});

  RegexId bytes(const ByteSet& set);
  RegexId byte_range(uint8_t first, uint8_t last) { return bytes(ByteSet::range(first, last)); }
  RegexId literal(std::string_view text);
  RegexId concat(RegexId first, RegexId second);
  RegexId concat(std::span<const RegexId> parts);
  RegexId either(std::vector<RegexId> options);
  RegexId both(std::vector<RegexId> conditions);
  // Every text of bytes but those of `expression`.
  RegexId complement(RegexId expression);
  RegexId repeat(RegexId expression, uint32_t min, uint32_t max);
  RegexId optional(RegexId expression) { return either({kEmpty, expression}); }
  RegexId number(const NumberTest& test);

  RegexId derivative(RegexId expression, uint8_t byte);
  // Frees the memory of derivatives that were asked for, and begins to count work anew; asked again, their
  // ids are the same.
  void forget_derivatives();
  // Whether it matches the empty text.
  bool nullable(RegexId expression) const { return store_.nodes[expression].nullable; }
  // Whether only kNothing matches nothing; otherwise that has to be looked for.
  bool is_plain(RegexId expression) const { return store_.nodes[expression].plain; }
  // All that is known of its expressions.
  const RegexStore& store() const { return store_; }
  // Bytes of one class, 0 …, are alike to every expression and derivative. `classes`: 256 entries; returns
  // how many classes there are.
  uint32_t byte_classes(std::span<uint8_t> classes) const;

  bool exhausted() const { return exhausted_; }
  size_t size() const { return store_.nodes.size(); }

 private:
  using Kind = RegexStore::Kind;
  using Node = RegexStore::Node;

  RegexId add(const Node& node, std::span<const uint32_t> content);
  RegexId number_at(uint32_t test, uint32_t state);
  RegexId list(Kind kind, std::vector<RegexId> items);
  RegexId merge_sets(std::vector<RegexId>& items, bool unite);
  RegexId derive(RegexId expression, uint8_t byte);

  RegexLimits limits_;
  bool exhausted_ = false;
  size_t work_ = 0;
  RegexStore store_;
  absl::flat_hash_map<uint64_t, RegexId> derivatives_;
};

}  // namespace troupe::grammar

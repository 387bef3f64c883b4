#pragma once

// Everything that a set of schemas, which all have to hold, asks of a value, sorted by the value's type.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/grammar/schema/decimal.h"
#include "common/grammar/schema/schema_index.h"

namespace troupe::grammar {

// Schemas that all have to hold. `chosen`: of a schema's groups of alternatives, those of which one
// alternative is among `schemas` already; a group is known by its keyword's value.
struct SchemaSet {
  std::vector<const bj::value*> schemas;  // sorted
  std::vector<const bj::value*> chosen;   // sorted

  void add(const bj::value* schema);
  bool operator==(const SchemaSet&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const SchemaSet& set) {
    return H::combine(std::move(h), set.schemas, set.chosen);
  }
};

enum TypeBit : uint8_t {
  kNullBit = 1,
  kBooleanBit = 2,
  kIntegerBit = 4,
  kFractionBit = 8,  // numbers that are not written as integers
  kStringBit = 16,
  kArrayBit = 32,
  kObjectBit = 64,
  kEveryType = 127
};

inline constexpr uint64_t kNoMax = UINT64_MAX;

struct CountRange {
  uint64_t min = 0, max = kNoMax;
  void at_least(uint64_t count) { min = std::max(min, count); }
  void at_most(uint64_t count) { max = std::min(max, count); }
  bool is_any() const { return min == 0 && max == kNoMax; }
};

struct NumberConstraints {
  struct Bound {
    Decimal value;
    bool is_upper = false, is_exclusive = false;
  };
  std::vector<Bound> bounds;
  std::vector<Decimal> multiples, not_multiples, excluded;
  bool is_any() const {
    return bounds.empty() && multiples.empty() && not_multiples.empty() && excluded.empty();
  }
};

struct StringConstraints {
  CountRange length;
  std::vector<std::string_view> patterns, formats, not_patterns, excluded;
  bool is_any() const {
    return length.is_any() && patterns.empty() && formats.empty() && not_patterns.empty() && excluded.empty();
  }
};

// One schema's word on an array's elements: those of `prefix` by position, all behind them by `rest`.
struct ArrayPart {
  std::vector<const bj::value*> prefix;
  const bj::value* rest = nullptr;  // null: any
};

// One schema's word on an object's members.
struct ObjectPart {
  const bj::object* properties = nullptr;
  const bj::object* patterns = nullptr;
  const bj::value* additional = nullptr;  // of members that neither names; null: any
};

struct Constraints {
  uint8_t types = kEveryType;
  std::optional<std::vector<const bj::value*>> values;  // enum, const
  std::vector<const bj::value*> excluded;               // not enum, not const
  NumberConstraints number;
  StringConstraints string;
  CountRange items;
  std::vector<ArrayPart> arrays;
  CountRange properties;
  std::vector<ObjectPart> objects;
  std::vector<std::string_view> required;
  std::vector<const bj::value*> names;  // propertyNames
  // Alternatives of which one has to hold beside all else: anyOf, oneOf and kin, by the keyword's value.
  struct Group {
    const bj::value* keyword = nullptr;
    std::vector<const bj::value*> alternatives = {};
    bool is_exclusive = false;           // exactly one
    const bj::value* negated = nullptr;  // not null: each of them breaks this schema, which others may, too
  };
  std::vector<Group> groups;
};

}  // namespace troupe::grammar

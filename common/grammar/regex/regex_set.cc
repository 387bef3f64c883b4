#include "common/grammar/regex/regex_set.h"

#include <algorithm>
#include <map>

namespace troupe::grammar {

RegexSet::RegexSet(const RegexLimits& limits) : limits_(limits) {
  add({.kind = Kind::kNothing}, {});
  add({.kind = Kind::kEmpty, .nullable = true}, {});
}

void RegexSet::forget_derivatives() {
  derivatives_ = {};
  work_ = 0;
}

RegexId RegexSet::add(const Node& node, std::span<const uint32_t> content) {
  std::vector<uint32_t> key = {static_cast<uint32_t>(node.kind)};
  key.insert(key.end(), content.begin(), content.end());
  const auto found = store_.ids.find(key);
  if (found != store_.ids.end()) return found->second;
  if (exhausted_ || store_.nodes.size() >= limits_.nodes_max || node.depth > limits_.depth_max) {
    exhausted_ = true;
    return kNothing;
  }
  const auto id = static_cast<RegexId>(store_.nodes.size());
  store_.ids.emplace(std::move(key), id);
  store_.firsts.push_back(store_.first_bytes(node, content));
  store_.nodes.push_back(node);
  store_.nodes.back().counts_max = store_.counts_max(node, content);
  if (node.kind == Kind::kEither || node.kind == Kind::kBoth) {
    store_.nodes.back().a = static_cast<uint32_t>(store_.lists.size());
    store_.nodes.back().b = static_cast<uint32_t>(content.size());
    store_.lists.insert(store_.lists.end(), content.begin(), content.end());
  }
  return id;
}

RegexId RegexSet::bytes(const ByteSet& set) {
  if (set.empty()) return kNothing;
  std::vector<uint32_t> content;
  for (const uint64_t word : set.words) {
    content.push_back(static_cast<uint32_t>(word));
    content.push_back(static_cast<uint32_t>(word >> 32));
  }
  const RegexId id = add({.kind = Kind::kBytes, .a = static_cast<uint32_t>(store_.sets.size())}, content);
  if (store_.nodes[id].a == store_.sets.size() && id != kNothing) store_.sets.push_back(set);
  return id;
}

RegexId RegexSet::literal(std::string_view text) {
  RegexId id = kEmpty;
  for (size_t i = text.size(); i-- > 0;) {
    const auto byte = static_cast<uint8_t>(text[i]);
    id = concat(byte_range(byte, byte), id);
  }
  return id;
}

RegexId RegexSet::concat(RegexId first, RegexId second) {
  if (first == kNothing || second == kNothing) return kNothing;
  if (first == kEmpty) return second;
  if (second == kEmpty) return first;
  const Node &a = store_.nodes[first], &b = store_.nodes[second];
  // A derivative descends into the second part only behind an empty first one.
  const uint32_t depth = a.nullable ? std::max(a.depth, b.depth) + 1 : std::max(a.depth + 1, 2u);
  const uint32_t content[] = {first, second};
  return add({.kind = Kind::kConcat,
              .nullable = a.nullable && b.nullable,
              .plain = a.plain && b.plain,
              .depth = depth,
              .a = first,
              .b = second},
             content);
}

RegexId RegexSet::concat(std::span<const RegexId> parts) {
  RegexId id = kEmpty;
  for (size_t i = parts.size(); i-- > 0;) id = concat(parts[i], id);
  return id;
}

// Takes the sets of single bytes out of `ids`; returns their union or intersection. REQUIRES: there is one.
RegexId RegexSet::merge_sets(std::vector<RegexId>& ids, bool unite) {
  ByteSet merged = unite ? ByteSet{} : ByteSet::range(0, 255);
  std::erase_if(ids, [&](RegexId id) {
    if (store_.nodes[id].kind != Kind::kBytes) return false;
    const ByteSet& set = store_.sets[store_.nodes[id].a];
    for (size_t i = 0; i < 4; ++i)
      merged.words[i] = unite ? merged.words[i] | set.words[i] : merged.words[i] & set.words[i];
    return true;
  });
  return bytes(merged);
}

RegexId RegexSet::list(Kind kind, std::vector<RegexId> ids) {
  const bool unite = kind == Kind::kEither;
  work_ += ids.size();
  store_.flatten(kind, ids);
  work_ += ids.size();
  if (work_ > limits_.work_max) exhausted_ = true;
  if (exhausted_) return kNothing;
  const auto is_set = [&](RegexId id) { return store_.nodes[id].kind == Kind::kBytes; };
  if (std::count_if(ids.begin(), ids.end(), is_set) > 1) {
    ids.push_back(merge_sets(ids, unite));
    std::sort(ids.begin(), ids.end());
  }
  const RegexId everything = complement(kNothing);
  const RegexId ruling = unite ? everything : kNothing, idle = unite ? kNothing : everything;
  if (std::find(ids.begin(), ids.end(), ruling) != ids.end()) return ruling;
  std::erase(ids, idle);
  if (ids.empty()) return idle;
  if (ids.size() == 1) return ids[0];
  Node node{.kind = kind, .nullable = !unite, .plain = unite};
  for (const RegexId id : ids) {
    const Node& item = store_.nodes[id];
    node.depth = std::max(node.depth, item.depth + 1);
    node.nullable = unite ? node.nullable || item.nullable : node.nullable && item.nullable;
    node.plain = node.plain && item.plain;
  }
  return add(node, ids);
}

RegexId RegexSet::either(std::vector<RegexId> options) {
  return list(Kind::kEither, std::move(options));
}

RegexId RegexSet::both(std::vector<RegexId> conditions) {
  return list(Kind::kBoth, std::move(conditions));
}

RegexId RegexSet::complement(RegexId expression) {
  const Node& node = store_.nodes[expression];
  if (node.kind == Kind::kComplement) return node.a;
  const uint32_t content[] = {expression};
  // The complement of nothing matches everything, so it is not empty; of any other it has to be looked for.
  return add({.kind = Kind::kComplement,
              .nullable = !node.nullable,
              .plain = expression == kNothing,
              .depth = node.depth + 1,
              .a = expression},
             content);
}

RegexId RegexSet::repeat(RegexId expression, uint32_t min, uint32_t max) {
  if (max == 0 || expression == kEmpty) return kEmpty;
  if (expression == kNothing) return min == 0 ? kEmpty : kNothing;
  if (min == 1 && max == 1) return expression;
  const Node& node = store_.nodes[expression];
  if (node.kind == Kind::kRepeat && node.b == 0 && node.c == kUnbounded) return expression;
  if (node.nullable) min = 0;
  const uint32_t content[] = {expression, min, max};
  return add({.kind = Kind::kRepeat,
              .nullable = min == 0,
              .plain = node.plain,
              .depth = node.depth + 1,
              .a = expression,
              .b = min,
              .c = max},
             content);
}

RegexId RegexSet::number(const NumberTest& test) {
  for (uint8_t digit = '0'; digit <= '9'; ++digit) byte_range(digit, digit);  // each a class of its own
  byte_range('.', '.');
  store_.tests.push_back(test);
  return number_at(static_cast<uint32_t>(store_.tests.size()) - 1, 0);
}

RegexId RegexSet::number_at(uint32_t test, uint32_t state) {
  const uint32_t content[] = {test, state};
  return add({.kind = Kind::kNumber,
              .nullable = store_.tests[test].holds(state),
              .plain = false,
              .a = test,
              .b = state},
             content);
}

RegexId RegexSet::derivative(RegexId expression, uint8_t byte) {
  if (!store_.firsts[expression].has(byte)) return kNothing;
  const Node& node = store_.nodes[expression];
  if (node.kind == Kind::kBytes) return kEmpty;
  // (A literal's, which are many, are not worth keeping.)
  if (node.kind == Kind::kConcat && store_.nodes[node.a].kind == Kind::kBytes) return node.b;
  const uint64_t key = uint64_t{expression} << 8 | byte;
  const auto found = derivatives_.find(key);
  if (found != derivatives_.end()) return found->second;
  if (derivatives_.size() >= 4 * limits_.nodes_max) exhausted_ = true;
  if (exhausted_) return kNothing;
  const RegexId result = derive(expression, byte);
  derivatives_.emplace(key, result);
  return result;
}

RegexId RegexSet::derive(RegexId expression, uint8_t byte) {
  const Node node = store_.nodes[expression];  // (constructors move store_.nodes)
  const auto all_parts = [&] {
    const auto inner = store_.items(node);
    work_ += inner.size();
    std::vector<RegexId> result(inner.begin(), inner.end());
    for (RegexId& id : result) id = derivative(id, byte);
    return result;
  };
  switch (node.kind) {
    case Kind::kConcat: {
      const RegexId first = concat(derivative(node.a, byte), node.b);
      return store_.nodes[node.a].nullable ? either({first, derivative(node.b, byte)}) : first;
    }
    case Kind::kEither:
      return either(all_parts());
    case Kind::kBoth:
      return both(all_parts());
    case Kind::kComplement:
      return complement(derivative(node.a, byte));
    case Kind::kRepeat: {
      const uint32_t min = node.b == 0 ? 0 : node.b - 1;
      const uint32_t max = node.c == kUnbounded ? kUnbounded : node.c - 1;
      return concat(derivative(node.a, byte), repeat(node.a, min, max));
    }
    case Kind::kNumber: {
      const auto state = store_.tests[node.a].next(node.b, byte);
      return state ? number_at(node.a, *state) : kNothing;
    }
    default:
      return kNothing;
  }
}

uint32_t RegexSet::byte_classes(std::span<uint8_t> classes) const {
  std::fill(classes.begin(), classes.end(), uint8_t{0});
  uint32_t count = 1;
  for (const ByteSet& set : store_.sets) {
    // Each class falls into the bytes within the set and those without.
    std::map<std::pair<uint8_t, bool>, uint8_t> parts;
    for (uint32_t b = 0; b < 256; ++b) {
      const auto part = std::pair(classes[b], set.has(static_cast<uint8_t>(b)));
      classes[b] = parts.emplace(part, static_cast<uint8_t>(parts.size())).first->second;
    }
    count = static_cast<uint32_t>(parts.size());
  }
  return count;
}

}  // namespace troupe::grammar

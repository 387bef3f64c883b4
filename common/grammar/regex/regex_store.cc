#include "common/grammar/regex/regex_store.h"

#include <algorithm>

namespace troupe::grammar {

ByteSet RegexStore::first_bytes(const Node& node, std::span<const uint32_t> content) const {
  ByteSet bytes;
  switch (node.kind) {
    case Kind::kNothing:
    case Kind::kEmpty:
      return bytes;
    case Kind::kBytes:
      for (size_t i = 0; i < content.size(); ++i)
        bytes.words[i / 2] |= uint64_t{content[i]} << (i % 2 == 0 ? 0 : 32);
      return bytes;
    case Kind::kConcat:
      bytes = firsts[node.a];
      if (nodes[node.a].nullable) bytes.add_all(firsts[node.b]);
      return bytes;
    case Kind::kEither:
      for (const uint32_t id : content) bytes.add_all(firsts[id]);
      return bytes;
    case Kind::kBoth:
      bytes = ByteSet::range(0, 255);
      for (const uint32_t id : content) bytes.keep_common(firsts[id]);
      return bytes;
    case Kind::kComplement:
      return ByteSet::range(0, 255);
    case Kind::kRepeat:
      return firsts[node.a];
    case Kind::kNumber:
      bytes = ByteSet::range('0', '9');
      bytes.add('.');
      return bytes;
  }
  return bytes;
}

uint32_t RegexStore::counts_max(const Node& node, std::span<const uint32_t> content) const {
  uint32_t most = 0;
  if (node.kind == Kind::kConcat) most = std::max(nodes[node.a].counts_max, nodes[node.b].counts_max);
  if (node.kind == Kind::kEither || node.kind == Kind::kBoth)
    for (const uint32_t id : content) most = std::max(most, nodes[id].counts_max);
  if (node.kind == Kind::kRepeat)
    most = std::max({nodes[node.a].counts_max, node.b, node.c == UINT32_MAX ? 0 : node.c});
  return most;
}

void RegexStore::flatten(Kind kind, std::vector<RegexId>& parts) const {
  std::vector<RegexId> flat;
  for (const RegexId id : parts) {
    if (nodes[id].kind == kind) {
      const auto inner = items(nodes[id]);
      flat.insert(flat.end(), inner.begin(), inner.end());
    } else {
      flat.push_back(id);
    }
  }
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  parts = std::move(flat);
}

}  // namespace troupe::grammar

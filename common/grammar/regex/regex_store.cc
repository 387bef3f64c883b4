#include "common/grammar/regex/regex_store.h"

#include <algorithm>

namespace troupe::grammar {

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

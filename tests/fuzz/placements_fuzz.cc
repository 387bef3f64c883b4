// What another gateway sends: any bytes decode or are refused, and what decodes is encoded as it was.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/route/gossip.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using troupe::route::ClusterView;
  std::vector<troupe::route::NodeView> nodes(3);
  for (size_t i = 0; i < nodes.size(); ++i) nodes[i].id = "node-" + std::to_string(i);
  const ClusterView view(1, nodes);
  const std::string_view message(reinterpret_cast<const char*>(data), size);
  const auto placements = troupe::route::decode_placements(message, view);
  if (!placements.ok()) return 0;
  const std::string again = troupe::route::encode_placements(*placements, view);
  const auto same = troupe::route::decode_placements(again, view);
  if (!same.ok() || same->size() != placements->size() || again.size() > message.size()) {
    std::fprintf(stderr, "violated: what was decoded is encoded as it was\n");
    std::abort();
  }
  return 0;
}

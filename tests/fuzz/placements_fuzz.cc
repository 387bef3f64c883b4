// Messages of another gateway, placements or a ledger: any bytes decode or are refused, and what decodes is
// encoded as it was.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/route/placement/gossip.h"

namespace {

template <typename Decoded, typename Encode, typename Decode>
void check(const Decoded& decoded, size_t bytes_max, Encode encode, Decode decode) {
  if (!decoded.ok()) return;
  const std::string again = encode(*decoded);
  const auto same = decode(again);
  if (same.ok() && same->size() == decoded->size() && again.size() <= bytes_max) return;
  std::fprintf(stderr, "violated: what was decoded is encoded as it was\n");
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using troupe::route::ClusterView;
  std::vector<troupe::route::NodeView> nodes(3);
  for (size_t i = 0; i < nodes.size(); ++i) nodes[i].id = "node-" + std::to_string(i);
  const ClusterView view(1, nodes);
  const std::string_view message(reinterpret_cast<const char*>(data), size);
  const auto placements = [&](std::string_view bytes) {
    return troupe::route::decode_placements(bytes, view);
  };
  check(
      placements(message), message.size(),
      [&](const auto& p) { return troupe::route::encode_placements(p, view); }, placements);
  const auto ledger = [&](std::string_view bytes) { return troupe::route::decode_ledger(bytes, view); };
  check(
      ledger(message), message.size(), [&](const auto& l) { return troupe::route::encode_ledger(l, view); },
      ledger);
  return 0;
}

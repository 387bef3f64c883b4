#pragma once

// Prompts that gateways have computed ahead of their requests: at nodes whose cache begins empty, and
// elsewhere when a node leaves (gateway/route/placement/handover.h). Those under way, by the id under which
// the node has them.

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "gateway/route/placement/handover.h"
#include "gateway/route/router.h"
#include "worker/schedule/request.h"

namespace troupe::sim {

class BackgroundPrefills {
 public:
  struct Prefill {
    size_t gateway = 0;
    uint64_t gateway_incarnation = 0;
    route::Handover::Move move;
    int32_t tokens = 0;
    std::optional<route::MovedConversation> moved{};  // a conversation: of `move`, only who takes it to whom
    uint64_t from_incarnation = 0;                    // of the conversation's node
  };
  // Nodes know requests by ids in which this bit is not set.
  static constexpr RequestId kBit = RequestId{1} << 63;
  static bool is_one(RequestId id) { return (id & kBit) != 0; }

  RequestId begin(const Prefill& prefill);
  std::optional<Prefill> end(RequestId id);
  // The node died with all it was computing.
  std::vector<Prefill> end_all_at(route::NodeIndex node);

 private:
  absl::flat_hash_map<RequestId, Prefill> under_way_;
  RequestId last_ = kBit;
};

}  // namespace troupe::sim

#pragma once

// The prompts that each gateway has computed ahead at nodes whose cache begins empty, and elsewhere when one
// leaves (gateway/route/placement/handover.h), and the prefixes that it would have the texts of. Private to
// simulator*.cc.

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gateway/route/placement/conversation_handover.h"
#include "gateway/route/placement/handover.h"
#include "gateway/route/router.h"
#include "worker/schedule/request.h"

namespace troupe::sim {

class Handovers {
 public:
  // The part of a request's prompt that belongs to its set.
  struct Prefix {
    std::vector<uint64_t> blocks;  // ids of its full blocks
    int32_t tokens = 0;
  };
  struct Ahead {
    size_t gateway = 0;
    uint64_t gateway_life = 0;
    route::Handover::Move move;
    int32_t tokens = 0;
    std::optional<route::MovedConversation> moved{};  // a conversation: of `move`, only who takes it to whom
    uint64_t from_life = 0;                           // of the conversation's node
  };
  // The conversations of a node that leaves, at one gateway; gone before its router is.
  struct Leaving {
    size_t gateway = 0;
    uint64_t life = 0;  // of the node, which leaves once in a life
    std::vector<route::MovedConversation> conversations{};
    std::unique_ptr<route::ConversationHandover> moves{};
  };
  // Nodes know requests by ids in which this bit is not set.
  static constexpr RequestId kBit = RequestId{1} << 63;
  static bool is_one(RequestId id) { return (id & kBit) != 0; }

  // `sets_max`: those that come later are not kept, and not computed ahead.
  explicit Handovers(size_t sets_max) : sets_max_(sets_max) {}

  bool knows(const Hash128& set) const { return prefixes_.contains(set); }
  void keep(const Hash128& set, Prefix prefix);
  const Prefix* find(const Hash128& set) const;
  std::vector<Hash128> sets() const;

  RequestId begin(const Ahead& ahead);
  std::optional<Ahead> end(RequestId id);
  // The node died with all it was computing.
  std::vector<Ahead> end_all_at(route::NodeIndex node);

 private:
  size_t sets_max_;
  absl::flat_hash_map<Hash128, Prefix> prefixes_;
  std::vector<Hash128> order_;  // of keep(): a hash map's own differs from run to run
  absl::flat_hash_map<RequestId, Ahead> under_way_;
  RequestId last_ = kBit;
};

}  // namespace troupe::sim

#include "gateway/route/placement/conversation_handover.h"

#include "common/core/check.h"

namespace troupe::route {

ConversationHandover::ConversationHandover(Handover& handover, NodeIndex node, TimePoint now, TimePoint by)
    : handover_(handover), node_(node), until_(now + (by - now) / 2) {
  handover_.hold(node_);
}

ConversationHandover::~ConversationHandover() {
  if (!over_) handover_.release(node_);
}

void ConversationHandover::listed(size_t count, TimePoint now) {
  TROUPE_CHECK(!listed_, "the node's conversations were listed before");
  listed_ = true;
  count_ = count;
  settle(now);
}

std::optional<size_t> ConversationHandover::next(TimePoint now) {
  if (listed_ && !nothing_left(now) && under_way_ < kConversationsAtOnce) {
    under_way_ += 1;
    return next_++;
  }
  settle(now);
  return std::nullopt;
}

void ConversationHandover::carried(TimePoint now) {
  TROUPE_CHECK(under_way_ > 0, "no conversation is under way");
  under_way_ -= 1;
  settle(now);
}

void ConversationHandover::settle(TimePoint now) {
  if (over_ || !listed_ || under_way_ > 0 || !nothing_left(now)) return;
  over_ = true;
  handover_.release(node_);
}

}  // namespace troupe::route

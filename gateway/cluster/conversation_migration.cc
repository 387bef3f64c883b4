// Moves the conversations of a worker that drains: lists them, has them computed elsewhere, and reports them
// there. Several at once, by last use, in half of the worker's time; the other half is for its sets.

#include <utility>

#include "gateway/cluster/prefix_migrator.h"
#include "gateway/route/placement/conversation_handover.h"
#include "gateway/upstream/ask_once.h"

namespace troupe {

using route::kNoNode;
using route::NodeIndex;

namespace {

constexpr size_t kListBytesMax = 4u << 20;           // some 20,000 conversations
constexpr size_t kConversationBytesMax = 16u << 20;  // a million tokens and more

}  // namespace

struct PrefixMigrator::Leaving {
  Leaving(Fleet& fleet, route::Handover& handover, NodeIndex node, TimePoint now, TimePoint by)
      : hold(fleet), moves(handover, node, now, by) {}

  const Fleet::Hold hold;
  route::ConversationHandover moves;
  std::vector<CachedConversation> conversations;
};

// Held by each task at it. When the last one is gone, in whatever way, the worker's sets may go.
class PrefixMigrator::Carrier {
 public:
  Carrier(PrefixMigrator& migrator, std::shared_ptr<Leaving> leaving)
      : migrator_(migrator), leaving_(std::move(leaving)) {}
  ~Carrier() {
    leaving_.reset();
    migrator_.look_again_.wake();
  }
  Leaving& leaving() { return *leaving_; }
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;

 private:
  PrefixMigrator& migrator_;
  std::shared_ptr<Leaving> leaving_;
};

void PrefixMigrator::hold_for_conversations(NodeIndex node, TimePoint now, TimePoint by) {
  to_ask_.push_back(std::make_shared<Leaving>(fleet_, router_.handover(), node, now, by));
}

Task<void> PrefixMigrator::ask_for_conversations(std::shared_ptr<Leaving> leaving, TaskGroup& group) {
  const Carrier asking(*this, leaving);
  const NodeIndex node = leaving->moves.node();
  ClientRequest request;
  request.method = "GET";
  request.target = kConversationsPath;
  const Deadline within{leaving->moves.until()};
  const ForwardResult result = co_await ask_once(fleet_.client(node), request, within, kListBytesMax);
  auto conversations = parse_conversation_list(result.held_body);
  if (result.end != ForwardResult::End::kAnswered || !conversations.ok()) {
    log_.debug("conversations_not_told", {{"worker", fleet_.id(node)}, {"status", result.status}});
    leaving->moves.listed(0, clock_.now());
    co_return;
  }
  leaving->conversations = std::move(conversations.value());
  leaving->moves.listed(leaving->conversations.size(), clock_.now());
  log_.info("conversations_leave",
            {{"worker", fleet_.id(node)}, {"conversations", leaving->conversations.size()}});
  for (size_t i = 0; i < route::kConversationsAtOnce; ++i) {
    group.spawn(carry_conversations(std::make_unique<Carrier>(*this, leaving)));
  }
}

// One of several tasks that drive the worker's ConversationHandover.
Task<void> PrefixMigrator::carry_conversations(std::unique_ptr<Carrier> carrier) {
  Leaving& leaving = carrier->leaving();
  while (const auto next = leaving.moves.next(clock_.now())) {
    co_await carry(leaving, leaving.conversations[*next]);
    leaving.moves.carried(clock_.now());
  }
}

// The ids pass through here as they are.
Task<void> PrefixMigrator::carry(const Leaving& leaving, const CachedConversation& conversation) {
  const route::MovedConversation known{conversation.session, conversation.set, conversation.tokens,
                                       conversation.prefix_tokens};
  const NodeIndex to = router_.targets().next_home(known, conversation.model, leaving.moves.node());
  if (to == kNoNode || !fleet_.is_troupe_worker(to) || !router_.view().routable(to)) co_return;
  const Deadline within{leaving.moves.until()};
  ClientRequest request;
  request.method = "GET";
  request.target = std::string(kConversationsPath) + "/" + conversation.session.hex();
  const ForwardResult source =
      co_await ask_once(fleet_.client(leaving.moves.node()), request, within, kConversationBytesMax);
  if (source.end != ForwardResult::End::kAnswered) co_return;  // evicted meanwhile
  request.method = "POST";
  request.target = kConversationsPath;
  request.headers.emplace_back("content-type", "application/json");
  request.body = source.held_body;
  const ForwardResult made = co_await ask_once(fleet_.client(to), request, within);
  const auto answer = parse_json(made.held_body);
  if (made.end != ForwardResult::End::kAnswered || !answer.ok() || !answer->is_object()) {
    log_.debug("conversation_not_computed", {{"worker", fleet_.id(to)}, {"status", made.status}});
    co_return;
  }
  count(answer->as_object());
  conversations_.Increment();
  router_.targets().computed(known, to, clock_.now());
}

}  // namespace troupe

#pragma once

// A router's whole state, as policies see it (const), and the question they all ask of it: how much of this
// request does that node hold?

#include <absl/container/inlined_vector.h>

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "gateway/route/fleet/load_tracker.h"
#include "gateway/route/fleet/residency.h"
#include "gateway/route/fleet/residency_feed.h"
#include "gateway/route/fleet/set_stats.h"
#include "gateway/route/fleet/view.h"
#include "gateway/route/key/prefix_key.h"
#include "gateway/route/key/prompt_history.h"
#include "gateway/route/key/token_estimate.h"
#include "gateway/route/options.h"
#include "gateway/route/placement/handover.h"
#include "gateway/route/placement/table.h"

namespace troupe::route {

// Residency as reported by the workers. Shared by the routers of a simulator, where each would hold the same.
struct ExactResidency {
  explicit ExactResidency(size_t items_per_node_max) : index(items_per_node_max) {}
  FeedResult apply(NodeIndex node, const ResidencyEvent& event) { return feeds.apply(node, event, index); }
  void forget_node(NodeIndex node) {
    feeds.forget_node(node);
    index.drop_node(node);
  }
  ResidencyIndex index;
  ResidencyFeeds feeds;
};

struct ClusterState {
  std::shared_ptr<const ClusterView> view;
  std::shared_ptr<const SetTable> table;
  LoadTracker loads;
  std::shared_ptr<ExactResidency> exact;
  ResidencyIndex shadow;
  SetStats sets;
  TokenRatio ratio;
  int64_t gateways = 1;  // known to share the fleet
  Handover handover;
  PromptHistory history;
  double conversation_tokens = 0;  // mean of a conversation's own, beyond its set's; decaying

  // KV memory of the node that holds nothing a request might ask for again: by its report, or by what was
  // placed there. None: not known.
  std::optional<int64_t> kv_room(NodeIndex node) const;
};

// Resident parts of one request, node by node. Of a conversation as much as its earlier prompts and this one
// have in common (prompt_history.h). A few look-ups when made, a binary search a node after. A
// request without a session is looked up by its chain: the deepest anchors with a holder.
class CachedPrefix {
 public:
  CachedPrefix(const ClusterState& knowledge, const PrefixKey& key, const RequestTokens& tokens);

  struct Here {
    int64_t set_tokens = 0;  // resident, of the set's prefix
    // Tokens of the prompt, always less than it, that need not be computed. `cached` takes the
    // conversation to go on as it was; `expected` ends where this prompt is another than the earlier ones, to
    // a message: it may be that only a word at its end is new. (A node that has more of it is not worse for
    // that.)
    int64_t cached = 0, expected = 0;
    bool session = false;  // more than the set: some of the conversation
  };
  Here at(NodeIndex node) const;
  int64_t set_tokens(NodeIndex node) const;
  // The rule of at(): what counts of these tokens of the set and of the session.
  Here count(NodeIndex node, int64_t set_tokens, int64_t session_tokens) const;

  // Nodes that hold the set, or something of the session: by exact residency and by placements. A node may be
  // in both: it has reported an earlier prompt, and not yet the last one.
  std::span<const Holder> set_exact() const { return set_exact_; }
  std::span<const Holder> set_shadow() const { return set_shadow_; }
  std::span<const Holder> session_exact() const { return session_exact_; }
  std::span<const Holder> session_shadow() const { return session_shadow_; }
  std::span<const Holder> chain() const { return chain_; }
  size_t set_holders() const { return set_exact_.size() + set_shadow_.size(); }
  bool session_known() const {
    return !session_exact_.empty() || !session_shadow_.empty() || !chain_.empty();
  }
  bool known() const { return set_holders() > 0 || session_known(); }

 private:
  void look_up_ancestors(const ClusterState& knowledge, const PrefixKey& key);
  void look_up_chain(const ClusterState& knowledge, const PrefixKey& key);
  bool hold_anchor(const ClusterState& knowledge, const Hash128& anchor, int64_t tokens);

  bool whole(NodeIndex node, int64_t set_tokens) const;

  const LoadTracker& loads_;
  RequestTokens tokens_;
  int64_t whole_prefix_;  // tokens of the whole set; a node may lack one block of them
  std::span<const Holder> set_exact_, set_shadow_, session_exact_, session_shadow_;
  absl::InlinedVector<Holder, 8> chain_;         // deepest first
  std::optional<PromptHistory::Common> common_;  // of the conversation's earlier prompts and this one
};

// True also without the set's last block, which holds the text that follows as well.
inline bool CachedPrefix::whole(NodeIndex node, int64_t set_tokens) const {
  return tokens_.prefix == 0 || set_tokens >= whole_prefix_ - loads_.block_tokens(node);
}

inline CachedPrefix::Here CachedPrefix::count(NodeIndex node, int64_t set_tokens,
                                              int64_t session_tokens) const {
  Here here;
  here.set_tokens = set_tokens;
  // A node that lost some of the persona lost what follows it.
  here.session = session_tokens > set_tokens && whole(node, set_tokens);
  here.cached = std::min(here.session ? session_tokens : set_tokens, tokens_.prompt - 1);
  here.expected = here.cached;
  if (common_ && here.session) {
    const int64_t seen =
        common_->in_last_prompt ? std::min(session_tokens, common_->tokens) : common_->tokens;
    here.expected = std::min(std::max(seen, set_tokens), tokens_.prompt - 1);
  }
  return here;
}

// Tokens of the prompt up to and including this anchor.
int64_t anchor_tokens(const Anchor& anchor, const TokenRatio& ratio);
// The anchors beyond the set's prefix, the shallowest first: an unnamed session is known by them.
std::span<const Anchor> chain_of(const PrefixKey& key);

}  // namespace troupe::route

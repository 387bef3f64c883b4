#pragma once

// The load of each node. A gateway knows at once and exactly what it has itself in flight (its ledger), and
// late but completely what a node reports; requests there are
//
//   last report − own at the time of that report + own now
//
// and pending tokens (uncached prompt tokens of requests without a first token yet)
//
//   last report − those of own requests that have had their first token since, not below 0
//   + those of own requests sent since
//
// for a report counts a prompt's chunks down, the ledger only whole prompts. Work done is a
// rate, from the reports' work counters, or else from what this gateway sent.
//
// Where gateways send each other their ledgers (peer_ledger), requests are the sum of those, and of what
// reports have had for a second and no ledger accounts for: clients and gateways that send us no ledger.
// Pending tokens are as above, and what the others' ledgers have changed by since the last report.
//
// A decision needs means over all nodes and the least loaded of them: both are kept up with every change, so
// nothing is ever scanned. Nodes that serve the same model are a group: means and ranks are taken within it.
// Rates are decayed when they are looked at, by their timestamps.

#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/time.h"
#include "gateway/route/fleet/least_loaded.h"
#include "gateway/route/fleet/view.h"
#include "gateway/route/key/token_estimate.h"
#include "gateway/route/options.h"

namespace troupe::route {

// A node's own report (GET /v1/load). Zero where it does not say.
struct NodeReport {
  int64_t running = 0;
  int64_t queued = 0;
  int64_t pending_prefill_tokens = 0;
  int64_t work_tokens_total = 0;  // computed since its start, prompt and answer tokens
  int64_t max_num_seqs = 0;       // its batch, at most
  int64_t block_tokens = 0;       // of one KV block
  int64_t kv_tokens_total = 0;
  int64_t kv_tokens_free = 0;     // cached ones included
  int64_t kv_tokens_cached = -1;  // of those; below 0: it does not say
};

// Another gateway's ledger of one node: values, not changes, so a lost message heals with the next.
struct PeerLoad {
  NodeIndex node = kNoNode;
  int64_t in_flight = 0;
  int64_t pending_tokens = 0;
};

struct NodeLoad {
  int64_t in_flight = 0;       // own, a request of n answers n times
  int64_t pending_tokens = 0;  // own
  // By its last report: what was not ours then. May be negative: a report that is behind our own knowledge.
  int64_t others_requests = 0;
  int64_t reported_pending_tokens = 0;  // of its last report, less own that ended since
  int64_t fresh_pending_tokens = 0;     // own since then
  uint32_t reports = 0;
  int64_t peers_requests = 0;  // by the other gateways' ledgers
  int64_t peers_pending_tokens = 0;
  int64_t peers_pending_then = 0;   // at its last report
  double unaccounted_requests = 0;  // by its reports, beyond all ledgers; a mean, may be negative
  NodeReport report;
  bool reported = false;
  TimePoint reported_at{};
  uint32_t incarnation = 0;  // counts its deaths
};

// The load part of a node's cost, in prompt tokens.
struct LoadCost {
  double pending = 0;   // pending tokens at their weight
  double relative = 0;  // the load term: against the fleet's mean, convex, and the batch's guard
  double total() const { return pending + relative; }
};

// Not thread-safe.
class LoadTracker {
 public:
  explicit LoadTracker(const AffinityOptions& options);

  // One request's booking; given back by close(). The caller closes exactly once.
  struct Ticket {
    NodeIndex node = kNoNode;
    uint32_t incarnation = 0;
    uint32_t reports = 0;  // of the node, when it was opened
    int64_t pending_tokens = 0;
    int64_t answers = 1;
  };
  struct Booking {
    int64_t pending_tokens = 0;  // uncached prompt tokens
    int64_t work_tokens = 0;     // those and the answer's, as far as it can be guessed
    int64_t prompt_tokens = 0;   // all of the prompt; 0: not known
    int64_t answers = 1;         // as many as nodes count, in what they report, as running and queued
  };

  void update_cluster(const ClusterView& view);
  void change(const AffinityOptions& options);  // what loads weigh, from the next look on
  Ticket open(NodeIndex node, const Booking& booking, TimePoint now);
  void first_byte(Ticket& ticket);
  void close(Ticket& ticket);
  void report(NodeIndex node, const NodeReport& report, TimePoint now);
  // The node died: its reports, its work and what is booked there are void; open tickets close to nothing.
  void forget_node(NodeIndex node);

  // Replaces what `gateway` (a number of the caller's) had said of these nodes.
  void peer_loads(uint32_t gateway, std::span<const PeerLoad> loads);
  void forget_peer(uint32_t gateway);
  // Appends own values of the nodes where they changed since the last call (`all`: of every node, so that
  // what was lost heals).
  void take_changes(std::vector<PeerLoad>& out, bool all);

  size_t size() const { return loads_.size(); }
  const NodeLoad& at(NodeIndex node) const { return loads_[node]; }
  double requests(NodeIndex node) const { return cached_[node].requests; }       // b, never below 0
  double pending_tokens(NodeIndex node) const { return cached_[node].pending; }  // p, never below 0
  double work_rate(NodeIndex node) const;                                        // w, tokens/s
  // This gateway's alone: what a router knows without reports of workers or other routers.
  double own_requests(NodeIndex node) const { return static_cast<double>(loads_[node].in_flight); }
  double own_pending_tokens(NodeIndex node) const { return static_cast<double>(loads_[node].pending_tokens); }
  // Caches hold whole blocks: of how many tokens there, by its reports or else the usual.
  int64_t block_tokens(NodeIndex node) const {
    const int64_t reported = node < loads_.size() ? loads_[node].report.block_tokens : 0;
    return reported > 0 ? reported : kBlockTokens;
  }
  // Own, over all nodes.
  int64_t in_flight_total() const { return in_flight_total_; }
  int64_t pending_tokens_total() const { return pending_total_; }

  // The routable nodes that serve one model, with their means. Valid until the next update_cluster().
  struct Group {
    std::vector<NodeIndex> nodes;
    double weight = 0, requests = 0, reported_work = 0, own_work = 0;  // sums (own_work: inflated)
    LeastLoaded least;  // by load cost; slots are indices into `nodes`
    size_t refresh = 0;
  };
  // Null when no routable node serves it.
  const Group* group(std::string_view model) const;
  bool in_group(const Group& group, NodeIndex node) const;
  bool suspect(NodeIndex node) const { return cached_[node].suspect; }
  // Has as many requests of this gateway as it may be sent.
  bool full(NodeIndex node) const { return cached_[node].full; }

  // Means that a group's loads are compared with: made once a decision.
  struct Means {
    double requests = 0;
    double inverse = 1;       // of the mean requests with the slack
    double inverse_work = 0;  // of the mean work
    double busy = 0;          // 0 on an idle fleet, near 1 where nodes have many requests at once
    double load_tokens = 0;   // the load term's weight, scaled
  };
  Means means(const Group& group) const;
  LoadCost cost(const Means& means, NodeIndex node) const;

  // Factor of the tokens that load and noise weigh: less than 1 where prompts are short.
  double scale() const {
    return std::min(1.0, prompt_mean_ * options_.load_prompt_share / options_.load_tokens);
  }

  // Decays what is kept as a rate up to `now`. Every method with `now` does so; a decision should first.
  void advance(TimePoint now);

 private:
  // Values that sums and ranks were last updated with.
  struct Cached {
    double requests = 0, pending = 0, reported_work = 0, own_work = 0;
    double per_weight = 1;  // 1 / weight
    double saturation = 0;  // the guard's part of the load term
    bool suspect = false;   // ranked after all others
    bool full = false;
    bool dirty = false;  // in changed_
  };
  struct Place {
    Group* group = nullptr;
    uint32_t slot = 0;
  };
  struct PeerBook {
    std::map<NodeIndex, PeerLoad> loads;  // by node: rounding must not hang on a hash
  };

  void resize(size_t nodes);
  enum class Changed : uint8_t { kOwn, kOthers };
  void touch(NodeIndex node, Changed what);
  void rank(Group& group, const Means& means, size_t slot);
  static void account(NodeLoad& load, TimePoint now);
  void apply_peer(const PeerLoad& load, int64_t sign);
  void end_pending(const Ticket& ticket);
  void rebase(TimePoint now);

  AffinityOptions options_;
  double pending_weight_;
  std::vector<NodeLoad> loads_;
  std::vector<Cached> cached_;
  std::vector<std::vector<Place>> places_;  // by node: the groups it belongs to, and its slot there
  std::vector<int64_t> in_flight_max_;
  int64_t in_flight_total_ = 0;
  int64_t pending_total_ = 0;
  double prompt_mean_;  // tokens of a prompt, decaying
  absl::flat_hash_map<std::string, std::unique_ptr<Group>> groups_;
  absl::flat_hash_map<uint32_t, PeerBook> peers_;
  std::vector<NodeIndex> changed_;  // own values, since take_changes()
  // own_work is kept inflated by e^((t - base)/time constant), so that decay is one factor for all.
  TimePoint base_{};
  TimePoint deflated_at_{};
  double deflate_ = 1;
};

// Inline: every decision calls these for each of its candidates.

inline bool LoadTracker::in_group(const Group& group, NodeIndex node) const {
  if (node >= places_.size()) return false;
  for (const auto& [its, slot] : places_[node]) {
    if (its == &group) return true;
  }
  return false;
}

inline double LoadTracker::work_rate(NodeIndex node) const {
  return cached_[node].reported_work + cached_[node].own_work * deflate_;
}

inline LoadCost LoadTracker::cost(const Means& means, NodeIndex node) const {
  const Cached& c = cached_[node];
  double work = 1;
  if (means.inverse_work > 0) work += means.busy * (work_rate(node) * c.per_weight * means.inverse_work - 1);
  const double requests = (c.requests * c.per_weight + options_.requests_slack) * means.inverse;
  const double load = options_.work_share * work + (1 - options_.work_share) * requests;
  const double above = std::max(load - 1, 0.0);
  const double relative = load + options_.load_convex * above * above + c.saturation;
  return {pending_weight_ * c.pending * c.per_weight, means.load_tokens * relative};
}

}  // namespace troupe::route

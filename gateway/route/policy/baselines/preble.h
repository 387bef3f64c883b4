#pragma once

// Preble's E2 scheduler: exploit what is cached where most of a prompt is known, else explore.
//
// A tree of prompts, every link of it with the set of nodes that its prompts were sent to. If more than half
// of a prompt is known, it goes to the cheapest node of the deepest known link's set (so a conversation
// stays); otherwise to the cheapest of all. The parts that matter, those longer than all before them, make up
// a node's cost, in seconds, over the last three minutes:
//
//   Σ over its parts   miss rate × requests × prefill time of the part / nodes it is on
//                      + requests active × 45 tokens × mean time per token
//
// Sets shrink by rebalancing: where the dearest node costs more than 1.5 × the cheapest, its cheapest parts
// move there with all that follows them, until it does not; a part that is alone on its node is copied
// instead when its time to first token has doubled from one half of the window to the next.
//
// Source: Srivatsa et al., "Preble: Efficient distributed prompt scheduling for LLM serving", ICLR 2025;
// preble/global_scheduler_with_time.py with its defaults (window 180 s, rebalancing from 50 requests a node
// on, threshold 1.5, TTFT ratio 2, .15 s a token until measured, 45 tokens an answer where the request sets
// no bound, no eviction model; prefill by its fit to Mistral 7B on an A6000, .12 ms a token). Mended: the
// original takes the place in the subset of the cheapest node for the node itself (calculation of the least
// cost within a set), so it exploits on the wrong node. Different: means for medians, sums kept up instead of
// a pass over the tree a request, rebalancing at most every 100 ms.
//
// Known weakness: a part has one node until rebalancing, so a flash crowd waits for it there; and the tree,
// its sets and its loads are each gateway's own.

#include <absl/container/flat_hash_map.h>

#include <array>
#include <deque>
#include <map>
#include <vector>

#include "common/core/lru_map.h"
#include "gateway/route/policy/baselines/baselines.h"

namespace troupe::route {

class PreblePolicy final : public RoutePolicy {
 public:
  explicit PreblePolicy(const AffinityOptions& options);
  CandidateOrder choose(const PolicyInput& input, Random& random) const override;
  void on_sent(const PolicyRequest& request, TimePoint now) override;
  void first_byte(const PolicyRequest& request, TimePoint now) override;
  void on_finished(const PolicyRequest& request, TimePoint now) override;
  void update_cluster(const ClusterView& view) override;
  void forget_node(NodeIndex node) override;

 private:
  using PartId = uint32_t;
  static constexpr PartId kNoPart = 0;
  using NodeSet = std::vector<NodeIndex>;

  // A sum over half a window.
  struct Half {
    double sum = 0;
    int64_t count = 0;
    double mean() const { return count > 0 ? sum / static_cast<double>(count) : 0; }
  };
  struct Here {  // a part on a node
    NodeIndex node = kNoNode;
    int64_t active = 0;
    int64_t half = 0;            // the half window that `ttft` belongs to
    std::array<Half, 2> ttft{};  // the half before, the current one
  };
  struct Part {
    int64_t tokens = 0;                                       // its own, without what comes before
    int64_t requests = 0, hit_tokens = 0, prompt_tokens = 0;  // in the window
    NodeSet nodes;
    uint32_t moves = 0;  // number of rebalancing moves; the last one's target follows
    NodeIndex moved_to = kNoNode;
    absl::InlinedVector<Here, 2> here;
  };
  struct Link {
    PartId part = kNoPart;
    int64_t tokens = 0;
    bool own = false;    // the part's own link, not one below it: it shares the part's nodes
    uint32_t moves = 0;  // the part's moves when `nodes` was set
    NodeSet nodes;
  };
  struct Match {
    int64_t tokens = 0;
    PartId part = kNoPart;  // the deepest one with nodes
    NodeSet nodes;          // of the deepest link
  };
  struct Event {
    TimePoint at{};
    PartId part = kNoPart;
    int64_t prompt_tokens = 0, hit_tokens = 0;
  };
  struct Flight {
    PartId part = kNoPart;
    NodeIndex node = kNoNode;
    uint32_t incarnation = 0;
    TimePoint sent_at{}, first_at{};
  };

  Match match(const PromptLinks& links) const;
  const Part* find(PartId id) const;
  Part* find(PartId id) { return const_cast<Part*>(std::as_const(*this).find(id)); }
  static Here& here_of(Part& part, NodeIndex node);
  static NodeSet nodes_of(const Link& link, const Part& part);
  PartId part_of(const PolicyRequest& request, const PromptLinks& links);
  void join(Link& link, NodeIndex node);
  double cost_of(const Part& part, NodeIndex node) const;
  std::vector<double> costs() const;
  // Changes a part: takes its share out of every node's cost before and adds it back after.
  template <typename Change>
  void change(Part& part, Change&& change);
  void book(const Part& part, double sign);
  void expire(TimePoint now);
  void rebalance(TimePoint now);
  void level(NodeIndex dear, NodeIndex cheap, std::vector<double>& cost);
  bool overloaded(const Part& part, NodeIndex node, int64_t half) const;

  AffinityOptions options_;
  LruMap<Link> links_;
  std::map<PartId, Part> parts_;  // in order: sums must not depend on a hash
  PartId last_part_ = kNoPart;
  std::deque<Event> window_;
  absl::flat_hash_map<uint64_t, Flight> flights_;
  std::vector<double> cost_;       // by node, updated with every change
  std::vector<double> per_token_;  // mean seconds of an answer's token, by node
  std::vector<uint32_t> incarnation_;
  std::vector<bool> routable_;
  uint64_t sent_count_ = 0;
  TimePoint balanced_at_{};
};

}  // namespace troupe::route

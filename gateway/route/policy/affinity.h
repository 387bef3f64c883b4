#pragma once

// The affinity policy: every request goes where one smooth cost is least.
//
// clang-format off
//   cost = tokens to compute there + pending tokens × 2/15 + 333 × load          (all in prompt tokens)
//
//   tokens to compute   the prompt less what is resident of it there: the persona's set, the conversation.
//                       For a hot set with fewer copies than its load deserves, the persona of a node without
//                       it counts nearly nothing: the next copy grows there.
//   pending             prompt tokens that others wait for there. They cost at most what is to compute there:
//                       the worker computes short prompts beside long ones, so a conversation that lacks its
//                       last turn is not pushed off its node by queued personas, and a cold prompt goes to an
//                       idle one.
//   load                the node's work and requests against the fleet's mean, convex above it, steep before
//                       its batch is full (load_tracker.h).
//   noise               with several gateways, among nodes that hold nothing of the request: else all would
//                       send there at once.
// clang-format on
//
// Candidates are the nodes that can be least: holders of the session, holders of the set, the least loaded of
// all (every node without residency costs the same but for its load) and a random few; not the fleet. No node
// is excluded except in strict mode, where only the set's own nodes are candidates (and where all of them
// fail, those that Router::extend adds). In plan mode the table says what is resident: a set's homes hold its
// persona, and each conversation has one home among them.

#include <vector>

#include "gateway/route/policy/policy.h"

namespace troupe::route {

class AffinityPolicy final : public RoutePolicy {
 public:
  explicit AffinityPolicy(const AffinityOptions& options);
  CandidateOrder choose(const PolicyInput& input, Random& random) const override;

 private:
  class Choice;
  AffinityOptions options_;
  // Scratch of choose(), kept for its memory: what is known of a node in this decision. A slot without this
  // decision's number is stale.
  struct Noted {
    uint32_t decision = 0;
    uint32_t set_tokens = 0;
    uint32_t session_tokens = 0;
    bool taken = false;      // a candidate already
    bool set_known = false;  // set_tokens is right though its list was too long to scan
  };
  struct Scratch {
    std::vector<Noted> nodes;
    uint32_t decision = 0;
  };
  mutable Scratch scratch_;
};

}  // namespace troupe::route

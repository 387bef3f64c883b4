#pragma once

// The interface between a router and a policy. A policy sees all that the router knows, read-only, and
// answers with an order of nodes. Any further state of its own it learns from the same events as the router.
// `affinity` is the default (affinity.h); the baselines are there for comparison, selectable all the same.
//
// To add one: a class below RoutePolicy in a file of baselines/ that cites its source, its maker in
// baselines.h, its row in the list of policy.cc. Flags, reports and the simulator know it by that row.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/random.h"
#include "common/core/status.h"
#include "common/core/time.h"
#include "gateway/route/options.h"
#include "gateway/route/policy/candidates.h"
#include "gateway/route/policy/cluster_state.h"

namespace troupe::route {

struct PolicyInput {
  const ClusterState& known;
  const PrefixKey& key;
  const RequestTokens& tokens;
  std::string_view model;
  const LoadTracker::Group& group;  // the routable nodes that serve the model, never empty
  TimePoint now;
  uint64_t turn = 0;  // of this decision
};

// A policy receives every request that is sent, exactly once in each call: sent, first_byte (perhaps),
// finished.
struct PolicyRequest {
  uint64_t id = 0;  // the same in all three calls, unique within a router's life
  const PrefixKey& key;
  NodeIndex node = kNoNode;
  RequestTokens tokens;
  int64_t expect_cached = 0;
  int64_t completion_tokens = 0;  // when finished, if reported
};

// Not thread-safe.
class RoutePolicy {
 public:
  RoutePolicy() = default;
  RoutePolicy(const RoutePolicy&) = delete;
  RoutePolicy& operator=(const RoutePolicy&) = delete;
  virtual ~RoutePolicy() = default;

  // Has no visible effect: the same result for the same input and draw (explain calls it, too).
  virtual CandidateOrder choose(const PolicyInput& input, Random& random) const = 0;

  virtual void on_sent(const PolicyRequest&, TimePoint) {}
  virtual void first_byte(const PolicyRequest&, TimePoint) {}
  virtual void on_finished(const PolicyRequest&, TimePoint) {}
  virtual void update_cluster(const ClusterView&) {}
  virtual void forget_node(NodeIndex) {}
  // Another node has the slot from the next update_cluster() on.
  virtual void replace_node(NodeIndex node) { forget_node(node); }
};

// A policy's row: all that is known of it without making one.
struct PolicyInfo {
  std::string_view name;
  std::string_view summary;      // one clause, for reports
  bool reads_residency = false;  // its choices depend on how gateways learn what nodes hold
  bool follows_table = false;  // of homes: so sets are handed over, and a newcomer takes its share by and by
};

std::vector<std::string> policy_names();
// REQUIRES: check_policy(name).ok().
const PolicyInfo& policy_info(std::string_view name);
// The error lists the valid names.
Status check_policy(std::string_view name);
// REQUIRES: check_policy(name).ok().
std::unique_ptr<RoutePolicy> make_policy(std::string_view name, const AffinityOptions& options);

// A candidate with the fields that all policies fill in alike: suspicion, limits, the predicted hit.
inline Candidate plain_candidate(const PolicyInput& input, NodeIndex node, Branch branch, int64_t cached) {
  Candidate c;
  c.node = node;
  c.branch = branch;
  c.suspect = input.known.loads.suspect(node) || input.known.handover.avoids(node, input.key.set);
  c.overloaded = input.known.loads.full(node);
  const int64_t block = input.known.loads.block_tokens(node);
  c.expect_cached = cached / block * block;
  return c;
}

}  // namespace troupe::route

#pragma once

// The two policies that know nothing of caches: what a load balancer does by default.

#include "gateway/route/policy.h"

namespace troupe::route {

// Each node in turn.
class RoundRobinPolicy final : public RoutePolicy {
 public:
  explicit RoundRobinPolicy(const AffinityOptions& options) : options_(options) {}
  CandidateOrder choose(const PolicyInput& input, Random& random) const override;

 private:
  AffinityOptions options_;
};

// Fewest requests there, by weight; ties at random.
class LeastRequestsPolicy final : public RoutePolicy {
 public:
  explicit LeastRequestsPolicy(const AffinityOptions& options) : options_(options) {}
  CandidateOrder choose(const PolicyInput& input, Random& random) const override;

 private:
  AffinityOptions options_;
};

}  // namespace troupe::route

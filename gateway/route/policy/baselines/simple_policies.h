#pragma once

// The two policies without a cache model: a load balancer's defaults.
//
// Sources: nginx. Round-robin is its upstream module's default (src/http/ngx_http_upstream_round_robin.c;
// here all have the same turn, whatever their weight). Least requests is its `least_conn`
// (src/http/modules/ngx_http_upstream_least_conn_module.c): the server with the fewest active connections by
// weight, of those that this balancer itself has open. Of equals nginx takes one after the other; here they
// are drawn, so that several gateways do not take the same.

#include "gateway/route/policy/policy.h"

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

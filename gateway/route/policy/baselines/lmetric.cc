// LMetric: argmin of (new prefill tokens × batch size), where the batch counts this request too. No weight to
// tune: the product says that a token to compute delays the whole batch.
//
// Source: "LMetric", arXiv 2603.15202. Of its two readings p0 multiplies the request's own missing tokens, p1
// those and all that wait at the node before it:
//
//   p0 = miss × (requests + 1)                      p1 = (pending + miss) × (requests + 1)
//
// `lmetric` is p0, the stronger baseline: in the study p1 sustains 655 requests/s for p0's 684 (8 gateways,
// 200 personas; 459 for 634 with 2,000 and one), because pending tokens at par with one's own misses push
// sessions off their nodes. `lmetric-p1` is the other; it was ahead on traces with few shared prefixes.
//
// Known weakness: a node that holds all but a few tokens of a prompt costs nearly nothing however busy it is,
// so a hot set stays on its holders long after others are idle.

#include <algorithm>

#include "gateway/route/policy/baselines/baselines.h"

namespace troupe::route {
namespace {

class LMetricPolicy final : public RoutePolicy {
 public:
  LMetricPolicy(const AffinityOptions& options, double pending_weight)
      : options_(options), pending_weight_(pending_weight) {}

  CandidateOrder choose(const PolicyInput& input, Random& random) const override {
    const LoadTracker& loads = input.known.loads;
    return order_by_cost(input, options_.order_max, random_start(input, random),
                         [&](NodeIndex node, const CachedPrefix::Here& here) {
                           const auto miss = static_cast<double>(input.tokens.prompt - here.cached);
                           return (miss + pending_weight_ * loads.own_pending_tokens(node)) *
                                  (loads.own_requests(node) + 1);
                         });
  }

 private:
  AffinityOptions options_;
  double pending_weight_;
};

}  // namespace

std::unique_ptr<RoutePolicy> make_lmetric(const AffinityOptions& options) {
  return std::make_unique<LMetricPolicy>(options, 0);
}

std::unique_ptr<RoutePolicy> make_lmetric_p1(const AffinityOptions& options) {
  return std::make_unique<LMetricPolicy>(options, 1);
}

}  // namespace troupe::route

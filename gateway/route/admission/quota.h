#pragma once

// Quota of one client: requests a second, tokens a minute, concurrent requests. Token buckets (the first
// holds a second's requests, at least one; the other a minute's tokens). An answer's cost in tokens is known
// only when it ends, so tokens are taken then and may leave a debt, which delays the next request. Not
// thread-safe.

#include <cstdint>
#include <optional>
#include <string_view>

#include "common/core/time.h"
#include "gateway/route/admission/concurrency_limit.h"

namespace troupe::route {

struct QuotaLimits {  // 0: no limit
  double requests_per_s = 0;
  int64_t tokens_per_min = 0;
  int64_t requests_at_once = 0;
};

class Quota {
 public:
  Quota(const QuotaLimits& limits, TimePoint now);

  enum class Limit : uint8_t { kRequestsAtOnce, kRequestsPerSecond, kTokensPerMinute };
  struct Refusal {
    Limit limit;
    Duration wait;  // until there is room again; an estimate for kRequestsAtOnce (concurrency_limit.h)
  };
  // Nothing: the request is admitted, and end() must follow, once. A refused one has taken nothing.
  std::optional<Refusal> begin(TimePoint now);
  void end(int64_t tokens, TimePoint now);

  // Replaces the limits; use so far still counts.
  void change(const QuotaLimits& limits, TimePoint now);
  // The bucket of tokens; limit 0: there is none.
  struct View {
    int64_t limit = 0;
    int64_t remaining = 0;
    Duration full_in{};
  };
  View tokens(TimePoint now);
  int64_t running() const { return places_.taken(); }

 private:
  struct Bucket {
    double per_s = 0;  // 0: no limit
    double capacity = 0;
    double level = 0;

    void refill(double seconds);
    void resize(double new_per_s, double new_capacity);
    Duration wait_for(double amount) const;
  };
  void refill(TimePoint now);

  QuotaLimits limits_;
  Bucket requests_, tokens_;
  TimePoint last_;
  ConcurrencyLimit places_;
};

// As in the file of keys, and in metrics.
std::string_view quota_limit_name(Quota::Limit limit);

}  // namespace troupe::route

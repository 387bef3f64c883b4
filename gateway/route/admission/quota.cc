#include "gateway/route/admission/quota.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace troupe::route {

namespace {

constexpr double kTokenMin = 1;  // a request is admitted while there is one

double request_capacity(const QuotaLimits& limits) {
  return std::max(1.0, limits.requests_per_s);
}

}  // namespace

void Quota::Bucket::refill(double seconds) {
  level = std::min(capacity, level + per_s * seconds);
}

// A new bucket is full; an existing one keeps what was taken from it.
void Quota::Bucket::resize(double new_per_s, double new_capacity) {
  const double used = per_s > 0 ? capacity - level : 0;
  per_s = new_per_s;
  capacity = new_capacity;
  level = capacity - used;
}

Duration Quota::Bucket::wait_for(double amount) const {
  if (per_s <= 0 || level >= amount) return Duration::zero();
  const std::chrono::duration<double> seconds((amount - level) / per_s);
  return std::chrono::ceil<Duration>(std::min(seconds, std::chrono::duration<double>(86'400)));
}

Quota::Quota(const QuotaLimits& limits, TimePoint now) : last_(now) {
  change(limits, now);
}

void Quota::change(const QuotaLimits& limits, TimePoint now) {
  refill(now);
  limits_ = limits;
  requests_.resize(limits.requests_per_s, request_capacity(limits));
  const auto per_min = static_cast<double>(limits.tokens_per_min);
  tokens_.resize(per_min / 60, per_min);
}

void Quota::refill(TimePoint now) {
  const double seconds = std::chrono::duration<double>(std::max(now - last_, Duration::zero())).count();
  last_ = std::max(last_, now);
  requests_.refill(seconds);
  tokens_.refill(seconds);
}

std::optional<Quota::Refusal> Quota::begin(TimePoint now) {
  refill(now);
  if (const Duration wait = tokens_.wait_for(kTokenMin); wait > Duration::zero())
    return Refusal{Limit::kTokensPerMinute, wait};
  if (const Duration wait = requests_.wait_for(1); wait > Duration::zero())
    return Refusal{Limit::kRequestsPerSecond, wait};
  if (!places_.enter(limits_.requests_at_once, now))
    return Refusal{Limit::kRequestsAtOnce, places_.reject(now)};
  if (requests_.per_s > 0) requests_.level -= 1;
  return std::nullopt;
}

void Quota::end(int64_t tokens, TimePoint now) {
  refill(now);
  places_.leave(now);
  if (tokens_.per_s > 0) tokens_.level -= static_cast<double>(std::max<int64_t>(tokens, 0));
}

Quota::View Quota::tokens(TimePoint now) {
  refill(now);
  if (tokens_.per_s <= 0) return {};
  const auto left = static_cast<int64_t>(std::max(tokens_.level, 0.0));
  return {limits_.tokens_per_min, left, tokens_.wait_for(tokens_.capacity)};
}

std::string_view quota_limit_name(Quota::Limit limit) {
  switch (limit) {
    case Quota::Limit::kRequestsAtOnce:
      return "requests_at_once";
    case Quota::Limit::kRequestsPerSecond:
      return "requests_per_s";
    case Quota::Limit::kTokensPerMinute:
      break;
  }
  return "tokens_per_min";
}

}  // namespace troupe::route

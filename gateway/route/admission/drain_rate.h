#pragma once

// Drain rate of a queue: tokens a second admitted from it over the last seconds, counting only the time in
// which requests waited. (In an idle fleet the admitted tokens measure the demand instead.) Where so few were
// admitted that it is unknown, as with answers of a minute each, the rate at which a full pool serves.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "common/core/time.h"

namespace troupe::route {

// Least and greatest wait reported to a client; in whole seconds, as Retry-After has them.
inline constexpr Duration kComeBackMin = std::chrono::seconds(1), kComeBackMax = std::chrono::minutes(2);

inline Duration come_back_after(Duration wait) {
  return std::clamp<Duration>(std::chrono::ceil<std::chrono::seconds>(wait), kComeBackMin, kComeBackMax);
}

inline int retry_after_s(Duration wait) {
  return static_cast<int>(std::chrono::ceil<std::chrono::seconds>(wait).count());
}

inline Duration seconds_at_most_a_day(double seconds) {
  const std::chrono::duration<double> bounded(std::min(seconds, 86'400.0));
  return std::chrono::duration_cast<Duration>(bounded);
}

class DrainRate {
 public:
  // `waited`: requests waited in the time up to `now`.
  void advance(bool waited, TimePoint now) {
    const double dt = std::chrono::duration<double>(std::max(now - at_, Duration::zero())).count();
    at_ = std::max(at_, now);
    const double kept = std::exp(-dt / kMemorySeconds);
    tokens_ *= kept;
    requests_ *= kept;
    seconds_ = seconds_ * kept + (waited ? kMemorySeconds * (1 - kept) : 0);
    if (!waited) last_ = at_;
  }
  void let_in(int64_t tokens) {
    tokens_ += static_cast<double>(tokens);
    requests_ += 1;
    last_ = at_;
  }
  // Tokens a second; nothing: too few observations.
  std::optional<double> rate() const {
    if (requests_ < kRequestsMin || seconds_ < kSecondsMin) return std::nullopt;
    return tokens_ / seconds_;
  }
  // Time in which requests have waited and none was admitted.
  Duration stalled() const { return at_ - last_; }

 private:
  static constexpr double kMemorySeconds = 5, kRequestsMin = 4, kSecondsMin = 0.5;

  TimePoint at_{}, last_{};
  double tokens_ = 0, requests_ = 0, seconds_ = 0;  // decaying
};

// Tokens of answers that a place in the pool serves a second, by what its last answers took from admission to
// end. Their prompts are part of that time, but not of the tokens: a prompt is computed many times faster,
// and counted at this rate a long one would seem to take for ever.
class ServiceRate {
 public:
  void served(int64_t tokens, Duration took) {
    count_ = std::min(count_ + 1, kAnswersRemembered);
    const double weight = 1 / static_cast<double>(count_);
    tokens_ += weight * (static_cast<double>(tokens) - tokens_);
    seconds_ += weight * (std::chrono::duration<double>(took).count() - seconds_);
  }
  // Nothing: too few observations.
  std::optional<double> rate() const {
    if (count_ < kAnswersMin || seconds_ <= 0) return std::nullopt;
    return tokens_ / seconds_;
  }

 private:
  static constexpr int kAnswersRemembered = 32, kAnswersMin = 4;

  int count_ = 0;
  double tokens_ = 0, seconds_ = 0;  // means
};

}  // namespace troupe::route

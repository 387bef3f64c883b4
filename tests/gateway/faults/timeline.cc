#include "tests/gateway/faults/timeline.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace troupe::route::faults {

Duration ms(double value) {
  return Duration(static_cast<int64_t>(value * 1e6));
}

void Timeline::after(Duration delay, std::function<void()> act) {
  events_.push({now_ + std::max(delay, Duration::zero()), posted_++, std::move(act)});
}

void Timeline::every(Duration period, const std::function<void()>& act) {
  after(period, [this, period, act] {
    act();
    every(period, act);
  });
}

void Timeline::scatter(int count, double least_ms, Duration most, const std::function<void()>& act) {
  for (int i = 0; i < count; ++i) after(between(least_ms, 1e-6 * static_cast<double>(most.count())), act);
}

void Timeline::run_for(Duration lasting, const std::function<void()>& look) {
  while (out_.breach.empty() && !events_.empty() && events_.top().at < kBegin + lasting) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    event.act();
    look();
  }
}

Duration Timeline::between(double least_ms, double most_ms) {
  return ms(least_ms + (most_ms - least_ms) * random_.unit());
}

TimePoint Timeline::skewed(Duration offset, double rate) const {
  const double since = static_cast<double>((now_ - TimePoint{}).count());
  return TimePoint{} + offset + Duration(static_cast<int64_t>(since * rate));
}

void Timeline::say(const std::string& what) const {
  if (!verbose_) return;
  std::fprintf(stderr, "%9.4f %s\n", std::chrono::duration<double>(elapsed()).count(), what.c_str());
}

void Timeline::breach(const std::string& what) {
  if (!out_.breach.empty()) return;
  const double at = std::chrono::duration<double>(elapsed()).count();
  out_.breach = "at " + std::to_string(at) + " s: " + what;
}

}  // namespace troupe::route::faults

#pragma once

// The common base of the worlds of the fault simulation: virtual time and its events, chance, and one breach.
// All of a run follows from the seed.

#include <cstdint>
#include <functional>
#include <queue>
#include <string>
#include <vector>

#include "common/core/random.h"
#include "common/core/time.h"
#include "tests/gateway/faults/outcome.h"

namespace troupe::route::faults {

Duration ms(double value);

class Timeline {
 protected:
  // `verbose`: says what happens on stderr.
  Timeline(uint64_t seed, bool verbose) : random_(seed), verbose_(verbose) {}
  ~Timeline() = default;
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // Not before now, whatever `delay` is; of one moment, in the order of the calls.
  void after(Duration delay, std::function<void()> act);
  void every(Duration period, const std::function<void()>& act);
  // Each at a moment of its own, from so many milliseconds after now.
  void scatter(int count, double least_ms, Duration most, const std::function<void()>& act);
  // From the world's beginning, unless there is a breach before; `look` after each event.
  void run_for(Duration lasting, const std::function<void()>& look);

  Duration between(double least_ms, double most_ms);
  bool chance(double probability) { return random_.unit() < probability; }
  uint32_t pick(size_t count) { return random_.below(static_cast<uint32_t>(count)); }

  // Since the world's beginning.
  Duration elapsed() const { return now_ - kBegin; }
  // The time on a clock that shows `offset` when this one is at zero, and runs `rate` times as fast.
  TimePoint skewed(Duration offset, double rate) const;

  void say(const std::string& what) const;
  // Something did not hold. The first is kept, with its time.
  void breach(const std::string& what);

  static constexpr TimePoint kBegin = TimePoint{} + std::chrono::seconds(1000);
  Random random_;
  TimePoint now_ = kBegin;
  Outcome out_;

 private:
  struct Event {
    TimePoint at;
    uint64_t order;
    std::function<void()> act;
    bool operator>(const Event& other) const { return at != other.at ? at > other.at : order > other.order; }
  };

  const bool verbose_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t posted_ = 0;
};

}  // namespace troupe::route::faults

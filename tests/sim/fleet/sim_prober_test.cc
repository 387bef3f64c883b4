// Probes by events in and what is seen out.

#include "sim/fleet/sim_prober.h"

#include <gtest/gtest.h>

#include <queue>
#include <utility>
#include <vector>

namespace troupe::sim {
namespace sim_prober_test {

using std::chrono::milliseconds;

TimePoint at(int64_t ms) {
  return TimePoint(milliseconds(ms));
}

// One gateway's probes of one node, on a clock of its own.
class SimProberTest : public testing::Test {
 protected:
  struct Due {
    TimePoint at;
    uint64_t tag = 0;
    bool operator>(const Due& other) const { return at > other.at; }
  };
  struct Seen {
    int64_t ms = 0;
    bool answered = false;
    bool operator==(const Seen&) const = default;
  };

  SimProberTest()
      : prober_({.probe = {}, .gateways = 1, .round_trip = milliseconds(2)},
                {.post =
                     [this](TimePoint when, route::NodeIndex, uint64_t tag) {
                       due_.push({when, tag});
                     },
                 .stand = [this](route::NodeIndex) { return stand_; },
                 .saw =
                     [this](size_t, route::NodeIndex, bool answered) {
                       seen_.push_back({now_.time_since_epoch() / milliseconds(1), answered});
                     }}) {
    prober_.begin(0, 1, now_);
  }

  void go_to(TimePoint until) {
    while (!due_.empty() && due_.top().at <= until) {
      const Due next = due_.top();
      due_.pop();
      now_ = next.at;
      prober_.tick(0, next.tag, now_);
    }
    now_ = until;
  }
  void ask(TimePoint when) {
    go_to(when);
    prober_.ask(0, 0, now_);
  }

  TimePoint now_{};
  SimProber::Surroundings::Stand stand_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::vector<Seen> seen_;
  SimProber prober_;
};

TEST_F(SimProberTest, ANodeThatIsUpAnswersEveryInterval) {
  go_to(at(3500));
  EXPECT_EQ(seen_, (std::vector<Seen>{{1002, true}, {2002, true}, {3002, true}}));
}

TEST_F(SimProberTest, ANodeThatIsDownRefusesInARoundTrip) {
  stand_.up = false;
  go_to(at(1500));
  EXPECT_EQ(seen_, (std::vector<Seen>{{1002, false}}));
}

TEST_F(SimProberTest, ANodeThatHangsAnswersWhenItGoesOn) {
  stand_.hangs_until = at(1700);
  go_to(at(2500));
  EXPECT_EQ(seen_, (std::vector<Seen>{{1702, true}, {2002, true}}));
}

TEST_F(SimProberTest, ANodeThatHangsForLongFailsAfterTheTimeout) {
  stand_.hangs_until = at(2500);
  go_to(at(3500));
  EXPECT_EQ(seen_, (std::vector<Seen>{{2000, false}, {2502, true}, {3002, true}}));
}

TEST_F(SimProberTest, AskingBringsAProbeForwardAndAddsNone) {
  ask(at(300));
  prober_.ask(0, 0, now_);
  go_to(at(2500));
  EXPECT_EQ(seen_, (std::vector<Seen>{{302, true}, {1302, true}, {2302, true}}));
}

TEST_F(SimProberTest, AskingDuringAProbeBringsOneMoreBehindIt) {
  stand_.hangs_until = at(1050);
  ask(at(1001));
  go_to(at(1500));
  EXPECT_EQ(seen_, (std::vector<Seen>{{1052, true}, {1102, true}}));
}

}  // namespace sim_prober_test
}  // namespace troupe::sim

// Probes by events in and what is seen out.

#include "sim/fleet/sim_prober.h"

#include <gtest/gtest.h>

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
  struct Seen {
    int64_t ms = 0;
    bool answered = false;
    bool operator==(const Seen&) const = default;
  };

  SimProberTest()
      : prober_({.probe = {}, .gateways = 1, .round_trip = milliseconds(2)}, events_,
                {.stand = [this](route::NodeIndex) { return stand_; },
                 .saw =
                     [this](size_t, route::NodeIndex, bool answered) {
                       seen_.push_back({events_.now().time_since_epoch() / milliseconds(1), answered});
                     }}) {
    prober_.begin(0, 1);
  }

  void go_to(TimePoint until) {
    while (events_.size() > 0 && events_.next().at <= until) {
      prober_.tick(0, events_.pop().value);
    }
    events_.advance(until);
  }
  void ask(TimePoint when) {
    go_to(when);
    prober_.ask(0, 0);
  }

  EventQueue events_;
  SimProber::Surroundings::Stand stand_;
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
  prober_.ask(0, 0);
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

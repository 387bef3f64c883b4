#include "gateway/route/fleet/probe_schedule.h"

#include <gtest/gtest.h>

namespace troupe::route {
namespace {

using std::chrono::milliseconds;

TimePoint at(int64_t ms) {
  return TimePoint(milliseconds(ms));
}

TEST(ProbeSchedule, AProbeIsDueAnIntervalAfterTheLastOneBegan) {
  ProbeSchedule probes;
  probes.begin(at(100));
  EXPECT_TRUE(probes.under_way());
  probes.end();
  EXPECT_FALSE(probes.under_way());
  EXPECT_EQ(probes.due({}), at(1100));
}

TEST(ProbeSchedule, OneThatIsAskedForComesAtOnceButNotRightBehindAnother) {
  ProbeSchedule probes;
  probes.begin(at(100));
  probes.end();
  probes.ask();
  EXPECT_EQ(probes.due({}), at(200)) << "at 500 that is at once, at 150 in 50 ms";
  probes.begin(at(500));
  probes.end();
  EXPECT_EQ(probes.due({}), at(1500)) << "asked for once, sent once";
}

TEST(ProbeSchedule, WhatIsAskedForDuringAProbeFollowsIt) {
  ProbeSchedule probes;
  probes.begin(at(100));
  probes.ask();
  probes.end();
  EXPECT_EQ(probes.due({}), at(200));
}

}  // namespace
}  // namespace troupe::route

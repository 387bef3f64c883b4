#include "sim/fleet/recent_sessions.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace troupe::sim {
namespace {

TEST(RecentSessions, RemembersTheLastLength) {
  RecentSessions sessions(100);
  EXPECT_EQ(sessions.tokens(7), 0);
  sessions.set(7, 300);
  sessions.set(7, 450);
  EXPECT_EQ(sessions.tokens(7), 450);
}

TEST(RecentSessions, ForgetsTheOldestAndKeepsAtLeastHalfItsCapacity) {
  RecentSessions sessions(100);
  for (uint64_t session = 1; session <= 1000; ++session) {
    sessions.set(session, static_cast<int32_t>(session));
    for (uint64_t back = 0; back < std::min<uint64_t>(session, 50); ++back)
      ASSERT_EQ(sessions.tokens(session - back), static_cast<int32_t>(session - back));
    if (session > 100) {
      ASSERT_EQ(sessions.tokens(session - 100), 0);
    }
  }
}

TEST(RecentSessions, ActiveSessionIsNotForgotten) {
  RecentSessions sessions(10);
  for (uint64_t other = 100; other < 200; ++other) {
    sessions.set(1, static_cast<int32_t>(other));
    sessions.set(other, 1);
    EXPECT_EQ(sessions.tokens(1), static_cast<int32_t>(other));
  }
}

}  // namespace
}  // namespace troupe::sim

#include "sim/fleet/event_queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <vector>

namespace troupe::sim {
namespace {

using std::chrono::milliseconds;

TEST(EventQueue, EventsComeByTimeAndThoseOfOneTimeAsPosted) {
  EventQueue events;
  events.post(TimePoint(milliseconds(5)), EventKind::kDeliver, 0, 1);
  events.post(TimePoint(milliseconds(3)), EventKind::kSecond, 0, 2);
  for (uint64_t value = 3; value <= 20; ++value)
    events.post(TimePoint(milliseconds(5)), EventKind::kDeliver, 0, value);
  std::vector<uint64_t> order;
  while (events.size() > 0) {
    const TimePoint due = events.next().at;
    order.push_back(events.pop().value);
    EXPECT_EQ(events.now(), due);
  }
  std::vector<uint64_t> expected = {2, 1};
  for (uint64_t value = 3; value <= 20; ++value) expected.push_back(value);
  EXPECT_EQ(order, expected);
}

}  // namespace
}  // namespace troupe::sim

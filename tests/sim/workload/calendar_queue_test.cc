#include "sim/workload/calendar_queue.h"

#include <gtest/gtest.h>

#include <functional>
#include <queue>

#include "sim/workload/distributions.h"

namespace troupe::sim {
namespace due_queue_test {

TEST(CalendarQueue, AgreesWithAHeap) {
  Draw draw(11);
  CalendarQueue queue;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> heap;
  Duration now{};
  for (uint64_t i = 0; i < 20'000; ++i) {
    // Some due at once, some in the same bucket, some in hours; ever more, then fewer.
    const double mean_s = draw.below(3) == 0 ? 0.01 : draw.below(50) == 0 ? 5000 : 3;
    const Due due{
        now + Duration(static_cast<int64_t>(draw.exponential(mean_s) * 1e9) / 1'000'000 * 1'000'000), i,
        static_cast<int32_t>(i)};
    queue.push(due);
    heap.push(due);
    for (int32_t pops = draw.below(i < 10'000 ? 2 : 4); pops > 0 && !heap.empty(); --pops) {
      ASSERT_FALSE(queue.empty());
      ASSERT_EQ(queue.top().order, heap.top().order);
      now = heap.top().at;
      queue.pop();
      heap.pop();
    }
  }
  while (!heap.empty()) {
    ASSERT_EQ(queue.top().order, heap.top().order);
    queue.pop();
    heap.pop();
  }
  EXPECT_TRUE(queue.empty());
}

TEST(CalendarQueue, KnowsTheItemsBehindTheTopWithinItsBucket) {
  CalendarQueue queue;
  for (int32_t i = 0; i < 3; ++i)
    queue.push({std::chrono::milliseconds(1000 + i), static_cast<uint64_t>(i), i});
  queue.push({std::chrono::seconds(9), 3, 3});
  ASSERT_NE(queue.behind_top(2), nullptr);
  EXPECT_EQ(queue.behind_top(1)->slot, 1);
  EXPECT_EQ(queue.behind_top(2)->slot, 2);
  EXPECT_EQ(queue.behind_top(3), nullptr);
}

}  // namespace due_queue_test
}  // namespace troupe::sim

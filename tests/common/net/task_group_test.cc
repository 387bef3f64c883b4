#include "common/net/task_group.h"

#include "common/net/wakeable_timer.h"
#include "tests/common/net/net_fixture.h"

namespace troupe::net_test {
namespace {

Task<void> sleep_then_count(Executor executor, std::chrono::milliseconds time, int* done, int* cancelled) {
  Timer timer(executor);
  timer.expires_after(time);
  try {
    co_await timer.async_wait(use_task);
  } catch (const boost::system::system_error&) {
    ++*cancelled;
    throw;
  }
  ++*done;
}

Task<void> fail() {
  throw std::runtime_error("broken");
  co_return;
}

Task<void> join_group(TaskGroup* group) {
  co_await group->join();
}

Task<void> sleep_and_count(WakeableTimer* timer, TimePoint at, int* woken) {
  while (true) {
    co_await timer->sleep_until(at);
    ++*woken;
    at = TimePoint::max();
  }
}

TEST(WakeableTimer, SleepsUntilItsTimeOrWakeOrCancellation) {
  asio::io_context io;
  WakeableTimer timer(io.get_executor());
  TaskGroup group(io.get_executor());
  int woken = 0;
  timer.wake();  // no task sleeps
  group.spawn(sleep_and_count(&timer, now() + 5ms, &woken));
  io.run_for(50ms);
  EXPECT_EQ(woken, 1);
  io.run_for(20ms);
  EXPECT_EQ(woken, 1);
  timer.wake();
  timer.wake();
  io.run_for(20ms);
  EXPECT_EQ(woken, 2);
  group.cancel();
  io.run_for(5s);
  EXPECT_EQ(woken, 2);
  EXPECT_EQ(group.size(), 0u);
}

Task<void> rest_and_note(WakeableTimer* timer, std::vector<TimePoint>* ends) {
  while (true) {
    co_await timer->rest(20ms, 10s);
    ends->push_back(now());
  }
}

TEST(WakeableTimer, WakeShortensARestButNotBelowTheLeast) {
  asio::io_context io;
  WakeableTimer timer(io.get_executor());
  TaskGroup group(io.get_executor());
  std::vector<TimePoint> ends;
  const TimePoint begin = now();
  group.spawn(rest_and_note(&timer, &ends));
  io.run_for(5ms);
  timer.wake();  // before the least is over: remembered
  timer.wake();
  io.run_for(200ms);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_GE(ends[0], begin + 20ms);
  timer.wake();
  io.run_for(200ms);
  EXPECT_EQ(ends.size(), 2u) << "once for each";
  group.cancel();
  io.run_for(5s);
  EXPECT_EQ(ends.size(), 2u);
  EXPECT_EQ(group.size(), 0u);
}

TEST(TaskGroup, JoinWaitsForTheLastTask) {
  asio::io_context io;
  TaskGroup group(io.get_executor());
  int done = 0, cancelled = 0;
  EXPECT_TRUE(group.spawn(sleep_then_count(io.get_executor(), 5ms, &done, &cancelled)));
  EXPECT_TRUE(group.spawn(sleep_then_count(io.get_executor(), 20ms, &done, &cancelled)));
  TaskGroup waiters(io.get_executor());
  waiters.spawn(join_group(&group));
  waiters.spawn(join_group(&group));
  io.run_for(5s);
  EXPECT_EQ(done, 2);
  EXPECT_EQ(group.size(), 0u);
  EXPECT_EQ(waiters.size(), 0u);
}

TEST(TaskGroup, CancelReachesEveryTask) {
  asio::io_context io;
  TaskGroup group(io.get_executor());
  int done = 0, cancelled = 0;
  for (int i = 0; i < 10; ++i) group.spawn(sleep_then_count(io.get_executor(), 10s, &done, &cancelled));
  io.run_for(5ms);
  group.cancel();
  io.run_for(1s);
  EXPECT_EQ(cancelled, 10);
  EXPECT_EQ(group.size(), 0u);
}

TEST(TaskGroup, OneTaskCanBeCancelledAlone) {
  asio::io_context io;
  TaskGroup group(io.get_executor());
  int done = 0, cancelled = 0;
  const auto signal = std::make_shared<asio::cancellation_signal>();
  group.spawn(sleep_then_count(io.get_executor(), 10s, &done, &cancelled), signal);
  group.spawn(sleep_then_count(io.get_executor(), 20ms, &done, &cancelled));
  io.run_for(5ms);
  signal->emit(asio::cancellation_type::terminal);
  io.run_for(5s);
  EXPECT_EQ(cancelled, 1);
  EXPECT_EQ(done, 1);
}

TEST(TaskGroup, ClosedGroupTakesNoTasks) {
  asio::io_context io;
  TaskGroup group(io.get_executor());
  int done = 0, cancelled = 0;
  group.close();
  EXPECT_FALSE(group.spawn(sleep_then_count(io.get_executor(), 1ms, &done, &cancelled)));
  io.run_for(50ms);
  EXPECT_EQ(done, 0);
}

TEST(TaskGroup, ReportsExceptionsButNotCancellation) {
  asio::io_context io;
  TaskGroup group(io.get_executor());
  std::string reported;
  group.on_error = [&reported](std::string_view what) { reported += what; };
  int done = 0, cancelled = 0;
  group.spawn(fail());
  group.spawn(sleep_then_count(io.get_executor(), 10s, &done, &cancelled));
  io.run_for(5ms);
  group.cancel();
  io.run_for(1s);
  EXPECT_EQ(reported, "broken");
  EXPECT_EQ(cancelled, 1);
}

Task<void> wait_for(Timer* timer) {
  timer->expires_after(10s);
  co_await timer->async_wait(use_task);
}

// Code that means to wake a task and ends it instead must not go unnoticed.
TEST(TaskGroup, ReportsAbortWithoutCancellation) {
  asio::io_context io;
  TaskGroup group(io.get_executor());
  Timer timer(io.get_executor());
  int reports = 0;
  group.on_error = [&reports](std::string_view) { ++reports; };
  group.spawn(wait_for(&timer));
  io.run_for(5ms);
  timer.cancel();
  io.run_for(1s);
  EXPECT_EQ(reports, 1);
  EXPECT_EQ(group.size(), 0u);
}

}  // namespace
}  // namespace troupe::net_test

#include "common/net/send_batcher.h"

#include <gmock/gmock.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <memory>
#include <string>
#include <vector>

#include "common/net/task_group.h"
#include "tests/common/net/net_fixture.h"

namespace troupe::net_test {
namespace {

using testing::ElementsAre;
using Notes = std::vector<std::string>;

// A connection's turn: some work, then a send, `times` over.
Task<void> work_and_send(SendBatcher* turn, std::string name, int times, Notes* notes) {
  for (int i = 0; i < times; ++i) {
    notes->push_back(name + " works");
    co_await turn->reached();
    notes->push_back(name + " sends");
  }
}

class TurnEnds : public testing::Test {
 protected:
  asio::io_context io_{1};
  SendBatcher& turn_ = asio::use_service<SendBatcher>(io_);
  TaskGroup group_{io_.get_executor()};
  Notes notes_;
};

TEST_F(TurnEnds, ReadyWorkIsSentTogether) {
  for (const char* name : {"a", "b", "c"}) group_.spawn(work_and_send(&turn_, name, 1, &notes_));
  io_.run_for(1s);
  EXPECT_THAT(notes_, ElementsAre("a works", "b works", "c works", "a sends", "b sends", "c sends"));
}

TEST_F(TurnEnds, SecondWaitEndsWithTheNextTurn) {
  group_.spawn(work_and_send(&turn_, "a", 2, &notes_));
  group_.spawn(work_and_send(&turn_, "b", 1, &notes_));
  io_.run_for(1s);
  EXPECT_THAT(notes_, ElementsAre("a works", "b works", "a sends", "a works", "b sends", "a sends"));
}

// A wait covers only the events that are ready: a loop that is never idle has turns, too.
TEST_F(TurnEnds, TurnsEndInALoopThatIsNeverIdle) {
  int rounds = 0;
  std::function<void()> again = [&] {
    if (++rounds < 1000) asio::post(io_, again);
  };
  asio::post(io_, again);
  group_.spawn(work_and_send(&turn_, "a", 3, &notes_));
  while (notes_.size() < 6 && rounds < 1000) io_.run_one();
  EXPECT_EQ(notes_.size(), 6u);
  EXPECT_LT(rounds, 100);
  io_.run_for(1s);
}

Task<void> keep_while_waiting(SendBatcher* turn, std::shared_ptr<int> held) {
  co_await turn->reached();
  *held += 1;
}

TEST(SendBatcher, DestroysWaitersWithTheEventLoop) {
  const auto held = std::make_shared<int>(0);
  {
    asio::io_context io(1);
    SendBatcher& turn = asio::use_service<SendBatcher>(io);
    asio::co_spawn(io, keep_while_waiting(&turn, held), [](std::exception_ptr) {});
    io.run_one();  // it begins, and nothing more
    EXPECT_EQ(held.use_count(), 2);
  }
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(*held, 0);
}

Task<void> wait_twice(SendBatcher* turn, Executor executor, Notes* notes) {
  co_await turn->reached();
  notes->push_back("reached");
  Timer timer(executor);
  timer.expires_after(10s);
  try {
    co_await timer.async_wait(use_task);
  } catch (const boost::system::system_error&) {
    notes->push_back("cancelled");
    throw;
  }
}

TEST_F(TurnEnds, CancelledWaiterThrowsAtItsNextAwait) {
  group_.spawn(wait_twice(&turn_, io_.get_executor(), &notes_));
  io_.run_one();
  group_.cancel();
  io_.run_for(1s);
  EXPECT_THAT(notes_, ElementsAre("reached", "cancelled"));
  EXPECT_EQ(group_.size(), 0u);
}

}  // namespace
}  // namespace troupe::net_test

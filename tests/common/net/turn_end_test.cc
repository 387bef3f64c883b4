#include "common/net/turn_end.h"

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

// What a connection does with what came: some work, then a send, `times` over.
Task<void> work_and_send(TurnEnd* turn, std::string name, int times, Notes* notes) {
  for (int i = 0; i < times; ++i) {
    notes->push_back(name + " works");
    co_await turn->reached();
    notes->push_back(name + " sends");
  }
}

TEST(TurnEnd, WhatIsReadyTogetherIsSentTogether) {
  asio::io_context io(1);
  TurnEnd& turn = asio::use_service<TurnEnd>(io);
  TaskGroup group(io.get_executor());
  Notes notes;
  for (const char* name : {"a", "b", "c"}) group.spawn(work_and_send(&turn, name, 1, &notes));
  io.run_for(1s);
  EXPECT_THAT(notes, ElementsAre("a works", "b works", "c works", "a sends", "b sends", "c sends"));
}

TEST(TurnEnd, WhoWaitsAgainWaitsForTheNextOne) {
  asio::io_context io(1);
  TurnEnd& turn = asio::use_service<TurnEnd>(io);
  TaskGroup group(io.get_executor());
  Notes notes;
  group.spawn(work_and_send(&turn, "a", 2, &notes));
  group.spawn(work_and_send(&turn, "b", 1, &notes));
  io.run_for(1s);
  EXPECT_THAT(notes, ElementsAre("a works", "b works", "a sends", "a works", "b sends", "a sends"));
}

// Nobody waits for more than what is ready: a loop that is never idle has turns, too.
TEST(TurnEnd, ComesInALoopThatIsNeverIdle) {
  asio::io_context io(1);
  TurnEnd& turn = asio::use_service<TurnEnd>(io);
  TaskGroup group(io.get_executor());
  Notes notes;
  int rounds = 0;
  std::function<void()> again = [&] {
    if (++rounds < 1000) asio::post(io, again);
  };
  asio::post(io, again);
  group.spawn(work_and_send(&turn, "a", 3, &notes));
  while (notes.size() < 6 && rounds < 1000) io.run_one();
  EXPECT_EQ(notes.size(), 6u);
  EXPECT_LT(rounds, 100);
  io.run_for(1s);
}

Task<void> keep_while_waiting(TurnEnd* turn, std::shared_ptr<int> held) {
  co_await turn->reached();
  *held += 1;
}

TEST(TurnEnd, WhoWaitsGoesWithTheEventLoop) {
  const auto held = std::make_shared<int>(0);
  {
    asio::io_context io(1);
    TurnEnd& turn = asio::use_service<TurnEnd>(io);
    asio::co_spawn(io, keep_while_waiting(&turn, held), [](std::exception_ptr) {});
    io.run_one();  // it begins, and nothing more
    EXPECT_EQ(held.use_count(), 2);
  }
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(*held, 0);
}

Task<void> wait_twice(TurnEnd* turn, Executor executor, Notes* notes) {
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

TEST(TurnEnd, WhoIsCancelledMeanwhileLearnsSoNext) {
  asio::io_context io(1);
  TurnEnd& turn = asio::use_service<TurnEnd>(io);
  TaskGroup group(io.get_executor());
  Notes notes;
  group.spawn(wait_twice(&turn, io.get_executor(), &notes));
  io.run_one();
  group.cancel();
  io.run_for(1s);
  EXPECT_THAT(notes, ElementsAre("reached", "cancelled"));
  EXPECT_EQ(group.size(), 0u);
}

}  // namespace
}  // namespace troupe::net_test

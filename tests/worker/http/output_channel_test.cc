#include "worker/http/output_channel.h"

#include <gtest/gtest.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <thread>

#include "tests/worker/spawn.h"

namespace troupe::mailbox_test {

EngineOutput piece_of(std::string text, FinishReason finish = FinishReason::kNone) {
  EngineOutput piece;
  piece.text = std::move(text);
  piece.finish = finish;
  return piece;
}

Task<std::string> read_all(std::shared_ptr<OutputChannel> channel) {
  std::string text;
  for (;;) {
    co_await channel->wait(Deadline::never());
    for (const auto& piece : channel->take()) {
      text += piece.text;
      if (piece.finish != FinishReason::kNone) co_return text;
    }
  }
}

Task<bool> wait_for(std::shared_ptr<OutputChannel> channel, Deadline deadline) {
  return channel->wait(deadline);
}

TEST(OutputChannel, DeliversAnotherThreadsPiecesInOrder) {
  asio::io_context io;
  const auto channel = std::make_shared<OutputChannel>(io.get_executor());
  auto text = test_spawn::spawn(io.get_executor(), read_all(channel));
  std::string expected;
  for (int i = 0; i < 2000; ++i) expected += std::to_string(i) + " ";
  std::thread writer([channel] {
    for (int i = 0; i < 2000; ++i) channel->put(piece_of(std::to_string(i) + " "));
    channel->put(piece_of("", FinishReason::kStop));
  });
  io.run();
  writer.join();
  EXPECT_EQ(text.get(), expected);
}

TEST(OutputChannel, DoesNotWaitForAPresentPiece) {
  asio::io_context io;
  const auto channel = std::make_shared<OutputChannel>(io.get_executor());
  channel->put(piece_of("x"));
  auto ready = test_spawn::spawn(io.get_executor(), wait_for(channel, Deadline::never()));
  io.run();
  EXPECT_TRUE(ready.get());
  EXPECT_EQ(channel->take().size(), 1u);
  EXPECT_TRUE(channel->take().empty());
}

TEST(OutputChannel, WaitEndsAtTheDeadline) {
  asio::io_context io;
  const auto channel = std::make_shared<OutputChannel>(io.get_executor());
  const auto begin = std::chrono::steady_clock::now();
  const auto deadline = Deadline::after(begin, std::chrono::milliseconds(20));
  auto ready = test_spawn::spawn(io.get_executor(), wait_for(channel, deadline));
  io.run();
  EXPECT_FALSE(ready.get());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(20));
}

TEST(OutputChannel, CancellationEndsTheWaitWithAnError) {
  asio::io_context io;
  const auto channel = std::make_shared<OutputChannel>(io.get_executor());
  asio::cancellation_signal cancel;
  std::exception_ptr outcome;
  const auto done = [&outcome](std::exception_ptr error, bool) { outcome = error; };
  asio::co_spawn(io.get_executor(), wait_for(channel, Deadline::never()),
                 asio::bind_cancellation_slot(cancel.slot(), done));
  asio::post(io, [&cancel] { cancel.emit(asio::cancellation_type::terminal); });
  io.run();
  ASSERT_TRUE(outcome);
  EXPECT_THROW(std::rethrow_exception(outcome), boost::system::system_error);
}

TEST(OutputChannel, OutlivesItsReaderWhilePiecesArrive) {
  asio::io_context io;
  auto channel = std::make_shared<OutputChannel>(io.get_executor());
  std::weak_ptr<OutputChannel> watched = channel;
  channel->put(piece_of("late"));
  channel.reset();
  EXPECT_FALSE(watched.expired());  // the posted wake-up holds it
  io.run();
  EXPECT_TRUE(watched.expired());
}

}  // namespace troupe::mailbox_test

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

Task<std::string> read_all(std::shared_ptr<Mailbox> mailbox) {
  std::string text;
  for (;;) {
    co_await mailbox->wait(Deadline::never());
    for (const auto& piece : mailbox->take()) {
      text += piece.text;
      if (piece.finish != FinishReason::kNone) co_return text;
    }
  }
}

Task<bool> wait_for(std::shared_ptr<Mailbox> mailbox, Deadline deadline) {
  return mailbox->wait(deadline);
}

TEST(Mailbox, PiecesOfAnotherThreadArriveAllAndInOrder) {
  asio::io_context io;
  const auto mailbox = std::make_shared<Mailbox>(io.get_executor());
  auto text = test_spawn::spawn(io.get_executor(), read_all(mailbox));
  std::string expected;
  for (int i = 0; i < 2000; ++i) expected += std::to_string(i) + " ";
  std::thread writer([mailbox] {
    for (int i = 0; i < 2000; ++i) mailbox->put(piece_of(std::to_string(i) + " "));
    mailbox->put(piece_of("", FinishReason::kStop));
  });
  io.run();
  writer.join();
  EXPECT_EQ(text.get(), expected);
}

TEST(Mailbox, PieceThatIsThereAlreadyIsNotWaitedFor) {
  asio::io_context io;
  const auto mailbox = std::make_shared<Mailbox>(io.get_executor());
  mailbox->put(piece_of("x"));
  auto ready = test_spawn::spawn(io.get_executor(), wait_for(mailbox, Deadline::never()));
  io.run();
  EXPECT_TRUE(ready.get());
  EXPECT_EQ(mailbox->take().size(), 1u);
  EXPECT_TRUE(mailbox->take().empty());
}

TEST(Mailbox, WaitingEndsAtTheDeadline) {
  asio::io_context io;
  const auto mailbox = std::make_shared<Mailbox>(io.get_executor());
  const auto begin = std::chrono::steady_clock::now();
  const auto deadline = Deadline::after(begin, std::chrono::milliseconds(20));
  auto ready = test_spawn::spawn(io.get_executor(), wait_for(mailbox, deadline));
  io.run();
  EXPECT_FALSE(ready.get());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(20));
}

TEST(Mailbox, CancellationEndsTheWaitWithAnError) {
  asio::io_context io;
  const auto mailbox = std::make_shared<Mailbox>(io.get_executor());
  asio::cancellation_signal cancel;
  std::exception_ptr outcome;
  const auto done = [&outcome](std::exception_ptr error, bool) { outcome = error; };
  asio::co_spawn(io.get_executor(), wait_for(mailbox, Deadline::never()),
                 asio::bind_cancellation_slot(cancel.slot(), done));
  asio::post(io, [&cancel] { cancel.emit(asio::cancellation_type::terminal); });
  io.run();
  ASSERT_TRUE(outcome);
  EXPECT_THROW(std::rethrow_exception(outcome), boost::system::system_error);
}

TEST(Mailbox, OutlivesItsReaderWhilePiecesStillCome) {
  asio::io_context io;
  auto mailbox = std::make_shared<Mailbox>(io.get_executor());
  std::weak_ptr<Mailbox> watched = mailbox;
  mailbox->put(piece_of("late"));
  mailbox.reset();
  EXPECT_FALSE(watched.expired());  // the posted wake-up holds it
  io.run();
  EXPECT_TRUE(watched.expired());
}

}  // namespace troupe::mailbox_test

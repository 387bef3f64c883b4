#include "common/net/channel.h"

#include "tests/common/net/net_fixture.h"

namespace troupe::net_test {
namespace {

Task<void> write_one(std::shared_ptr<Channel> channel, std::string bytes, bool* written) {
  Pieces pieces;
  pieces.add(bytes);
  const WriteOptions options;
  const WriteEvent event = co_await channel->write(pieces, options);
  *written = event == WriteEvent::kWritten;
}

// Writes until the socket would block.
size_t fill(Socket& socket) {
  const std::string piece(64u << 10, 'x');
  size_t filled = 0;
  ErrorCode error;
  while (!error) filled += socket.write_some(asio::buffer(piece), error);
  EXPECT_EQ(error, asio::error::would_block);
  return filled;
}

// Input wakes the blocked writer when the socket has room again, so the writer returns at once: later waiters
// must still see the peer's end.
TEST(Channel, SeesPeersEndAfterInputDuringAWrite) {
  asio::io_context io(1);
  RawListener listener;
  Socket socket(io.get_executor());
  socket.connect(Tcp::endpoint(asio::ip::make_address("127.0.0.1"), listener.endpoint.port));
  socket.non_blocking(true);
  RawPeer peer = listener.accept();
  const size_t filled = fill(socket);
  const auto channel = std::make_shared<Channel>(std::move(socket), 4096);
  bool written = false;
  bool told = false;
  channel->on_unwatched = [&] { told = channel->ended(); };
  asio::co_spawn(io, write_one(channel, std::string(1024, 'y'), &written), [](const std::exception_ptr&) {});
  io.poll();
  ASSERT_FALSE(written);
  peer.send("z");
  // Runs after the loop has seen the input and before it is handled.
  asio::post(io, [&] { EXPECT_EQ(peer.read_some(filled).size(), filled); });
  const TimePoint until = now() + 5s;
  while (!written && now() < until) io.poll();
  ASSERT_TRUE(written);
  EXPECT_EQ(channel->input(), "z");
  peer.close();
  io.run_for(500ms);
  EXPECT_TRUE(told);
  channel->close();
  channel->on_unwatched = nullptr;
  io.run_for(100ms);
}

}  // namespace
}  // namespace troupe::net_test

#include "worker/http/residency_stream.h"

#include <gtest/gtest.h>

#include <map>

#include "common/api/sse.h"
#include "tests/common/net/net_fixture.h"
#include "tests/worker/schedule/single_blocks.h"

namespace troupe::residency_stream_test {

using net_test::Loop;
using net_test::RawPeer;
using net_test::TestServer;
using namespace std::chrono_literals;

constexpr int32_t kBlockSize = 16;

Hash128 named(uint64_t name) {
  return Hash128{name, 1};
}

Task<void> serve(ResidencyStream& stream, Exchange& exchange) {
  HttpCall call(exchange, "/v1/residency", "test");
  co_await stream.serve(call);
}

// Stores the chunks' data of a streamed answer, event by event.
class Reader {
 public:
  explicit Reader(uint16_t port, int receive_buffer = 0) : peer_(RawPeer::connect(port, receive_buffer)) {
    peer_.send("GET /v1/residency HTTP/1.1\r\nhost: t\r\n\r\n");
  }
  std::string head() { return peer_.read_until("\r\n\r\n"); }
  // Returns the next event; its epoch is empty at the end of the stream.
  ResidencyEvent next() {
    while (events_.empty()) {
      const std::string size_line = peer_.read_until("\r\n");
      if (size_line.size() < 3) return {};
      const size_t size = std::stoul(size_line, nullptr, 16);
      ended_ = size == 0;
      const std::string data = peer_.read_some(size + 2);
      if (ended_ || data.size() < size + 2) return {};
      const auto status = parser_.feed(std::string_view(data).substr(0, size), [this](const SseEvent& event) {
        auto parsed = parse_residency_event(event.event, event.data);
        EXPECT_TRUE(parsed.ok()) << parsed.error().message;
        events_.push_back(std::move(parsed.value()));
      });
      EXPECT_TRUE(status.ok()) << status;
    }
    ResidencyEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }
  bool ended() const { return ended_; }  // in good order

 private:
  RawPeer peer_;
  SseParser parser_{kResidencyEventBytesMax};
  std::deque<ResidencyEvent> events_;
  bool ended_ = false;
};

// A subscriber's knowledge, assembled from its events.
struct Known {
  std::map<Hash128, int64_t> sets;
  uint64_t seq = 0;

  void apply(const ResidencyEvent& event) {
    if (event.kind == ResidencyEvent::Kind::kSnapshot) {
      sets.clear();
    } else {
      EXPECT_EQ(event.seq, seq + 1) << "a gap";
    }
    seq = event.seq;
    for (const ResidencyItem& item : event.items) {
      sets[item.name] = item.tokens;
      if (item.tokens == 0) sets.erase(item.name);
    }
  }
};

// A cache that the test fills and empties, reported by a stream behind a real server.
class ResidencyStreamTest : public ::testing::Test {
 protected:
  void open(const ResidencyStream::Options& options) {
    loop_.call([&] {
      stream_ = std::make_unique<ResidencyStream>(loop_.executor(), residency_publisher_, metrics_, options);
      stream_->start();
    });
    server_ = std::make_unique<TestServer>(loop_, [this](Exchange& e) { return serve(*stream_, e); });
  }
  void TearDown() override {
    loop_.call([this] { stream_->close(); });
    server_->drain(5s);
    server_.reset();
    loop_.call([this] { stream_.reset(); });
  }
  void publish() { residency_publisher_.publish(residency_, work_, true, TimePoint{}); }
  double metric(const std::string& name) const {
    const std::string text = "\n" + metrics_.text();
    return std::atof(text.c_str() + text.find("\n" + name + " ") + name.size() + 2);
  }

  Loop loop_;
  Metrics metrics_;
  testing::SingleBlocks residency_{kBlockSize, 20'000};
  SetWork work_{4};
  int wakes_ = 0;
  ResidencyPublisher residency_publisher_{[this] { ++wakes_; }};
  std::unique_ptr<ResidencyStream> stream_;
  std::unique_ptr<TestServer> server_;
};

TEST_F(ResidencyStreamTest, BeginsWithSnapshotAndContinuesWithChanges) {
  open({});
  residency_.cached(0, 0, HolderKind::kSet, named(1));
  residency_.cached(1, 1, HolderKind::kSet, named(1));
  residency_.cached(2, 2, HolderKind::kSession, named(2));
  publish();
  ASSERT_TRUE(loop_.eventually([this] { return metric("troupe_residency_changes_total") == 2; }));
  Reader reader(server_->port());
  EXPECT_NE(reader.head().find("text/event-stream"), std::string::npos);
  const ResidencyEvent snapshot = reader.next();
  EXPECT_EQ(snapshot.kind, ResidencyEvent::Kind::kSnapshot);
  EXPECT_EQ(snapshot.epoch, residency_publisher_.epoch());
  EXPECT_EQ(snapshot.seq, 2u);
  EXPECT_EQ(snapshot.items, (std::vector<ResidencyItem>{{HolderKind::kSet, named(1), 32},
                                                        {HolderKind::kSession, named(2), 48}}));
  residency_.evicted(2);
  publish();
  const ResidencyEvent gone = reader.next();
  EXPECT_EQ(gone.kind, ResidencyEvent::Kind::kEvicted);
  EXPECT_EQ(gone.seq, 3u);
  EXPECT_EQ(gone.items, (std::vector<ResidencyItem>{{HolderKind::kSession, named(2), 0}}));
  residency_.cached(2, 2, HolderKind::kSet, named(1));
  publish();
  const ResidencyEvent grown = reader.next();
  EXPECT_EQ(grown.kind, ResidencyEvent::Kind::kAdmitted);
  EXPECT_EQ(grown.items, (std::vector<ResidencyItem>{{HolderKind::kSet, named(1), 48}}));
}

TEST_F(ResidencyStreamTest, AllSubscribersEndWithTheSameState) {
  open({.gather = 0ms});
  Reader early(server_->port());
  early.head();
  Known known_early, known_late;
  known_early.apply(early.next());
  for (BlockId block = 0; block < 50; ++block) {
    residency_.cached(block, 0, HolderKind::kSet, named(static_cast<uint64_t>(block)));
    if (block % 3 == 0) residency_.evicted(block);
    publish();
  }
  // The last changes waited for a reader, which then asked for them.
  ASSERT_TRUE(loop_.eventually([this] {
    publish();
    return metric("troupe_residency_changes_total") >= 33 && !residency_.has_changes();
  }));
  Reader late(server_->port());
  late.head();
  known_late.apply(late.next());
  while (known_early.seq < known_late.seq) known_early.apply(early.next());
  EXPECT_EQ(known_late.sets.size(), 33u);
  EXPECT_EQ(known_early.sets, known_late.sets);
}

TEST_F(ResidencyStreamTest, CutsOffSlowSubscriberWhichRestarts) {
  open({.log_bytes_max = 3u << 20, .gather = 0ms});
  Reader slow(server_->port(), 4096);
  slow.head();
  EXPECT_EQ(slow.next().kind, ResidencyEvent::Kind::kSnapshot);
  // Far more than sockets and the log hold while it does not read: some 2.5 MB a round.
  constexpr BlockId kBlocks = 20'000;
  for (int round = 0; round < 10; ++round) {
    for (BlockId block = 0; block < kBlocks; ++block) {
      if (round % 2 == 0) residency_.cached(block, 0, HolderKind::kSet, named(static_cast<uint64_t>(block)));
      if (round % 2 == 1) residency_.evicted(block);
    }
    publish();
    ASSERT_TRUE(loop_.eventually(
        [&] { return metric("troupe_residency_changes_total") == (round + 1) * double{kBlocks}; }, 20s));
  }
  uint64_t last_seq = 0;
  for (ResidencyEvent event = slow.next(); !event.epoch.empty(); event = slow.next()) last_seq = event.seq;
  EXPECT_TRUE(slow.ended());
  EXPECT_LT(last_seq, 10u * kBlocks);
  EXPECT_EQ(metric("troupe_residency_cut_off_total"), 1);
  Reader again(server_->port());
  again.head();
  const ResidencyEvent snapshot = again.next();
  EXPECT_EQ(snapshot.kind, ResidencyEvent::Kind::kSnapshot);
  EXPECT_EQ(snapshot.seq, 10u * kBlocks);
}

TEST_F(ResidencyStreamTest, SendsHeartbeatsWithoutChanges) {
  open({.heartbeat = 20ms});
  RawPeer peer = RawPeer::connect(server_->port());
  peer.send("GET /v1/residency HTTP/1.1\r\nhost: t\r\n\r\n");
  EXPECT_TRUE(peer.read_until(": hb\n\n").ends_with(": hb\n\n"));
  EXPECT_TRUE(peer.read_until(": hb\n\n").ends_with(": hb\n\n"));
}

TEST_F(ResidencyStreamTest, RefusesExcessSubscribersUntilOneLeaves) {
  open({.subscribers_max = 1});
  {
    Reader first(server_->port());
    first.head();
    first.next();
    Reader second(server_->port());
    EXPECT_NE(second.head().find(" 429 "), std::string::npos);
  }
  ASSERT_TRUE(loop_.eventually([this] { return metric("troupe_residency_subscribers") == 0; }));
  Reader third(server_->port());
  EXPECT_NE(third.head().find(" 200 "), std::string::npos);
}

TEST_F(ResidencyStreamTest, CloseEndsStreamsInGoodOrder) {
  open({});
  Reader reader(server_->port());
  reader.head();
  reader.next();
  loop_.call([this] { stream_->close(); });
  EXPECT_TRUE(reader.next().epoch.empty());
  EXPECT_TRUE(reader.ended());
  Reader late(server_->port());
  EXPECT_NE(late.head().find(" 503 "), std::string::npos);
}

}  // namespace troupe::residency_stream_test

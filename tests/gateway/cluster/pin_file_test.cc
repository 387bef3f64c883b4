// Pins of a gateway without etcd, in a file: it begins again with their requests.

#include "gateway/cluster/pin_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "common/api/prefix.h"
#include "tests/common/temp_dir.h"
#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test::pin_files {
namespace {

std::string content_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// One life of a gateway's pins, without the gateway.
class Life {
 public:
  Life(Loop& loop, const std::string& path, const route::PinOptions& options = {})
      : loop_(loop), router_(route::RouterOptions{}, 1) {
    loop_.call([&] {
      fleet_ = std::make_unique<Fleet>(FleetOptions{},
                                       Fleet::Parts{loop_.executor(), router_, metrics_, clock_, log_});
      pins = std::make_unique<PinReconciler>(
          options, PinReconciler::Parts{loop_.executor(), *fleet_, router_, metrics_, clock_, log_});
      file_ = std::make_unique<PinFile>(path, PinFile::Parts{loop_.executor(), *pins, clock_, log_});
      loaded = file_->load();
    });
  }
  ~Life() {
    loop_.call([this] {
      file_.reset();
      pins.reset();
      fleet_.reset();
    });
  }

  std::unique_ptr<PinReconciler> pins;
  Status loaded;

 private:
  Loop& loop_;
  Metrics metrics_;
  SteadyClock clock_;
  Logger log_{LogLevel::kError, -1};
  route::Router router_;
  std::unique_ptr<Fleet> fleet_;
  std::unique_ptr<PinFile> file_;
};

route::Pin pin_of(const std::string& name, const std::string& owner = "") {
  route::Pin pin;
  pin.prefix = hash_bytes(name);
  pin.owner = owner;
  pin.id = route::Pin::id_of(pin.prefix, owner);
  pin.model = "demo";
  pin.tokens = 7;
  pin.answer = R"({"id":"prefix-1"})";
  pin.body = R"({"model":"demo","prompt":"\u00e9 )" + name + R"(","ttl_s":)";
  pin.key.set = hash_bytes("set of " + name);
  pin.claims = {{"10.0.0.1:31000", "life"}};
  return pin;
}

class PinFileTest : public ::testing::Test {
 protected:
  const TempDir dir_;
  const std::string path_ = dir_.path() + "/pins";
  Loop loop_;
};

TEST_F(PinFileTest, PinsAreThereInTheNextLife) {
  route::Pin lasting = pin_of("lasting", std::string(64, 'a')), over = pin_of("over"),
             taken = pin_of("taken");
  lasting.expires = over.expires = true;
  lasting.until = now() + 1h;
  over.until = now() + 10ms;
  taken.imported = true;
  {
    Life first(loop_, path_);
    ASSERT_TRUE(first.loaded.ok()) << first.loaded;
    for (const route::Pin& pin : {lasting, over, taken, pin_of("endless"), pin_of("removed")})
      first.pins->registry().put(pin);
    first.pins->registry().erase(pin_of("removed").id);
    std::this_thread::sleep_for(20ms);
  }
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  Life next(loop_, path_);
  ASSERT_TRUE(next.loaded.ok()) << next.loaded;
  EXPECT_EQ(next.pins->registry().size(), 2u);
  const route::Pin* read = next.pins->registry().find(lasting.id);
  ASSERT_NE(read, nullptr);
  EXPECT_EQ(read->body, lasting.body);
  EXPECT_EQ(read->owner, lasting.owner);
  EXPECT_EQ(read->key.set, lasting.key.set);
  EXPECT_NEAR(std::chrono::duration<double>(read->until - lasting.until).count(), 0, 5);
  ASSERT_EQ(read->claims.size(), 1u);
  EXPECT_NE(next.pins->registry().find(pin_of("endless").id), nullptr);
}

TEST_F(PinFileTest, NoMoreIsReadThanThereIsRoomFor) {
  {
    Life first(loop_, path_);
    for (int i = 0; i < 20; ++i)
      first.pins->registry().put(pin_of(std::to_string(i) + std::string(1000, 'x')));
  }
  route::PinOptions less;
  less.text_bytes = 5'000;
  Life next(loop_, path_, less);
  ASSERT_TRUE(next.loaded.ok()) << next.loaded;
  EXPECT_EQ(next.pins->registry().size(), 4u);
  EXPECT_LE(next.pins->registry().text_bytes(), less.text_bytes);
}

TEST_F(PinFileTest, FileThatIsBrokenIsNamedAndLeftAsItIs) {
  {
    Life first(loop_, path_);
    first.pins->registry().put(pin_of("one"));
  }
  const std::string good = content_of(path_);
  const std::string head = good.substr(0, good.find('\n') + 1);
  const std::vector<std::pair<std::string, std::string>> rows{
      {"", "line 1: is empty"},
      {"some notes\n", "line 1: must be"},
      {good.substr(0, good.size() - 9), "line 2: is cut off"},
      {head + "{}\n", "line 2: prefix"},
      {good + "x\n", "line 3"}};
  for (const auto& [text, why] : rows) {
    std::ofstream(path_, std::ios::trunc) << text;
    {
      Life next(loop_, path_);
      EXPECT_FALSE(next.loaded.ok()) << text;
      EXPECT_THAT(std::string(next.loaded.message()), testing::HasSubstr("pins.file: " + path_));
      EXPECT_THAT(std::string(next.loaded.message()), testing::HasSubstr(why));
      next.pins->registry().put(pin_of("other"));
    }
    EXPECT_EQ(content_of(path_), text) << "what is not understood was overwritten";
  }
  Life nowhere(loop_, path_ + ".no/pins");
  EXPECT_THAT(std::string(nowhere.loaded.message()), testing::HasSubstr(path_ + ".no/pins"));
}

Task<void> make_prefix(Exchange& exchange) {
  HeaderList headers;
  headers.emplace_back("content-type", "application/json");
  const std::string id = prefix_id(hash_bytes("made"));
  co_await exchange.respond(
      200, headers,
      R"({"id":")" + id + R"(","object":"prefix","model":"demo","tokens":400,"pinned":true,"ttl_s":null})");
}

class Restarts : public PinFileTest {
 protected:
  Restarts() {
    loop_.call([this] {
      for (StubWorker* stub : {&a_, &b_}) {
        stub->load_status = 200;
        stub->load.epoch = "life";
        stub->load.ready = true;
      }
    });
  }
  std::unique_ptr<TestGateway> begin() {
    GatewayConfig config = TestGateway::quick_config();
    config.pins.file = path_;
    auto gateway =
        std::make_unique<TestGateway>(loop_, std::vector<Upstream>{a_.endpoint(), b_.endpoint()}, config);
    EXPECT_TRUE(loop_.eventually([&] {
      return gateway->gateway->fleet().is_troupe_worker(0) && gateway->gateway->fleet().is_troupe_worker(1);
    }));
    return gateway;
  }
  size_t asked(StubWorker& stub) {
    return loop_.call([&] { return stub.seen.size(); });
  }

  StubWorker a_{loop_, [](StubWorker&, Exchange& exchange) { return make_prefix(exchange); }};
  StubWorker b_{loop_, [](StubWorker&, Exchange& exchange) { return make_prefix(exchange); }};
};

TEST_F(Restarts, PinIsComputedAnewWhereItsWorkerDiesAfterwards) {
  const std::string card = "You are Song Jiang. " + std::string(1500, 'p');
  {
    const auto gateway = begin();
    RawPeer peer = gateway->connect();
    peer.send(
        http_post("/v1/prefixes",
                  R"({"model":"demo","pin":true,"messages":[{"role":"system","content":")" + card + "\"}]}"));
    ASSERT_EQ(read_answer(peer).status, 200);
  }
  ASSERT_EQ(asked(a_) + asked(b_), 1u);
  StubWorker &holder = asked(a_) == 1 ? a_ : b_, &other = asked(a_) == 1 ? b_ : a_;
  const auto again = begin();
  EXPECT_THAT(again->get("/v1/prefixes").body, testing::HasSubstr(prefix_id(hash_bytes("made"))));
  // It is where it was: nothing is computed until its worker dies.
  std::this_thread::sleep_for(1200ms);
  EXPECT_EQ(asked(a_) + asked(b_), 1u);
  holder.stop();
  ASSERT_TRUE(loop_.eventually([&] { return !other.seen.empty(); }, 10s));
  const HttpRequest request = loop_.call([&] { return other.seen.at(0); });
  EXPECT_EQ(request.path, "/v1/prefixes");
  EXPECT_THAT(request.body, testing::HasSubstr(card));
  EXPECT_THAT(request.body, testing::HasSubstr(R"("pin":true)"));
}

}  // namespace
}  // namespace troupe::gateway_test::pin_files

// etcd's HTTP gateway as text, and a client of several members that answer, stay silent, or refuse.

#include "common/etcd/etcd.h"

#include <atomic>

#include "common/core/base64.h"
#include "common/etcd/etcd_wire.h"
#include "tests/common/net/net_fixture.h"

namespace troupe::net_test {
namespace {

using etcd::KeyRange;
using etcd::Txn;

TEST(Base64, FollowsTheRfc) {
  const std::pair<std::string_view, std::string_view> kPairs[] = {{"", ""},
                                                                  {"f", "Zg=="},
                                                                  {"fo", "Zm8="},
                                                                  {"foo", "Zm9v"},
                                                                  {"foob", "Zm9vYg=="},
                                                                  {"fooba", "Zm9vYmE="},
                                                                  {"foobar", "Zm9vYmFy"},
                                                                  {"\xff\xfe\xfb", "//77"}};
  for (const auto& [bytes, text] : kPairs) {
    EXPECT_EQ(base64(bytes), text);
    EXPECT_EQ(from_base64(text), std::string(bytes));
  }
}

TEST(Base64, RefusesNonCanonicalText) {
  for (const char* text : {"Zg", "Zg=", "Zh==", "Zm9=", "Z===", "====", "Zm 9v", "Zm9v\n", "Zm9-", "=Zg="})
    EXPECT_EQ(from_base64(text), std::nullopt) << text;
}

TEST(EtcdWire, WritesTransactionInEtcdsFormat) {
  Txn txn;
  txn.compares = {{"/l", Txn::Compare::Of::kCreateRevision, 7}, {"/t", Txn::Compare::Of::kModRevision, 9}};
  txn.puts = {{"/t", "me", 12}};
  txn.deletes = {"/d"};
  txn.reads = {KeyRange::key("/t"), {"/w/", "/w0", true}};
  txn.else_reads = {KeyRange::key("/l"), KeyRange::prefix("/w/")};
  EXPECT_EQ(etcd::txn_body(txn),
            R"({"compare":[{"key":"L2w=","result":"EQUAL","target":"CREATE","create_revision":"7"},)"
            R"({"key":"L3Q=","result":"EQUAL","target":"MOD","mod_revision":"9"}],)"
            R"("success":[{"request_put":{"key":"L3Q=","value":"bWU=","lease":"12"}},)"
            R"({"request_delete_range":{"key":"L2Q="}},{"request_range":{"key":"L3Q="}},)"
            R"({"request_range":{"key":"L3cv","range_end":"L3cw","keys_only":true}}],)"
            R"("failure":[{"request_range":{"key":"L2w="}},)"
            R"({"request_range":{"key":"L3cv","range_end":"L3cw"}}]})");
}

TEST(EtcdWire, WatchOfTwoRangesIsTwoRequests) {
  const std::vector<KeyRange> ranges{KeyRange::key("/l"), {"/t", "/w0", false}};
  EXPECT_EQ(etcd::watch_body(ranges, 5),
            R"({"create_request":{"key":"L2w=","start_revision":"5"}})"
            R"({"create_request":{"key":"L3Q=","range_end":"L3cw","start_revision":"5"}})");
}

TEST(EtcdWire, OmitsFalseZeroAndEmptyFields) {
  const auto failed = etcd::parse_txn(
      R"({"header":{"cluster_id":"14841639068965178418","revision":"12"},"responses":[{"response_range":{"kvs":[{"key":"L2w=",)"
      R"("create_revision":"10","mod_revision":"11","version":"2"}],"count":"1"}},{"response_range":{}}]})");
  ASSERT_TRUE(failed.ok()) << failed.status();
  EXPECT_FALSE(failed->succeeded);
  EXPECT_EQ(failed->revision, 12);
  EXPECT_EQ(failed->cluster, "14841639068965178418");
  ASSERT_EQ(failed->found.size(), 1u);
  EXPECT_EQ(failed->found[0].key, "/l");
  EXPECT_EQ(failed->found[0].value, "");
  EXPECT_EQ(failed->found[0].create_revision, 10);
  EXPECT_EQ(failed->found[0].mod_revision, 11);
  EXPECT_TRUE(etcd::parse_txn(R"({"header":{},"succeeded":true})")->succeeded);
}

TEST(EtcdWire, ExpiredLeaseHasZeroTtl) {
  EXPECT_EQ(etcd::parse_keep_alive(R"({"result":{"ID":"123"}})")->ttl.count(), 0);
  EXPECT_EQ(etcd::parse_keep_alive(R"({"result":{"ID":"123","TTL":"5"}})")->ttl.count(), 5);
  const auto granted = etcd::parse_grant(R"({"ID":"1353509825378558982","TTL":"5"})");
  ASSERT_TRUE(granted.ok());
  EXPECT_EQ(granted->id, 1353509825378558982);
  EXPECT_FALSE(etcd::parse_grant(R"({"ID":"7"})").ok());
}

TEST(EtcdWire, WatchDeliversChangesAndItsEnd) {
  const auto changes =
      etcd::parse_watch(R"({"result":{"header":{"revision":"5"},"watch_id":"1","events":[)"
                        R"({"kv":{"key":"L2E=","create_revision":"3","mod_revision":"4","value":"eA=="}},)"
                        R"({"type":"DELETE","kv":{"key":"L2E=","mod_revision":"5"}}]}})");
  ASSERT_TRUE(changes.ok()) << changes.status();
  ASSERT_EQ(changes->events.size(), 2u);
  EXPECT_FALSE(changes->events[0].deleted);
  EXPECT_EQ(changes->events[0].kv.value, "x");
  EXPECT_TRUE(changes->events[1].deleted);
  EXPECT_EQ(changes->events[1].kv.mod_revision, 5);
  EXPECT_TRUE(etcd::parse_watch(R"({"result":{"canceled":true,"compact_revision":"4"}})")->canceled);
  const auto ended = etcd::parse_watch(R"({"error":{"grpc_code":14,"message":"etcdserver: no leader"}})");
  EXPECT_EQ(ended.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(to_std(ended.status().message()).find("no leader"), std::string_view::npos);
}

TEST(EtcdWire, NamesInvalidFieldsOfAnswers) {
  const std::pair<const char*, const char*> kBad[] = {
      {R"({"succeeded":"true"})", "succeeded"},
      {R"({"responses":{}})", "responses"},
      {R"({"responses":[1]})", "responses"},
      {R"({"responses":[{"response_range":[]}]})", "response_range"},
      {R"({"header":{"revision":"-1"}})", "revision"},
      {R"({"header":{"revision":"12x"}})", "revision"},
      {R"({"header":{"revision":"99999999999999999999"}})", "revision"},
      {R"({"header":{"revision":1.5}})", "revision"},
      {R"({"responses":[{"response_range":{"kvs":[{"key":"L2w"}]}}]})", "key"},
      {R"({"responses":[{"response_range":{"kvs":[{"value":7}]}}]})", "value"},
      {R"([])", "object"},
      {R"({"succeeded":true,"succeeded":true})", "succeeded"},
      {R"({"succeeded":true}x)", "etcd"}};
  for (const auto& [json, name] : kBad) {
    const auto answer = etcd::parse_txn(json);
    ASSERT_FALSE(answer.ok()) << json;
    EXPECT_NE(to_std(answer.status().message()).find(name), std::string_view::npos) << answer.status();
  }
}

TEST(EtcdWire, LinesSurviveAnySplit) {
  const std::string text = "{\"a\":1}\n\n{\"b\":2}\nrest";
  for (size_t step = 1; step <= text.size(); ++step) {
    etcd::Lines lines(16);
    std::vector<std::string> got;
    for (size_t at = 0; at < text.size(); at += step) {
      ASSERT_TRUE(lines.feed(std::string_view(text).substr(at, step)).ok());
      for (std::string_view line; lines.next(line);) got.emplace_back(line);
    }
    EXPECT_EQ(got, (std::vector<std::string>{"{\"a\":1}", "{\"b\":2}"})) << step;
  }
  etcd::Lines lines(16);
  EXPECT_TRUE(lines.feed("0123456789abcdef").ok());
  EXPECT_EQ(lines.feed("g").code(), absl::StatusCode::kResourceExhausted);
}

// --- members ---

// A member whose answer the test chooses.
struct Member {
  explicit Member(Loop& loop) : server(loop, [this](Exchange& exchange) { return answer(exchange); }) {}
  Task<void> answer(Exchange& exchange) {
    asked += 1;
    path = exchange.request().path;
    body = exchange.request().body;
    return respond(exchange, status, text, silent);
  }
  static Task<void> respond(Exchange& exchange, int status, std::string text, bool silent) {
    if (silent) {
      Timer timer(exchange.executor());
      timer.expires_at(TimePoint::max());
      co_await timer.async_wait(use_task);
    }
    const HeaderList headers;
    co_await exchange.respond(status, headers, std::move(text));
  }

  std::atomic<int> asked = 0;
  int status = 200;
  bool silent = false;
  std::string text = R"({"header":{"revision":"3"},"succeeded":true})", path, body;
  TestServer server;
};

class EtcdMembers : public ::testing::Test {
 protected:
  ~EtcdMembers() override {
    loop_.call([this] { client_.reset(); });
  }
  EtcdClient& client() {
    EtcdOptions options;
    options.members = {a_.server.endpoint(), b_.server.endpoint()};
    // A shorter time-out could mistake a busy machine for silence.
    options.timeout = a_.silent ? 1000ms : 10'000ms;
    if (!client_) client_ = std::make_unique<EtcdClient>(loop_.executor(), options, clock_);
    return *client_;
  }
  StatusOr<etcd::TxnAnswer> ask() { return loop_.run(client().txn(txn_)); }
  Status put() { return loop_.run(client().put(put_)); }

  SteadyClock clock_;
  Loop loop_;
  Member a_{loop_}, b_{loop_};
  Txn txn_;
  etcd::Put put_{"/k", "v", 7};
  std::unique_ptr<EtcdClient> client_;
};

TEST_F(EtcdMembers, KeepsToTheMemberThatAnswers) {
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(ask().ok());
  EXPECT_EQ(a_.asked, 3);
  EXPECT_EQ(a_.path, "/v3/kv/txn");
  EXPECT_EQ(b_.asked, 0);
}

TEST_F(EtcdMembers, LeavesSilentMemberForGood) {
  a_.silent = true;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(ask().ok());
  EXPECT_EQ(a_.asked, 1);
  EXPECT_EQ(b_.asked, 3);
  EXPECT_EQ(client().failovers(), 1u);
}

TEST_F(EtcdMembers, LeavesMemberWithoutLeader) {
  a_.status = 503;
  a_.text = R"({"error":"etcdserver: no leader","code":14})";
  EXPECT_TRUE(put().ok());
  EXPECT_EQ(b_.body, R"({"key":"L2s=","value":"dg==","lease":"7"})");
}

TEST_F(EtcdMembers, DoesNotRetryRefusedCallElsewhere) {
  a_.status = 404;
  a_.text = R"({"error":"etcdserver: requested lease not found","code":5})";
  EXPECT_EQ(put().code(), absl::StatusCode::kNotFound);
  a_.status = 400;
  EXPECT_EQ(put().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(b_.asked, 0);
}

TEST_F(EtcdMembers, TriesEachMemberOnceWhenAllFail) {
  a_.status = b_.status = 500;
  EXPECT_EQ(put().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(a_.asked + b_.asked, 2);
}

TEST_F(EtcdMembers, GrantsLostLeaseAnew) {
  auto lease = std::make_unique<EtcdLease>(client(), 5s, clock_);
  a_.text = R"({"ID":"11","TTL":"5"})";
  EXPECT_TRUE(loop_.run(lease->keep()).ok());
  EXPECT_EQ(lease->id(), 11);
  a_.text = R"({"result":{"ID":"11","TTL":"5"}})";
  EXPECT_TRUE(loop_.run(lease->keep()).ok());
  EXPECT_EQ(a_.path, "/v3/lease/keepalive");
  EXPECT_GT(lease->holds_until(), now() + 2s);
  // The lease is gone, and no new one is granted: the peer is no etcd.
  a_.text = R"({"result":{"ID":"11"}})";
  EXPECT_FALSE(loop_.run(lease->keep()).ok());
  EXPECT_EQ(lease->id(), 0);
  EXPECT_EQ(a_.path, "/v3/lease/grant");
  a_.text = R"({"ID":"12","TTL":"5"})";
  EXPECT_TRUE(loop_.run(lease->keep()).ok());
  EXPECT_EQ(lease->id(), 12);
}

Task<Status> watch_to_end(EtcdClient* client, std::atomic<int>* messages) {
  const std::vector<KeyRange> ranges{KeyRange::key("/t")};
  auto watch = co_await client->watch(ranges, 1);
  if (!watch.ok()) co_return watch.status();
  while (true) {
    const auto message = co_await (*watch)->next();
    if (!message.ok()) co_return message.status();
    *messages += 1;
  }
}

TEST_F(EtcdMembers, WatchEndsWhenItsMemberIsLeft) {
  RawListener member;
  EtcdOptions options;
  options.members = {member.endpoint, b_.server.endpoint()};
  options.timeout = 1000ms;
  client_ = std::make_unique<EtcdClient>(loop_.executor(), options, clock_);
  std::atomic<int> messages = 0;
  auto watching = loop_.start(watch_to_end(client_.get(), &messages));
  RawPeer peer = member.accept();
  peer.read_until("\r\n\r\n");
  const std::string created = R"({"result":{"header":{"revision":"1"},"created":true}})"
                              "\n";
  peer.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n36\r\n" + created + "\r\n");
  ASSERT_EQ(created.size(), 0x36u);
  ASSERT_TRUE(loop_.eventually([&] { return messages == 1; }));
  EXPECT_EQ(watching.wait_for(1s), std::future_status::timeout) << "silence alone is no reason";
  EXPECT_TRUE(put().ok());  // the first is silent: the client fails over, which ends the watch
  EXPECT_EQ(watching.wait_for(10s), std::future_status::ready);
  EXPECT_FALSE(watching.get().ok());
}

TEST_F(EtcdMembers, WatchWithoutAnswerEnds) {
  a_.silent = true;
  std::atomic<int> messages = 0;
  EXPECT_FALSE(loop_.run(watch_to_end(&client(), &messages)).ok());
  EXPECT_EQ(messages, 0);
}

}  // namespace
}  // namespace troupe::net_test

// SIGHUP: settings are read again, whole or not at all; fixed settings stay.

#include "gateway/reload.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "tests/common/net/tls_fixture.h"
#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace {

class ReloadTest : public ::testing::Test {
 protected:
  ReloadTest() : log_file_(std::tmpfile()), log_(LogLevel::kInfo, fileno(log_file_)) {
    write(settings({a_, b_}));
    GatewaySettings fresh;
    SettingsSchema schema("test", "");
    describe_settings(fresh, schema);
    EXPECT_TRUE(schema.parse(kArgs, argv_).ok());
    auto config = make_config(fresh);
    EXPECT_TRUE(config.ok()) << config.status();
    config->main_server.port = config->metrics_server.port = 0;
    gateway_ = std::make_unique<TestGateway>(loop_, config->fleet.workers, *config);
    reload_ = std::make_unique<Reload>(kArgs, argv_, schema.values(), log_);
    EXPECT_TRUE(gateway_->becomes(1, "ready"));
  }
  ~ReloadTest() override {
    gateway_.reset();
    std::fclose(log_file_);
    ::unlink(path_.c_str());
  }

  static std::string settings(std::vector<std::reference_wrapper<StubWorker>> workers,
                              const std::string& more = "") {
    std::string text = "probe: {interval_ms: 50}\nshutdown_grace_period_secs: 0\nworker_urls:\n";
    for (StubWorker& worker : workers) text += "  - http://" + worker.id() + "\n";
    return text + more;
  }
  void write(const std::string& text) { std::ofstream(path_) << text; }
  // Returns the log's lines about it.
  std::string reload(const std::string& text) {
    write(text);
    const off_t begin = ::lseek(fileno(log_file_), 0, SEEK_END);
    loop_.call([this] { reload_->run(*gateway_->gateway); });
    std::string said(65'536, 0);
    const ssize_t size = ::pread(fileno(log_file_), said.data(), said.size(), begin);
    said.resize(static_cast<size_t>(std::max<ssize_t>(size, 0)));
    return said;
  }
  size_t members() {
    return loop_.call([this] { return gateway_->gateway->fleet().member_count(); });
  }

  static constexpr int kArgs = 3;
  Loop loop_;
  StubWorker a_{loop_, answer_whole}, b_{loop_, answer_whole}, c_{loop_, answer_whole};
  const std::string path_ = ::testing::TempDir() + "reload_test_" + std::to_string(::getpid()) + ".yaml";
  const char* const argv_[kArgs] = {"troupe-gateway", "--config", path_.c_str()};
  std::FILE* const log_file_;
  const Logger log_;
  std::unique_ptr<TestGateway> gateway_;
  std::unique_ptr<Reload> reload_;
};

TEST_F(ReloadTest, AddsAndRemovesWorkers) {
  const std::string said = reload(settings({b_, c_}));
  EXPECT_NE(said.find("event=reloaded"), std::string::npos) << said;
  EXPECT_NE(said.find("changed=worker_urls"), std::string::npos) << said;
  EXPECT_TRUE(gateway_->becomes(2, "ready"));
  EXPECT_TRUE(loop_.eventually([this] { return !gateway_->gateway->fleet().member(0); }));
  EXPECT_EQ(members(), 2u);
  for (int i = 0; i < 20; ++i) {
    const Answer answer = gateway_->ask(chat_body("Persona " + std::to_string(i), "Hi"));
    EXPECT_EQ(answer.status, 200);
    EXPECT_NE(answer.route("node"), a_.id());
  }
  reload(settings({a_, b_, c_}));
  EXPECT_TRUE(gateway_->becomes(0, "ready"));
  EXPECT_EQ(members(), 3u);
  EXPECT_EQ(loop_.call([this] { return gateway_->gateway->fleet().size(); }), 3u) << "in its old slot";
}

TEST_F(ReloadTest, ChangeToTlsKeepsTheWorker) {
  const std::string text = settings({a_, b_});
  std::string secure = text;
  secure.insert(secure.find("http://" + b_.id()) + 4, "s");
  reload(secure);
  EXPECT_TRUE(loop_.call([this] { return gateway_->gateway->fleet().client(1).endpoint().tls; }));
  EXPECT_TRUE(gateway_->becomes(1, "dead")) << "which it does not speak";
  EXPECT_EQ(members(), 2u);
  reload(text);
  EXPECT_TRUE(gateway_->becomes(1, "ready"));
}

Task<void> answer_after(const bool& go, StubWorker& stub, Exchange& exchange) {
  Timer timer(exchange.executor());
  while (!go) {
    timer.expires_after(1ms);
    co_await timer.async_wait(use_task);
  }
  co_await answer_whole(stub, exchange);
}

// The client that its request went through is another one by then.
TEST_F(ReloadTest, ReachesAWorkerInAnotherWayWhileItsAnswerIsAwaited) {
  bool go = false;
  loop_.call(
      [&] { a_.answer = b_.answer = [&go](StubWorker& s, Exchange& e) { return answer_after(go, s, e); }; });
  RawPeer peer = gateway_->connect();
  peer.send(http_post("/v1/chat/completions", chat_body("Persona", "Hi")));
  ASSERT_TRUE(loop_.eventually([this] { return a_.seen.size() + b_.seen.size() == 1; }));
  std::string secure = settings({a_, b_});
  for (const StubWorker* worker : {&a_, &b_}) secure.insert(secure.find("http://" + worker->id()) + 4, "s");
  reload(secure);
  EXPECT_TRUE(loop_.call([this] { return gateway_->gateway->fleet().client(0).endpoint().tls; }));
  loop_.call([&go] { go = true; });
  const Answer answer = read_answer(peer);
  EXPECT_EQ(answer.status, 200) << answer.body;
}

TEST_F(ReloadTest, ReplacesCertificatesWholeOrNotAtAll) {
  const net_test::TestFolder folder;
  const net_test::TestAuthority authority(folder);
  const TlsFiles first = authority.issue("first"), second = authority.issue("second");
  const auto with = [&](const std::string& certificate, const std::string& key) {
    return settings({a_, b_}, "tls: {certificate: " + certificate + ", private_key: " + key + "}\n");
  };
  const auto context = net_test::RawTls::client_context();
  // Name of the certificate that a new connection receives, if it speaks TLS.
  const auto shown = [&]() -> std::string {
    net_test::RawTls peer(context.get(), RawPeer::connect(gateway_->gateway->port()));
    if (!peer.connect()) return "";
    const net_test::OpenSsl<X509> certificate(SSL_get1_peer_certificate(peer.ssl()));
    return std::to_string(ASN1_INTEGER_get(X509_get0_serialNumber(certificate.get())));
  };
  EXPECT_EQ(shown(), "");
  const std::string said = reload(with(first.certificate, first.private_key));
  EXPECT_NE(said.find("tls.certificate"), std::string::npos) << said;
  const std::string before = shown();
  EXPECT_NE(before, "");
  const std::string refused = reload(with(second.certificate, first.private_key));
  EXPECT_NE(refused.find("event=not_reloaded"), std::string::npos) << refused;
  EXPECT_NE(refused.find("tls.private_key: " + first.private_key), std::string::npos) << refused;
  EXPECT_EQ(shown(), before);
  reload(with(second.certificate, second.private_key));
  EXPECT_NE(shown(), before);
  EXPECT_NE(shown(), "");
}

TEST_F(ReloadTest, KeepsWorkersAddedByAnOperator) {
  gateway_->admin_send("POST", "/admin/workers", R"({"url":"http://)" + c_.id() + "\"}");
  reload(settings({a_, b_}, "limits: {requests: 7}\n"));
  EXPECT_EQ(members(), 3u);
  reload(settings({a_, b_, c_}));
  reload(settings({a_, b_}));
  EXPECT_TRUE(loop_.eventually([this] { return gateway_->gateway->fleet().member_count() == 2; }));
}

TEST_F(ReloadTest, ChangesLimitsAndWeights) {
  const std::string big(4000, 'x');
  EXPECT_EQ(gateway_->ask(chat_body(big, "Hi")).status, 200);
  const std::string said =
      reload(settings({a_, b_}, "limits: {body_bytes: 2000}\nroute: {load_tokens: 500}\n"));
  EXPECT_NE(said.find("limits.body_bytes"), std::string::npos) << said;
  EXPECT_NE(said.find("route.load_tokens"), std::string::npos) << said;
  EXPECT_EQ(gateway_->ask(chat_body(big, "Hi")).status, 413);
  EXPECT_EQ(gateway_->ask(chat_body("small", "Hi")).status, 200);
  EXPECT_EQ(loop_.call([this] { return gateway_->gateway->router().options().affinity.load_tokens; }), 500);
  reload(settings({a_, b_}));
  EXPECT_EQ(gateway_->ask(chat_body(big, "Hi")).status, 200) << "a key left out has its default again";
}

TEST_F(ReloadTest, OneMistakeRefusesTheWholeFile) {
  for (const std::string mistake : {"limits: {requests: 0}\n", "limit: {requests: 5}\n", "port: [1]\n",
                                    "route: {\n", "api_keys: /nowhere\n"}) {
    const std::string said = reload(settings({b_, c_}, "request_timeout_secs: 5\n" + mistake));
    EXPECT_NE(said.find("event=not_reloaded"), std::string::npos) << said;
    // For malformed YAML the error names the file and the line.
    const std::string key = mistake == "route: {\n" ? ".yaml:" : mistake.substr(0, mistake.find(':'));
    EXPECT_NE(said.find(key), std::string::npos) << said;
  }
  EXPECT_EQ(members(), 2u);
  EXPECT_TRUE(loop_.call([this] { return gateway_->gateway->fleet().member(0); }));
}

TEST_F(ReloadTest, TooManyWorkersRefuseTheWholeFile) {
  std::string many = settings({b_, c_});
  for (int i = 1; i <= 4095; ++i) many += "  - http://127.0.0.2:" + std::to_string(i) + "\n";
  const std::string said = reload(many + "request_timeout_secs: 5\n");
  EXPECT_NE(said.find("event=not_reloaded"), std::string::npos) << said;
  EXPECT_NE(said.find("worker_urls"), std::string::npos) << said;
  EXPECT_EQ(members(), 2u);
  many.resize(many.rfind("  - "));
  const std::string beside = reload(many);
  EXPECT_NE(beside.find("event=not_reloaded"), std::string::npos)
      << "there is no room for them beside a's and b's";
  EXPECT_EQ(members(), 2u);
  EXPECT_TRUE(loop_.call([this] { return gateway_->gateway->fleet().member(0); }));
}

TEST_F(ReloadTest, NamesSettingsThatNeedARestart) {
  for (int i = 0; i < 2; ++i) {  // as long as the fault persists
    const std::string said = reload(settings({a_, b_}, "port: 1234\nlimits: {requests: 9}\n"));
    EXPECT_NE(said.find("event=not_changed key=port"), std::string::npos) << said;
    EXPECT_NE(said.find("event=reloaded"), std::string::npos) << said;
    EXPECT_EQ(said.find("limits.requests") != std::string::npos, i == 0) << said;
  }
  EXPECT_EQ(gateway_->ask(chat_body("p", "Hi")).status, 200);
}

}  // namespace
}  // namespace troupe::gateway_test

#include "common/net/tls.h"

#include "common/net/task_group.h"
#include "tests/common/net/tls_fixture.h"

namespace troupe::net_test {
namespace {

// Answers with the received body; GET /numbers: a stream of small pieces; GET /cut: a stream that breaks off;
// GET /sleep: answers after a long while.
Task<void> tls_handler(Exchange& exchange) {
  const std::string path = exchange.request().path;
  const HeaderList headers;
  if (path == "/sleep") {
    Timer timer(exchange.executor());
    timer.expires_after(20s);
    co_await timer.async_wait(use_task);
  }
  if (path != "/numbers" && path != "/cut") {
    std::string body = exchange.request().body;
    co_await exchange.respond(200, headers, std::move(body));
    co_return;
  }
  co_await exchange.start(200, headers);
  for (int i = 0; i < 1000; ++i) {
    const std::string piece = std::to_string(i) + " ";
    co_await exchange.write(piece);
  }
  if (path == "/cut") {
    exchange.cut();
    co_return;
  }
  co_await exchange.finish();
}

std::string numbers() {
  std::string all;
  for (int i = 0; i < 1000; ++i) all += std::to_string(i) + " ";
  return all;
}

// Text in which lost, repeated or swapped bytes show.
std::string text_of(size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += std::to_string(text.size()) + ",";
  text.resize(bytes);
  return text;
}

struct TlsFetched {
  Status status;
  int http_status = 0;
  std::string body;
};

Task<TlsFetched> tls_fetch(HttpClient& client, std::string target, std::string body) {
  TlsFetched fetched;
  ClientRequest request;
  request.method = body.empty() ? "GET" : "POST";
  request.target = target;
  request.body = body;
  const Deadline deadline = Deadline::after(now(), 20s);
  auto answer = co_await client.send(request, deadline);
  fetched.status = answer.status();
  if (!answer.ok()) co_return fetched;
  fetched.http_status = (*answer)->status();
  auto all = co_await (*answer)->read_all(64u << 20);
  fetched.status = all.status();
  if (all.ok()) fetched.body = *std::move(all);
  co_return fetched;
}

// An authority, a server with its certificate, and clients that trust it.
class Tls : public testing::Test {
 protected:
  HttpServerOptions over_tls() {
    HttpServerOptions options;
    options.tls = server_tls(files);
    return options;
  }
  HttpClientOptions trusting() {
    HttpClientOptions options;
    TlsFiles trusted;
    trusted.ca = authority.path();
    options.tls = client_tls(trusted);
    return options;
  }
  static Endpoint secure(Endpoint endpoint) {
    endpoint.tls = true;
    return endpoint;
  }
  TlsFetched fetch(const Endpoint& endpoint, const HttpClientOptions& options, std::string target = "/",
                   std::string body = "") {
    auto client = std::make_unique<HttpClient>(loop.executor(), secure(endpoint), options);
    const TlsFetched fetched = loop.run(tls_fetch(*client, std::move(target), std::move(body)));
    loop.call([&client] { client.reset(); });
    return fetched;
  }
  RawTls raw(uint16_t port, int receive_buffer = 0) {
    return RawTls(raw_context.get(), RawPeer::connect(port, receive_buffer));
  }

  TestFolder folder;
  TestAuthority authority{folder};
  TlsFiles files = authority.issue("server");
  OpenSsl<SSL_CTX> raw_context = RawTls::client_context();
  Loop loop;
};

TEST_F(Tls, TransfersBodiesOfAllSizesBothWays) {
  TestServer server(loop, tls_handler, over_tls());
  auto client = std::make_unique<HttpClient>(loop.executor(), secure(server.endpoint()), trusting());
  for (const size_t size : {0u, 1u, 1000u, 16'000u, 16'384u, 16'385u, 200'000u, 5'000'000u}) {
    const std::string body = text_of(size);
    const TlsFetched fetched = loop.run(tls_fetch(*client, "/", body));
    ASSERT_TRUE(fetched.status.ok()) << fetched.status.ToString();
    EXPECT_EQ(fetched.http_status, 200);
    EXPECT_TRUE(fetched.body == body) << size;
  }
  const TlsFetched stream = loop.run(tls_fetch(*client, "/numbers", ""));
  EXPECT_EQ(stream.body, numbers());
  EXPECT_EQ(loop.call([&client] { return client->stats().connects; }), 1u);
  loop.call([&client] { client.reset(); });
}

TEST_F(Tls, IdleConnectionSurvivesTheServersTickets) {
  TestServer server(loop, tls_handler, over_tls());
  auto client = std::make_unique<HttpClient>(loop.executor(), secure(server.endpoint()), trusting());
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(loop.run(tls_fetch(*client, "/", "x")).status.ok());
    std::this_thread::sleep_for(50ms);
  }
  EXPECT_EQ(loop.call([&client] { return client->stats().reuses; }), 2u);
  loop.call([&client] { client.reset(); });
}

TEST_F(Tls, RefusesServerOfAnotherAuthority) {
  const TestAuthority other(folder, "other");
  HttpServerOptions options;
  options.tls = server_tls(other.issue("stranger"));
  TestServer server(loop, tls_handler, options);
  const TlsFetched fetched = fetch(server.endpoint(), trusting());
  EXPECT_EQ(fetched.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(send_phase(fetched.status), SendPhase::kConnect);
  EXPECT_NE(fetched.status.ToString().find("certificate verify failed"), std::string::npos)
      << fetched.status.ToString();
}

TEST_F(Tls, RefusesCertificateForAnotherName) {
  CertificateSpec spec;
  spec.alternatives = "DNS:elsewhere.example,IP:127.0.0.2";
  HttpServerOptions options;
  options.tls = server_tls(authority.issue("elsewhere", spec));
  TestServer server(loop, tls_handler, options);
  const TlsFetched by_address = fetch(server.endpoint(), trusting());
  EXPECT_NE(by_address.status.ToString().find("IP address mismatch"), std::string::npos)
      << by_address.status.ToString();
  Endpoint named = server.endpoint();
  named.host = "localhost";
  const TlsFetched by_name = fetch(named, trusting());
  EXPECT_NE(by_name.status.ToString().find("hostname mismatch"), std::string::npos)
      << by_name.status.ToString();
}

TEST_F(Tls, ClientSendsTheHostsName) {
  TestServer server(loop, tls_handler, over_tls());
  Endpoint named = server.endpoint();
  named.host = "localhost";
  EXPECT_EQ(fetch(named, trusting(), "/", "hello").body, "hello");
  RawListener listener;
  named.port = listener.endpoint.port;
  auto client = std::make_unique<HttpClient>(loop.executor(), secure(named), trusting());
  auto fetched = loop.start(tls_fetch(*client, "/", ""));
  const OpenSsl<SSL_CTX> context = RawTls::server_context(files);
  RawTls peer(context.get(), listener.accept());
  ASSERT_TRUE(peer.accept());
  EXPECT_STREQ(SSL_get_servername(peer.ssl(), TLSEXT_NAMETYPE_host_name), "localhost");
  EXPECT_NE(peer.receive_until("\r\n\r\n").find("host: localhost:"), std::string::npos);
  EXPECT_TRUE(peer.send("HTTP/1.1 204 No Content\r\n\r\n"));
  EXPECT_EQ(fetched.get().http_status, 204);
  loop.call([&client] { client.reset(); });
}

TEST_F(Tls, HttpsWithoutSettingsIsAnError) {
  TestServer server(loop, tls_handler, over_tls());
  EXPECT_FALSE(fetch(server.endpoint(), HttpClientOptions()).status.ok());
}

TEST_F(Tls, RefusesClientsWithoutCertificateOfTheAuthority) {
  const TestAuthority clients(folder, "clients");
  HttpServerOptions options;
  TlsFiles asking = files;
  asking.ca = clients.path();
  options.tls = server_tls(asking);
  TestServer server(loop, tls_handler, options);
  TlsFiles mine;
  mine.ca = authority.path();
  HttpClientOptions client;
  client.tls = client_tls(mine);
  const TlsFetched without = fetch(server.endpoint(), client);
  EXPECT_NE(without.status.ToString().find("certificate required"), std::string::npos)
      << without.status.ToString();

  const TlsFiles wrong = authority.issue("wrong-client");
  mine.certificate = wrong.certificate, mine.private_key = wrong.private_key;
  client.tls = client_tls(mine);
  const TlsFetched refused = fetch(server.endpoint(), client);
  EXPECT_NE(refused.status.ToString().find("TLS: "), std::string::npos) << refused.status.ToString();

  const TlsFiles right = clients.issue("client");
  mine.certificate = right.certificate, mine.private_key = right.private_key;
  client.tls = client_tls(mine);
  EXPECT_EQ(fetch(server.endpoint(), client, "/", "it is me").body, "it is me");
}

TEST_F(Tls, PlainHttpClientGetsAnExplanation) {
  TestServer server(loop, tls_handler, over_tls());
  RawPeer peer = RawPeer::connect(server.port());
  EXPECT_TRUE(peer.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi"));
  const std::string answer = peer.read_to_end();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 400 ")) << answer;
  EXPECT_NE(answer.find("this port speaks TLS"), std::string::npos) << answer;
  peer.close();
  RawPeer noise = RawPeer::connect(server.port());
  EXPECT_TRUE(noise.send(std::string(3000, '\x80')));
  noise.shutdown_send();
  noise.read_to_end();
  EXPECT_TRUE(noise.closed_within(2s));
  EXPECT_EQ(fetch(server.endpoint(), trusting(), "/", "still here").body, "still here");
  EXPECT_TRUE(loop.eventually([&] { return server.server.connections() == 0; }));
}

TEST_F(Tls, ClosesSilentClientInTimeAndCountsIt) {
  HttpServerOptions options = over_tls();
  options.header_timeout = 300ms;
  options.connections_max = 1;
  Metrics metrics;
  options.handshakes_failed = &metrics.counter("failed", "");
  TestServer server(loop, tls_handler, options);
  const TimePoint begin = now();
  RawPeer silent = RawPeer::connect(server.port());
  ASSERT_TRUE(loop.eventually([&] { return server.server.connections() == 1; }));
  RawPeer second = RawPeer::connect(server.port());
  EXPECT_TRUE(second.closed_within(250ms)) << "one too many";
  EXPECT_TRUE(silent.closed_within(5s));
  EXPECT_GE(now() - begin, 300ms);
  EXPECT_TRUE(loop.eventually([&] { return server.server.connections() == 0; }));
  EXPECT_EQ(metrics.counter("failed", "").Value(), 1);
  EXPECT_EQ(fetch(server.endpoint(), trusting(), "/", "next").body, "next");
}

TEST_F(Tls, DrainIgnoresHandshakes) {
  auto server = std::make_unique<TestServer>(loop, tls_handler, over_tls());
  RawPeer silent = RawPeer::connect(server->port());
  ASSERT_TRUE(loop.eventually([&] { return server->server.connections() == 1; }));
  const TimePoint begin = now();
  server->drain(10s);
  EXPECT_LT(now() - begin, 5s);
  EXPECT_TRUE(silent.closed_within(1s));
}

TEST_F(Tls, AcceptsBytesOneByOne) {
  TestServer server(loop, tls_handler, over_tls());
  RawPeer peer = RawPeer::connect(server.port());
  const OpenSsl<SSL> ssl(SSL_new(raw_context.get()));
  BIO* in = BIO_new(BIO_s_mem());
  BIO* out = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl.get(), in, out);
  SSL_set_connect_state(ssl.get());
  const auto trickle = [&] {
    char byte = 0;
    while (BIO_read(out, &byte, 1) == 1) {
      EXPECT_TRUE(peer.send({&byte, 1}));
      std::this_thread::sleep_for(200us);
    }
  };
  while (SSL_do_handshake(ssl.get()) != 1) {
    ASSERT_EQ(SSL_get_error(ssl.get(), -1), SSL_ERROR_WANT_READ);
    trickle();
    const std::string bytes = peer.read_some(1);
    ASSERT_FALSE(bytes.empty());
    BIO_write(in, bytes.data(), static_cast<int>(bytes.size()));
  }
  const std::string request = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 300\r\n\r\n" + text_of(300);
  SSL_write(ssl.get(), request.data(), static_cast<int>(request.size()));
  trickle();
  std::string answer;
  while (answer.find(text_of(300)) == std::string::npos) {
    const std::string bytes = peer.read_some(1);
    ASSERT_FALSE(bytes.empty());
    BIO_write(in, bytes.data(), static_cast<int>(bytes.size()));
    char plain[4096];
    const int size = SSL_read(ssl.get(), plain, sizeof plain);
    if (size > 0) answer.append(plain, static_cast<size_t>(size));
  }
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 "));
}

TEST_F(Tls, SlowReaderGetsLargeAnswerWhole) {
  TestServer server(loop, tls_handler, over_tls());
  RawTls peer = raw(server.port(), 4096);
  ASSERT_TRUE(peer.connect());
  const std::string body = text_of(3'000'000);
  std::thread sender([&] {
    // The server answers once it has all: neither side waits for the other.
    const std::string head =
        "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: " + std::to_string(body.size());
    EXPECT_TRUE(peer.send(head + "\r\n\r\n"));
    EXPECT_TRUE(peer.send(body));
  });
  sender.join();
  std::this_thread::sleep_for(100ms);
  const std::string answer = peer.receive_to_end();
  EXPECT_TRUE(answer.ends_with(body)) << answer.size();
  EXPECT_TRUE(peer.ended_well());
}

TEST_F(Tls, WriteOfManyPiecesIsOneRecord) {
  TestServer server(loop, tls_handler, over_tls());
  RawTls peer = raw(server.port());
  ASSERT_TRUE(peer.connect());
  ASSERT_TRUE(peer.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello"));
  const std::string answer = peer.receive();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nhello")) << answer;
  ASSERT_TRUE(peer.send("GET /numbers HTTP/1.1\r\nhost: a\r\n\r\n"));
  EXPECT_TRUE(peer.receive().ends_with("\r\n\r\n2\r\n0 \r\n"));
  EXPECT_EQ(peer.receive(), "2\r\n1 \r\n");
}

TEST_F(Tls, AcceptsKeyUpdateAtAnyTime) {
  TestServer server(loop, tls_handler, over_tls());
  RawTls peer = raw(server.port());
  ASSERT_TRUE(peer.connect());
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(SSL_key_update(peer.ssl(), SSL_KEY_UPDATE_REQUESTED), 1);
    ASSERT_TRUE(peer.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi"));
    EXPECT_TRUE(peer.receive().ends_with("hi"));
  }
}

TEST_F(Tls, ClientsCloseEndsItsRequest) {
  TestServer server(loop, tls_handler, over_tls());
  for (const bool in_good_order : {true, false}) {
    RawTls peer = raw(server.port());
    ASSERT_TRUE(peer.connect());
    ASSERT_TRUE(peer.send("GET /sleep HTTP/1.1\r\nhost: a\r\n\r\n"));
    ASSERT_TRUE(loop.eventually([&] { return server.server.requests_running() == 1; }));
    if (in_good_order) peer.say_end();
    peer.close();
    EXPECT_TRUE(loop.eventually([&] { return server.server.requests_running() == 0; }, 2s));
  }
}

// A body delimited by the connection's end: only an announced end counts.
TEST_F(Tls, BrokenConnectionIsNotTheEndOfABody) {
  const OpenSsl<SSL_CTX> context = RawTls::server_context(files);
  RawListener listener;
  for (const bool announced : {true, false}) {
    auto client = std::make_unique<HttpClient>(loop.executor(), secure(listener.endpoint), trusting());
    auto fetched = loop.start(tls_fetch(*client, "/", ""));
    RawTls peer(context.get(), listener.accept());
    ASSERT_TRUE(peer.accept());
    peer.receive_until("\r\n\r\n");
    ASSERT_TRUE(peer.send("HTTP/1.1 200 OK\r\n\r\nhalf of it"));
    if (announced) peer.say_end();
    peer.close();
    const TlsFetched got = fetched.get();
    EXPECT_EQ(got.status.ok(), announced) << got.status.ToString();
    if (!announced) {
      EXPECT_EQ(send_phase(got.status), SendPhase::kBody);
    }
    loop.call([&client] { client.reset(); });
  }
}

TEST_F(Tls, CutAnswerDoesNotLookWhole) {
  TestServer server(loop, tls_handler, over_tls());
  for (const std::string path : {"/numbers", "/cut"}) {
    RawTls peer = raw(server.port());
    ASSERT_TRUE(peer.connect());
    ASSERT_TRUE(peer.send("GET " + path + " HTTP/1.0\r\nhost: a\r\n\r\n"));
    EXPECT_TRUE(peer.receive_to_end().ends_with(" 998 999 "));
    EXPECT_EQ(peer.ended_well(), path == "/numbers");
  }
}

TEST_F(Tls, ChangeAppliesToNewConnections) {
  TestServer server(loop, tls_handler, over_tls());
  const auto serial = [](RawTls& peer) {
    const OpenSsl<X509> certificate(SSL_get1_peer_certificate(peer.ssl()));
    return certificate ? ASN1_INTEGER_get(X509_get0_serialNumber(certificate.get())) : 0;
  };
  RawTls old = raw(server.port());
  ASSERT_TRUE(old.connect());
  HttpServerOptions changed;
  changed.tls = server_tls(authority.issue("renewed"));
  loop.call([&] { server.server.change(changed); });
  RawTls fresh = raw(server.port());
  ASSERT_TRUE(fresh.connect());
  EXPECT_NE(serial(old), serial(fresh));
  for (RawTls* peer : {&old, &fresh}) {
    ASSERT_TRUE(peer->send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi"));
    EXPECT_TRUE(peer->receive().ends_with("hi"));
  }
}

TEST_F(Tls, TicketSavesTheSecondHandshake) {
  TestServer server(loop, tls_handler, over_tls());
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    const OpenSsl<SSL_CTX> context = RawTls::client_context();
    SSL_CTX_set_max_proto_version(context.get(), version);
    OpenSsl<SSL_SESSION> session;
    for (const bool again : {false, true}) {
      RawTls peer(context.get(), RawPeer::connect(server.port()));
      if (again) SSL_set_session(peer.ssl(), session.get());
      ASSERT_TRUE(peer.connect());
      ASSERT_TRUE(peer.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi"));
      EXPECT_TRUE(peer.receive().ends_with("hi"));  // TLS 1.3 tickets come with the first bytes
      EXPECT_EQ(SSL_session_reused(peer.ssl()), again ? 1 : 0) << version;
      session.reset(SSL_get1_session(peer.ssl()));
      peer.say_end();
    }
  }
}

TEST_F(Tls, RefusesOldVersionsWeakCiphersAndOtherProtocols) {
  TestServer server(loop, tls_handler, over_tls());
  const OpenSsl<SSL_CTX> old = RawTls::client_context();
  SSL_CTX_set_security_level(old.get(), 0);
  SSL_CTX_set_max_proto_version(old.get(), TLS1_1_VERSION);
  SSL_CTX_set_min_proto_version(old.get(), TLS1_VERSION);
  EXPECT_FALSE(RawTls(old.get(), RawPeer::connect(server.port())).connect());
  const OpenSsl<SSL_CTX> weak = RawTls::client_context();
  SSL_CTX_set_max_proto_version(weak.get(), TLS1_2_VERSION);
  SSL_CTX_set_cipher_list(weak.get(), "ECDHE-ECDSA-AES128-SHA256:AES128-SHA");
  EXPECT_FALSE(RawTls(weak.get(), RawPeer::connect(server.port())).connect());
  for (const std::string offered : {"\x02h2", "\x02h2\x08http/1.1"}) {
    RawTls peer = raw(server.port());
    SSL_set_alpn_protos(peer.ssl(), reinterpret_cast<const unsigned char*>(offered.data()),
                        static_cast<unsigned>(offered.size()));
    EXPECT_EQ(peer.connect(), offered.size() > 3) << offered;
  }
}

TEST_F(Tls, ReportsExpiryOfItsCertificate) {
  CertificateSpec spec;
  spec.ends_in_s = 1000;
  const auto context = server_tls(authority.issue("short", spec));
  const int64_t seconds = std::time(nullptr);
  ASSERT_TRUE(context->expires_at().has_value());
  EXPECT_NEAR(static_cast<double>(*context->expires_at()), static_cast<double>(seconds + 1000), 30);
  EXPECT_FALSE(client_tls({})->context->expires_at().has_value());
}

TEST_F(Tls, NamesTheFaultOfAFile) {
  CertificateSpec past, future;
  past.begins_in_s = -1000, past.ends_in_s = -10;
  future.begins_in_s = 1000;
  const TlsFiles other = authority.issue("other"), ended = authority.issue("ended", past),
                 early = authority.issue("early", future);
  const std::string noise = folder.write("noise.pem", "nothing of the kind"),
                    empty = folder.write("empty.pem", ""),
                    broken = folder.write("broken.pem",
                                          "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
  const std::string encrypted = folder.file("encrypted.key");
  std::FILE* out = std::fopen(encrypted.c_str(), "w");
  const OpenSsl<EVP_PKEY> key(EVP_EC_gen("P-256"));
  char passphrase[] = "secret";
  PEM_write_PKCS8PrivateKey(out, key.get(), EVP_aes_128_cbc(), passphrase, 6, nullptr, nullptr);
  std::fclose(out);
  struct Case {
    TlsFiles files;
    std::string at, why;
  };
  const std::string good = files.certificate, good_key = files.private_key;
  for (const Case& wrong : {
           Case{{"/nowhere.pem", good_key, ""}, "tls.certificate: /nowhere.pem", "No such file"},
           Case{{good, "/nowhere.key", ""}, "tls.private_key: /nowhere.key", "No such file"},
           Case{{good, good_key, "/nowhere.ca"}, "tls.client_ca: /nowhere.ca", "No such file"},
           Case{{good, "", ""}, "tls.private_key: is needed with tls.certificate", ""},
           Case{{"", good_key, ""}, "tls.certificate: is needed with tls.private_key", ""},
           Case{{"", "", authority.path()}, "tls.certificate: is needed with tls.client_ca", ""},
           Case{{good, other.private_key, ""}, "tls.private_key: " + other.private_key, good},
           Case{{ended.certificate, ended.private_key, ""}, "tls.certificate", "has ended on 20"},
           Case{{early.certificate, early.private_key, ""}, "tls.certificate", "not valid before 20"},
           Case{{noise, good_key, ""}, "tls.certificate: " + noise, "holds no certificate"},
           Case{{empty, good_key, ""}, "tls.certificate: " + empty, "is empty"},
           Case{{broken, good_key, ""}, "tls.certificate: " + broken, "malformed"},
           Case{{good, good, ""}, "tls.private_key: " + good, "holds no private key"},
           Case{{good, encrypted, ""}, "tls.private_key: " + encrypted, "is encrypted"},
           Case{{good, good_key, good_key}, "tls.client_ca: " + good_key, "holds no certificate"},
       }) {
    const auto context = TlsContext::for_server(wrong.files, "tls");
    ASSERT_FALSE(context.ok()) << wrong.at;
    EXPECT_EQ(context.status().code(), absl::StatusCode::kInvalidArgument);
    const std::string message(context.status().message());
    EXPECT_EQ(message.find(wrong.at), 0u) << message;
    EXPECT_NE(message.find(wrong.why), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace troupe::net_test

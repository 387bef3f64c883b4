// Workers that want more than a URL: keys, names of their own for models, paths, authorities.

#include "gateway/cluster/upstream.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "gateway/config.h"
#include "tests/common/net/tls_fixture.h"
#include "tests/common/temp_dir.h"
#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(UpstreamUrl, HasAPathAndCredentials) {
  const auto plain = Upstream::parse("http://h:8000");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->id(), "h:8000");
  EXPECT_EQ(plain->path, "");
  EXPECT_TRUE(plain->is_plain());
  for (const char* url :
       {"https://h/openai", "https://h/openai/", "https://h/openai/v1", "https://h/openai/v1/"}) {
    const auto under = Upstream::parse(url);
    ASSERT_TRUE(under.ok()) << under.status();
    EXPECT_EQ(under->path, "/openai") << url;
    EXPECT_EQ(under->id(), "h:443/openai");
    EXPECT_EQ(under->url(), "https://h:443/openai");
    EXPECT_FALSE(under->is_plain());
  }
  EXPECT_EQ(Upstream::parse("h:1/v1")->path, "");
  const auto named = Upstream::parse("http://me:p%40ss%3a%2Fw@[::1]:8/a/b");
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->authorization, "Basic bWU6cEBzczovdw==");  // me:p@ss:/w
  EXPECT_EQ(named->id(), "[::1]:8/a/b");
  EXPECT_EQ(named->url(), "http://[::1]:8/a/b");
}

TEST(UpstreamUrl, RefusesByNameAndNeverShowsCredentials) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"http://h:1?x=1", "neither query"},
      {"http://h:1/a#b", "neither query"},
      {"ftp://h:1", "scheme must be http or https"},
      {"http://h:1/a b", "is no plain path"},
      {"http://h:1/a;b", "is no plain path"},
      {"http://h:1//a", "is no plain path"},
      {"http://u:secret@h:1/a b", "is no plain path"},
      {"http://u:secret@h:0", "the port must be 1 to 65535"},
      {"http://u:secret@h:1/?q", "neither query"},
      {"http://u:secr%zzet@h:1", "two hex digits"},
      {"http://u:secret%0a@h:1", "a control character"},
      {"http://secret@h:1", "user:password@"},
      {"http://u:secr#et@h:8000", "%23"},
      {"http://u:secr/et@h:8000", "%2F"},
      {"http://u:secr?et@h:8000", "%3F"},
      {"http://u:secr@et/x@h:8000", "%2F"},
  };
  for (const auto& [url, why] : cases) {
    const auto upstream = Upstream::parse(url);
    ASSERT_FALSE(upstream.ok()) << url;
    EXPECT_THAT(std::string(upstream.status().message()), HasSubstr(why)) << url;
    EXPECT_THAT(std::string(upstream.status().message()), Not(HasSubstr("secr"))) << url;
  }
}

// As copied from a client's settings: every request would go to /v1/chat/completions/v1/chat/completions.
TEST(UpstreamUrl, EndsBeforeTheEndpoint) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"http://h:8000/v1/chat/completions", "write http://h:8000"},
      {"http://h:8000/v1/chat/completions/", "write http://h:8000"},
      {"https://h/openai/v1/completions", "write https://h/openai"},
      {"https://h/api/chat/completions", "write https://h/api"},
      {"http://h:8000/v1/models", "write http://h:8000"},
      {"http://h:8000/v1/embeddings", "write http://h:8000"},
      {"http://h:8000/v1/messages", "write http://h:8000"},
      {"http://u:secret@h:8000/a/v1/responses", "write http://h:8000/a"}};
  for (const auto& [url, right] : cases) {
    const auto upstream = Upstream::parse(url);
    ASSERT_FALSE(upstream.ok()) << url;
    const std::string why(upstream.status().message());
    EXPECT_TRUE(why.ends_with(right)) << why;
    EXPECT_THAT(why, Not(HasSubstr("secr"))) << url;
    EXPECT_TRUE(Upstream::parse(right.substr(right.find("http"))).ok()) << right;
  }
  for (const char* path : {"/v1", "/v1/", "/openai/v1", "/v1/account/gateway/openai", "/rerank", "/models"})
    EXPECT_TRUE(Upstream::parse("http://h:8000" + std::string(path)).ok()) << path;
}

TEST(Upstream, ServesUnderClientsNames) {
  std::vector<ModelCard> listed(3);
  listed[0].id = "org/m";
  listed[1].id = "other";
  listed[2].id = "third";
  Upstream upstream;
  EXPECT_EQ(upstream.served(listed).size(), 3u);
  EXPECT_EQ(upstream.name_of("m"), "m");
  upstream.models = {{"m", "org/m"}, {"large", "org/m"}, {"gone", "nowhere"}};
  const auto served = upstream.served(listed);
  ASSERT_EQ(served.size(), 2u);
  EXPECT_EQ(served[0].id, "large");
  EXPECT_EQ(served[1].id, "m");
  EXPECT_EQ(upstream.name_of("large"), "org/m");
  EXPECT_EQ(upstream.served_unlisted().size(), 3u);
}

TEST(Upstream, ServesAModelWithoutItsTag) {
  std::vector<ModelCard> listed(3);
  listed[0].id = "m:latest";
  listed[1].id = "other";
  listed[2].id = "other:latest";
  const auto ids = [&](const Upstream& upstream) {
    std::string all;
    for (const ModelCard& card : upstream.served(listed)) all += card.id + " ";
    return all;
  };
  Upstream upstream;
  EXPECT_EQ(ids(upstream), "m:latest other other:latest m ");
  upstream.models = {{"small", "m"}};
  EXPECT_EQ(ids(upstream), "small ");
  EXPECT_EQ(upstream.name_of("small"), "m");
}

// The settings of a file with these lines, or the error.
StatusOr<GatewayConfig> config_with(const std::string& lines) {
  GatewaySettings settings;
  SettingsSchema schema("troupe-gateway", "");
  describe_settings(settings, schema);
  TROUPE_RETURN_IF_ERROR(schema.load_yaml(lines, "f.yaml"));
  return make_config(settings);
}

std::string error_of(const std::string& lines) {
  const auto config = config_with(lines);
  return config.ok() ? "ok" : std::string(config.status().message());
}

class UpstreamSettings : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) const { return dir_.write(name, text); }
  TempDir dir_;
};

TEST_F(UpstreamSettings, EachAddressOfANameMayBeAWorker) {
  const auto config = config_with(
      "worker_urls: []\nupstreams:\n  - {url: 'http://a:1', resolve: each, weight: 2}\n"
      "  - {url: 'http://b:1', resolve: one}\n  - {url: 'http://c:1'}\n");
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_EQ(config->fleet.names.size(), 1u);
  EXPECT_EQ(config->fleet.workers.size(), 2u);
  const Upstream worker = config->fleet.names[0].at("10.0.0.1");
  EXPECT_EQ(worker.id(), "a:1/10.0.0.1");
  EXPECT_EQ(worker.url(), "http://a:1");
  EXPECT_EQ(worker.weight, 2);
  EXPECT_FALSE(worker.is_plain());
  EXPECT_FALSE(worker.same_as(config->fleet.names[0].at("10.0.0.2")));
  for (const std::string url : {"http://10.0.0.1:1", "http://[::1]:1"})
    EXPECT_THAT(error_of("upstreams:\n  - {url: '" + url + "', resolve: each}\n"),
                HasSubstr("upstreams[0]: resolve: each is of use with a name"));
  EXPECT_THAT(error_of("upstreams:\n  - {url: 'http://a:1', resolve: all}\n"), HasSubstr("resolve"));
  EXPECT_THAT(error_of("worker_urls: ['http://a:1']\nupstreams:\n  - {url: 'http://a:1', resolve: each}\n"),
              HasSubstr("is there twice"));
}

TEST_F(UpstreamSettings, AreReadBesideWorkerUrls) {
  ::setenv("UPSTREAM_TEST_KEY", "from-env", 1);
  const auto config = config_with(
      "worker_urls: ['http://a:1', 'http://u:p@b:1/x']\nupstreams:\n"
      "  - url: http://c:1\n    api_key_file: " +
      file("key", "sk-1\n") +
      "\n    kind: openai\n    weight: 2.5\n    models: {org/small-1.5: own, m.2: other}\n"
      "  - {url: 'https://d', api_key_env: UPSTREAM_TEST_KEY, tls: {insecure_skip_verify: true}}\n"
      "  - {url: 'https://e', api_key_env: UPSTREAM_TEST_KEY, api_key_header: x-api-key}\n"
      "  - {url: 'https://f', api_key_env: UPSTREAM_TEST_KEY, api_key_header: api-key}\n");
  ASSERT_TRUE(config.ok()) << config.status();
  const std::vector<Upstream>& workers = config->fleet.workers;
  ASSERT_EQ(workers.size(), 6u);
  EXPECT_EQ(workers[3].key_header, "authorization");
  EXPECT_EQ(workers[4].key_header + " " + workers[4].authorization, "x-api-key from-env");
  EXPECT_EQ(workers[5].key_header + " " + workers[5].authorization, "api-key from-env");
  EXPECT_FALSE(workers[4].same_as(workers[5]));
  EXPECT_TRUE(workers[0].is_plain());
  EXPECT_EQ(workers[1].authorization, "Basic dTpw");
  EXPECT_EQ(workers[2].authorization, "Bearer sk-1");
  EXPECT_EQ(workers[2].kind, UpstreamKind::kOpenai);
  EXPECT_EQ(workers[2].weight, 2.5);
  EXPECT_EQ(workers[2].name_of("org/small-1.5"), "own");
  EXPECT_EQ(workers[2].name_of("m.2"), "other");
  EXPECT_EQ(workers[3].authorization, "Bearer from-env");
  EXPECT_TRUE(workers[3].insecure_skip_verify);
  ASSERT_NE(workers[3].tls, nullptr);
  EXPECT_TRUE(config_with("upstreams: [{url: 'http://a:1'}]\n").ok()) << "worker_urls may be empty";
}

TEST_F(UpstreamSettings, RefuseMistakesByName) {
  const std::string key = file("key", "sk-1"), empty = file("empty", "\n"), two = file("two", "a b");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"upstreams: [{}]", "upstreams[0]: url: is needed"},
      {"upstreams: {url: 'http://a:1'}", "'upstreams' must be a list of maps, not a map"},
      {"upstreams: [http://a:1]", "'upstreams' items must be maps"},
      {"upstreams: http://a:1", "'upstreams' must be a list of maps, not 'http://a:1'"},
      {"upstreams: [{url: [a]}]", "'upstreams[0].url' must have a plain value, not a list"},
      {"upstreams: [{url: }]", "'upstreams[0].url' must have a value"},
      {"upstreams: [{urls: a}]", "unknown key 'urls'; did you mean 'url'?"},
      {"upstreams: [{url: 'http://a:1', api_key: sk-secret}]", "unknown key 'api_key'"},
      {"upstreams: [{url: 'http://a:1', weight: 0}]", "'weight' must be a number from 0.01 to 100"},
      {"upstreams: [{url: 'http://a:1', kind: vllm}]", "'kind' must be one of auto, troupe, openai"},
      {"upstreams: [{url: 'http://a:1', api_key_file: /nowhere/key}]",
       "upstreams[0]: api_key_file: /nowhere/key: cannot"},
      {"upstreams: [{url: 'http://a:1', api_key_file: /dev/zero}]",
       "upstreams[0]: api_key_file: /dev/zero: "},
      {"upstreams: [{url: 'http://a:1', api_key_file: " + empty + "}]", "is empty"},
      {"upstreams: [{url: 'http://a:1', api_key_file: " + two + "}]", "one key alone"},
      {"upstreams: [{url: 'http://a:1', api_key_env: UPSTREAM_TEST_NONE}]",
       "api_key_env: UPSTREAM_TEST_NONE: there is no such variable"},
      {"upstreams: [{url: 'http://a:1', api_key_file: " + key + ", api_key_env: X}]", "name one of them"},
      {"upstreams: [{url: 'http://a:1', api_key_header: x-api-key}]", "api_key_header: is of use with"},
      {"upstreams: [{url: 'http://a:1', api_key_file: " + key + ", api_key_header: cookie}]",
       "'api_key_header' must be one of authorization, x-api-key, api-key"},
      {"upstreams: [{url: 'http://u:p@a:1', api_key_file: " + key + "}]", "url: has credentials"},
      {"upstreams: [{url: 'http://a:1', tls: {insecure_skip_verify: true}}]", "with an https:// url only"},
      {"upstreams: [{url: 'https://a', tls: {ca_file: /nowhere/ca}}]", "/nowhere/ca"},
      {"upstreams: [{url: 'http://a:1', models: {m: ''}}]", "models.m: is empty"},
      {"upstreams: [{url: 'http://a:1/v1/chat/completions'}]", "write http://a:1"},
      {"worker_urls: ['http://a:1/v1/completions']", "worker_urls[0]: 'http://a:1/v1/completions': names an"},
      {"worker_urls: ['http://a:1']\nupstreams: [{url: 'http://a:1'}]",
       "upstreams[0]: http://a:1 is there twice"},
      {"worker_urls: ['http://u:secret@a:1/p', 'http://a:1/p']",
       "worker_urls[1]: http://a:1/p is there twice"},
  };
  for (const auto& [lines, error] : cases) {
    EXPECT_THAT(error_of(lines), HasSubstr(error)) << lines;
    EXPECT_THAT(error_of(lines), Not(HasSubstr("secret"))) << lines;
  }
}

class KeyedWorker : public ::testing::Test {
 protected:
  KeyedWorker() {
    loop_.call([&] {
      stub_.ready_status = 404;
      stub_.wants_authorization = "Bearer own";
    });
    upstream_.endpoint = stub_.endpoint();
  }
  std::vector<HttpRequest> seen() {
    return loop_.call([&] { return stub_.seen; });
  }

  Loop loop_;
  StubWorker stub_{loop_, answer_whole};
  Upstream upstream_;
};

TEST_F(KeyedWorker, IsProbedAndAskedWithItsKeyNotTheClients) {
  upstream_.authorization = "Bearer own";
  TestGateway gateway(loop_, {upstream_});
  EXPECT_EQ(gateway.get("/health").status, 200);
  EXPECT_EQ(gateway.ask(chat_body("A persona", "x"), "authorization: Bearer client\r\n").status, 200);
  ASSERT_EQ(seen().size(), 1u);
  EXPECT_EQ(seen()[0].header("authorization"), "Bearer own");
  EXPECT_THAT(gateway.admin("/admin/workers").body, Not(HasSubstr("own")));
  EXPECT_THAT(gateway.admin("/metrics").body, Not(HasSubstr("Bearer")));
}

// Anthropic's and Azure's endpoints.
TEST_F(KeyedWorker, MayHaveItsKeyInAnotherHeader) {
  for (const std::string name : {"x-api-key", "api-key"}) {
    loop_.call([&] {
      stub_.wants_authorization = "own";
      stub_.key_header = name;
      stub_.seen.clear();
    });
    upstream_.authorization = "own";
    upstream_.key_header = name;
    TestGateway gateway(loop_, {upstream_});
    EXPECT_EQ(gateway.get("/health").status, 200) << name;
    EXPECT_EQ(gateway.ask(chat_body("A persona", "x"), "authorization: Bearer client\r\n" + name + ": c\r\n")
                  .status,
              200);
    ASSERT_EQ(seen().size(), 1u);
    EXPECT_EQ(seen()[0].header(name), "own");
    EXPECT_EQ(seen()[0].header("authorization"), "") << "the client's";
    const HttpRequest probe = loop_.call([&] { return stub_.models_asked; });
    EXPECT_EQ(probe.header("accept-encoding"), "identity") << "a probe's answer is not decoded";
    EXPECT_EQ(probe.header("anthropic-version"), name == "x-api-key" ? "2023-06-01" : "");
  }
}

TEST_F(KeyedWorker, IsNotServedWithoutIt) {
  TestGateway gateway(loop_, {upstream_});
  EXPECT_EQ(gateway.get("/health").status, 503);
}

TEST_F(KeyedWorker, HasANewKeyAfterAReload) {
  upstream_.authorization = "Bearer old";
  TestGateway gateway(loop_, {upstream_});
  EXPECT_EQ(gateway.get("/health").status, 503);
  FleetOptions changed;
  upstream_.authorization = "Bearer own";
  changed.workers = {upstream_};
  loop_.call([&] { gateway.gateway->fleet().change(changed); });
  EXPECT_TRUE(gateway.becomes(0, "ready"));
}

// An operator who drained it, or took it out, did not do so for its key.
TEST_F(KeyedWorker, StaysDrainedOrRemovedWithANewKey) {
  upstream_.authorization = "Bearer own";
  TestGateway gateway(loop_, {upstream_});
  const std::string body = "{\"url\":\"" + stub_.endpoint().url() + "\"}";
  const auto reload = [&](double weight) {
    FleetOptions changed;
    upstream_.weight = weight;
    changed.workers = {upstream_};
    loop_.call([&] { gateway.gateway->fleet().change(changed); });
  };
  const std::string drain = "/admin/workers/" + stub_.id() + "/drain";
  EXPECT_EQ(gateway.admin_send("POST", drain, "{}").status, 200);
  ASSERT_TRUE(gateway.becomes(0, "draining"));
  reload(2);
  EXPECT_TRUE(gateway.becomes(0, "draining"));
  EXPECT_EQ(gateway.admin_send("DELETE", "/admin/workers", body).status, 200);
  reload(3);
  EXPECT_EQ(loop_.call([&] { return gateway.gateway->fleet().member_count(); }), 0u);
}

TEST_F(KeyedWorker, AddedByItsAddressComesBackAsConfigured) {
  upstream_.authorization = "Bearer own";
  TestGateway gateway(loop_, {upstream_});
  const std::string body = "{\"url\":\"" + stub_.endpoint().url() + "\"}";
  EXPECT_EQ(gateway.admin_send("DELETE", "/admin/workers", body).status, 200);
  EXPECT_EQ(gateway.get("/health").status, 503);
  EXPECT_EQ(gateway.admin_send("POST", "/admin/workers", body).status, 200);
  EXPECT_TRUE(gateway.becomes(0, "ready"));
}

TEST(UpstreamPath, IsBeforeProbesAndRequests) {
  Loop loop;
  StubWorker stub(loop, answer_whole);
  loop.call([&] { stub.prefix = "/openai"; });
  TestGateway gateway(loop, {*Upstream::parse(stub.endpoint().url() + "/openai/v1")});
  EXPECT_EQ(gateway.worker_state(0), "ready");
  const Answer answer = gateway.ask(chat_body("A persona", "x"));
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.route("node"), stub.id() + "/openai");
  EXPECT_EQ(loop.call([&] { return stub.seen.at(0).path; }), "/openai/v1/chat/completions");
  EXPECT_EQ(gateway.admin_send("POST", "/admin/workers/" + stub.id() + "/openai/drain", "").status, 200);
}

TEST(UpstreamModels, AreTheWorkersOwnOnTheWay) {
  Loop loop;
  StubWorker mapped(loop, answer_whole), plain(loop, answer_status(500));
  loop.call([&] { mapped.models = {"org/own-name", "not-ours"}; });
  Upstream upstream(mapped.endpoint());
  upstream.models = {{"demo", "org/own-name"}};
  GatewayConfig config = TestGateway::quick_config();
  TestGateway gateway(loop, {upstream, plain.endpoint()}, config);
  EXPECT_THAT(gateway.get("/v1/models").body, Not(HasSubstr("own-name")));
  EXPECT_THAT(gateway.get("/v1/models").body, Not(HasSubstr("not-ours")));
  for (int i = 0; i < 4; ++i) {
    const std::string question = "q" + std::to_string(i);
    const Answer answer = gateway.ask(chat_body("A persona", question));
    EXPECT_EQ(answer.status, 200) << answer.body;
  }
  for (const HttpRequest& request : loop.call([&] { return mapped.seen; })) {
    EXPECT_THAT(request.body, HasSubstr("\"model\":\"org/own-name\""));
    EXPECT_THAT(request.body, Not(HasSubstr("\"demo\"")));
    EXPECT_THAT(request.body, HasSubstr("\"messages\""));
  }
  for (const HttpRequest& request : loop.call([&] { return plain.seen; }))
    EXPECT_THAT(request.body, HasSubstr("\"demo\""));
}

Task<void> list_models(Exchange& exchange) {
  HeaderList headers;
  headers.emplace_back("content-type", "application/json");
  const bool models = exchange.request().path == "/v1/models";
  std::string body = models ? R"({"data":[{"id":"demo"}]})" : "{}";
  const int status = models ? 200 : 404;
  co_await exchange.respond(status, headers, std::move(body));
}

// State of the one worker, which speaks TLS, where its entry has these settings.
std::string state_with_tls(const TlsFiles& shown, const std::string& tls) {
  Loop loop;
  HttpServerOptions options;
  options.tls = net_test::server_tls(shown);
  const TestServer worker(loop, list_models, options);
  auto config = config_with("upstreams: [{url: 'https://127.0.0.1:" + std::to_string(worker.port()) + "', " +
                            tls + "}]\n");
  EXPECT_TRUE(config.ok()) << config.status();
  if (!config.ok()) return "";
  GatewayConfig quick = TestGateway::quick_config();
  quick.fleet.client.tls = config->fleet.client.tls;
  TestGateway gateway(loop, config->fleet.workers, quick);
  return gateway.worker_state(0);
}

TEST(UpstreamTls, HasItsOwnAuthoritiesOrNone) {
  const net_test::TestFolder folder;
  const net_test::TestAuthority authority(folder), other(folder, "other");
  const TlsFiles files = authority.issue("worker");
  EXPECT_EQ(state_with_tls(files, "tls: {ca_file: " + authority.path() + "}"), "ready");
  EXPECT_NE(state_with_tls(files, "tls: {ca_file: " + other.path() + "}"), "ready");
  EXPECT_NE(state_with_tls(files, "weight: 1"), "ready") << "the system does not know the authority";
  EXPECT_EQ(state_with_tls(files, "tls: {insecure_skip_verify: true}"), "ready");
}

Task<int> ask_models(HttpClient& client) {
  ClientRequest request;
  request.target = "/v1/models";
  const auto answer = co_await client.send(request, Deadline::after(now(), 5s));
  if (!answer.ok()) co_return 0;
  const auto body = co_await (*answer)->read_all(1 << 20);
  co_return body.ok() ? (*answer)->status() : 0;
}

TEST(UpstreamNames, PooledConnectionsFollowThem) {
  Loop loop;
  StubWorker first(loop, answer_whole), second(loop, answer_whole);
  loop.call([&] { second.prefix = "/elsewhere"; });  // so it answers 404
  Endpoint named;
  named.host = "worker.test";
  std::vector<std::pair<std::string, uint16_t>> addresses{{"127.0.0.1", first.endpoint().port}};
  HttpClientOptions options;
  options.resolve_interval = 1s;
  options.lookup = [&](const std::string&, uint16_t) { return addresses; };
  auto client =
      loop.call([&] { return std::make_unique<HttpClient>(loop.io.get_executor(), named, options); });
  const auto asked = [&] { return loop.run(ask_models(*client)); };
  EXPECT_EQ(asked(), 200);
  EXPECT_EQ(asked(), 200);
  EXPECT_EQ(loop.call([&] { return client->stats().connects; }), 1u) << "one connection, kept";
  loop.call([&] { addresses[0].second = second.endpoint().port; });
  const TimePoint moved = now();
  while (asked() == 200 && now() < moved + 5s) {
  }
  EXPECT_EQ(asked(), 404) << "the name is another's now";
  EXPECT_LT(now() - moved, 4500ms) << "three answers without it";
  loop.call([&] { addresses.clear(); });  // DNS fails: all stays
  const TimePoint failed = now();
  while (now() < failed + 1200ms) ASSERT_EQ(asked(), 404);
  EXPECT_EQ(loop.call([&] { return client->stats().connects; }), 2u);
  loop.call([&] { client.reset(); });
}

// A name that was allowed when it was added may come to lead to the machine's credentials.
TEST(UpstreamNames, LeadToNoMetadataServiceWhereThatIsRefused) {
  Loop loop;
  Endpoint named;
  named.host = "worker.internal";
  HttpClientOptions options;
  options.refuses_link_local = true;
  std::vector<std::pair<std::string, uint16_t>> addresses{{"169.254.169.254", 80}, {"::ffff:a9fe:a9fe", 80}};
  options.lookup = [&](const std::string&, uint16_t) { return addresses; };
  auto client =
      loop.call([&] { return std::make_unique<HttpClient>(loop.io.get_executor(), named, options); });
  EXPECT_EQ(loop.run(ask_models(*client)), 0);
  EXPECT_EQ(loop.call([&] { return client->stats().connects; }), 0u) << "not even tried";
  StubWorker stub(loop, answer_whole);
  loop.call([&] { addresses.push_back({"127.0.0.1", stub.endpoint().port}); });
  EXPECT_EQ(loop.run(ask_models(*client)), 200) << "its other address is";
  EXPECT_EQ(loop.call([&] { return client->stats().connects; }), 1u);
  loop.call([&] { client.reset(); });
}

Task<void> answer_with_model(Exchange& exchange) {
  HeaderList headers;
  headers.emplace_back("content-type", "application/json");
  const bool stream = exchange.request().body.find("\"stream\":true") != std::string::npos;
  if (!stream) {
    co_await exchange.respond(
        200, headers,
        R"({"object":"chat.completion", "model": "demo","choices":[{"finish_reason":"stop"}]})");
    co_return;
  }
  co_await begin_stream(exchange);
  co_await exchange.write(
      "data: {\"model\":\"demo\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"demo\"},");
  co_await exchange.write("\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n");
  co_await exchange.finish();
}

TEST(UpstreamNames, AnswersNameTheModelThatTheClientAskedFor) {
  Loop loop;
  StubWorker stub(loop, [](StubWorker&, Exchange& exchange) { return answer_with_model(exchange); });
  Upstream upstream(stub.endpoint());
  upstream.models = {{"asked", "demo"}};
  TestGateway gateway(loop, {upstream});
  const auto ask = [&](bool stream) {
    std::string body = chat_body("card", "x", stream);
    body.replace(body.find("\"demo\""), 6, "\"asked\"");
    return gateway.ask(body);
  };
  EXPECT_EQ(ask(false).body,
            R"({"object":"chat.completion", "model": "asked","choices":[{"finish_reason":"stop"}]})");
  const Answer streamed = ask(true);
  EXPECT_THAT(streamed.body, HasSubstr("data: {\"model\":\"asked\",\"choices\":[{\"index\":0,\"delta\":"));
  EXPECT_THAT(streamed.body, HasSubstr("{\"content\":\"demo\"}")) << "its text is not touched";
  EXPECT_TRUE(streamed.complete);
  EXPECT_THAT(loop.call([&] { return stub.seen.back().body; }), HasSubstr("\"demo\""));
}

// A worker that an operator removed stays so though another worker has its slot, and what is configured of it
// changes.
TEST(UpstreamChanges, DoNotBringBackWhatAnOperatorRemoved) {
  Loop loop;
  StubWorker stays(loop, answer_whole), removed(loop, answer_whole);
  Upstream first(stays.endpoint()), second(removed.endpoint());
  TestGateway gateway(loop, {first, second});
  Fleet& fleet = gateway.gateway->fleet();
  const auto is_member = [&] { return loop.call([&] { return fleet.find(removed.id()).has_value(); }); };
  const auto change = [&](std::vector<Upstream> workers) {
    FleetOptions options;
    options.workers = std::move(workers);
    loop.call([&] {
      EXPECT_TRUE(fleet.can_change(options).ok());
      fleet.change(options);
    });
  };
  loop.call([&] { fleet.remove(*fleet.find(removed.id())); });
  Endpoint later;  // (A probe under way holds the slot.)
  later.port = 1;
  int n = 1;
  const auto gets_its_slot = [&] {
    later.host = "127.0." + std::to_string(n / 200) + "." + std::to_string(n % 200);
    n += 1;
    return fleet.add(later).value() == 1;
  };
  ASSERT_TRUE(loop.eventually(gets_its_slot));
  second.weight = 2;
  change({first, second});
  EXPECT_FALSE(is_member());
  change({first});
  change({first, second});
  EXPECT_TRUE(is_member()) << "it was configured anew";
  loop.call([&] { fleet.remove(*fleet.find(removed.id())); });
  loop.call([&] { EXPECT_TRUE(fleet.add(second).ok()); });
  second.weight = 3;
  change({first, second});
  EXPECT_TRUE(is_member()) << "an operator added it again";
}

TEST(UpstreamKinds, SayWhatIsAsked) {
  Loop loop;
  StubWorker other(loop, answer_whole), ours(loop, answer_whole);
  loop.call([&] { other.ready_status = ours.ready_status = 404; });
  Upstream openai(other.endpoint()), troupe(ours.endpoint());
  openai.kind = UpstreamKind::kOpenai;
  troupe.kind = UpstreamKind::kTroupe;
  TestGateway gateway(loop, {openai, troupe});
  EXPECT_EQ(gateway.worker_state(0), "ready");
  EXPECT_TRUE(gateway.becomes(1, "dead"));
  EXPECT_EQ(loop.call([&] { return other.probes; }), 0) << "/readyz is ours";
}

TEST(UpstreamKinds, OtherServersGetNoHeadersOfOurs) {
  for (const UpstreamKind kind : {UpstreamKind::kAuto, UpstreamKind::kOpenai}) {
    Loop loop;
    StubWorker stub(loop, answer_whole);
    Upstream upstream(stub.endpoint());
    upstream.kind = kind;
    TestGateway gateway(loop, {upstream});
    EXPECT_EQ(gateway.ask(chat_body("A persona", "x"), "x-session-id: s\r\n").status, 200);
    const HttpRequest seen = loop.call([&] { return stub.seen.at(0); });
    const bool any = std::any_of(seen.headers.begin(), seen.headers.end(),
                                 [](const auto& header) { return header.first.starts_with("x-troupe-"); });
    EXPECT_EQ(any, kind == UpstreamKind::kAuto);
    EXPECT_NE(seen.header("x-request-id"), "");
  }
}

TEST(UpstreamKinds, ChangeWhileAWorkerLives) {
  Loop loop;
  StubWorker stub(loop, answer_whole);
  loop.call([&] {
    stub.load_status = 200;
    stub.load.epoch = "e";
    stub.load.ready = true;
  });
  Upstream upstream(stub.endpoint());
  TestGateway gateway(loop, {upstream});
  const auto is_ours = [&] { return gateway.gateway->fleet().is_troupe_worker(0); };
  const auto becomes = [&](UpstreamKind kind) {
    FleetOptions changed;
    upstream.kind = kind;
    changed.workers = {upstream};
    loop.call([&] { gateway.gateway->fleet().change(changed); });
  };
  ASSERT_TRUE(loop.eventually(is_ours));
  becomes(UpstreamKind::kOpenai);
  EXPECT_FALSE(loop.call(is_ours));
  EXPECT_FALSE(loop.call([&] { return gateway.gateway->router().view().node(0).is_troupe_worker; }));
  const int probes = loop.call([&] { return stub.probes; });
  becomes(UpstreamKind::kTroupe);
  EXPECT_TRUE(loop.eventually(is_ours));
  EXPECT_GT(loop.call([&] { return stub.probes; }), probes);
}

}  // namespace
}  // namespace troupe::gateway_test

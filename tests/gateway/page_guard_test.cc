// No page from elsewhere changes anything through a browser that reaches the gateway's ports: of all routes
// that there are, those that only ask a model are open to pages (cors.allowed_origins says which may read).

#include <gtest/gtest.h>

#include <algorithm>

#include "common/api/passed_paths.h"
#include "common/api/prefix.h"
#include "common/dialects/routes.h"
#include "gateway/proxy/routes.h"
#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace {

constexpr const char* kUi = "https://ui.example";

// One method at a path.
struct Way {
  std::string method, path;
  friend void PrintTo(const Way& way, std::ostream* out) { *out << way.method << ' ' << way.path; }
};

// All that may change something, with ids in place of {id}.
std::vector<Way> ways_of(const std::vector<HttpRoute>& routes, const std::string& id) {
  std::vector<Way> ways;
  for (const HttpRoute& route : routes) {
    std::string path(route.path);
    if (const size_t at = path.find("{id}"); at != std::string::npos) path.replace(at, 4, id);
    for (const char* method : {"POST", "PUT", "PATCH", "DELETE"}) {
      if (lists_method(route.methods, method)) ways.push_back({method, path});
    }
  }
  return ways;
}

bool only_asks(const std::string& path) {
  constexpr const char* kModels[] = {"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"};
  if (is_passed_path(path) || dialect_asks(path)) return true;
  return std::find(std::begin(kModels), std::end(kModels), path) != std::end(kModels);
}

bool is_cross_site(const Answer& answer) {
  return answer.status == 403 && answer.body.find("cross_site") != std::string::npos;
}

class PageGuardTest : public ::testing::Test {
 protected:
  static GatewayConfig config() {
    GatewayConfig config = TestGateway::quick_config();
    config.main_server.cors_origins = config.proxy.cors_origins = {kUi};
    return config;
  }
  Answer send(uint16_t port, const Way& way, const std::string& headers) {
    RawPeer peer = RawPeer::connect(port);
    peer.send(way.method + " " + way.path + " HTTP/1.1\r\n" +
              (headers.starts_with("host:") ? "" : "host: t\r\n") + "content-length: 2\r\n" + headers +
              "\r\n{}");
    return read_answer(peer);
  }
  Answer main(const Way& way, const std::string& headers) {
    return send(gateway_.gateway->port(), way, headers);
  }
  Answer metrics(const Way& way, const std::string& headers) {
    return send(gateway_.gateway->metrics_port(), way, headers);
  }

  Loop loop_;
  StubWorker worker_{loop_, answer_whole};
  TestGateway gateway_{loop_, {worker_.endpoint()}, config()};
};

TEST_F(PageGuardTest, ABrowserReadsPinsUnderLocalNamesAlone) {
  const Way list{"GET", std::string(kPrefixesPath)}, models{"GET", "/v1/models"};
  const std::string rebound = "host: evil.example\r\naccept-language: en\r\n";
  EXPECT_TRUE(is_cross_site(main(list, rebound)));
  EXPECT_TRUE(is_cross_site(main({"GET", "/v1/prefixes/prefix-" + std::string(32, 'a')}, rebound)));
  EXPECT_EQ(main(models, rebound).status, 200);
  EXPECT_EQ(main(list, "host: chat.example.com\r\n").status, 200) << "a program";
  EXPECT_EQ(main(list, "host: 127.0.0.1\r\naccept-language: en\r\n").status, 200);
  EXPECT_EQ(main(list, std::string("host: evil.example\r\norigin: ") + kUi + "\r\n").status, 200);
}

TEST_F(PageGuardTest, MainPort) {
  const auto ways = ways_of(main_port_routes(), "prefix-" + std::string(32, 'a'));
  int guarded = 0;
  for (const Way& way : ways) {
    const std::string json = "content-type: application/json\r\n";
    for (const std::string page :
         {"origin: http://evil.example\r\n", "origin: null\r\n", "sec-fetch-site: cross-site\r\n",
          "host: evil.example\r\norigin: http://evil.example\r\n", "origin: http://localhost:3000\r\n"})
      EXPECT_EQ(is_cross_site(main(way, page + json)), !only_asks(way.path)) << way.path << " " << page;
    if (only_asks(way.path)) continue;
    guarded += 1;
    EXPECT_EQ(main(way, "content-type: text/plain\r\n").status, 415) << way.path;
    for (const std::string program : {"host: troupe.example.com\r\n", "", "origin: https://ui.example\r\n"}) {
      const int status = main(way, program + json).status;
      const bool found_nothing = status == 200 && way.path.starts_with("/api/extra/");
      EXPECT_TRUE(status == 400 || status == 404 || found_nothing) << way.path << " " << program << status;
    }
  }
  EXPECT_EQ(guarded, 6) << "prefixes (2), personas (2), generations by their key (2)";
  EXPECT_EQ(main({"GET", "/v1/prefixes"}, "origin: http://evil.example\r\n").status, 200)
      << "without access-control-allow-origin the page does not get to read it";
  const auto came = [](const HttpRequest& request) { return request.path.starts_with(kPrefixesPath); };
  EXPECT_TRUE(loop_.call([&] { return std::none_of(worker_.seen.begin(), worker_.seen.end(), came); }));
}

TEST_F(PageGuardTest, MetricsPort) {
  const auto ways = ways_of(Admin::routes(), worker_.id());
  for (const Way& way : ways) {
    for (const std::string page :
         {"origin: http://evil.example\r\n", "origin: null\r\n", "sec-fetch-site: cross-site\r\n",
          "host: evil.example\r\norigin: http://evil.example\r\n", "origin: https://ui.example\r\n"})
      EXPECT_TRUE(is_cross_site(metrics(way, page))) << way.path << " " << page;
    if (way.path == "/admin/gossip") continue;  // no JSON; a gateway asks under any name
    EXPECT_EQ(metrics(way, "content-type: text/plain\r\n").status, 415) << way.path;
    EXPECT_TRUE(is_cross_site(metrics(way, "host: evil.example\r\n"))) << way.path;
  }
  EXPECT_EQ(ways.size(), 5u);
  EXPECT_EQ(gateway_.worker_state(0), "ready");
}

}  // namespace
}  // namespace troupe::gateway_test

// No page from elsewhere changes what a worker keeps: of all routes that there are, those that only ask the
// model are open to pages (cors.allowed_origins says which may read).

#include <gtest/gtest.h>

#include <algorithm>

#include "common/dialects/routes.h"
#include "tests/worker/fixture.h"
#include "tests/worker/raw_http.h"
#include "worker/http/server.h"

namespace troupe::worker_page_guard_test {

using raw_http::Connection;
using raw_http::Reply;

WorkerSettings settings() {
  WorkerSettings settings;
  settings.device = "sim";
  settings.server.http.port = 0;
  settings.server.http.cors_origins = {"https://ui.example"};
  settings.sim_speed = 4;
  settings.log_level = LogLevel::kError;
  EXPECT_TRUE(resolve_worker_settings(settings).ok());
  return settings;
}

struct Way {
  std::string method, path;
};

std::vector<Way> ways() {
  std::vector<Way> ways;
  for (const HttpRoute& route : WorkerServer::routes()) {
    std::string path(route.path);
    if (const size_t at = path.find('{'); at != std::string::npos)
      path.replace(at, path.find('}') - at + 1, "prefix-" + std::string(32, 'a'));
    for (const char* method : {"POST", "PUT", "PATCH", "DELETE"}) {
      if (lists_method(route.methods, method)) ways.push_back({method, path});
    }
  }
  return ways;
}

bool only_asks(const std::string& path) {
  constexpr const char* kModels[] = {"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/tokenize",
                                     "/detokenize"};
  return std::find(std::begin(kModels), std::end(kModels), path) != std::end(kModels) || dialect_asks(path);
}

TEST(WorkerPageGuard, OfEveryRouteThatChangesSomething) {
  worker_fixture::Worker worker(settings());
  const auto send = [&worker](const Way& way, const std::string& headers) {
    Connection connection(worker.port());
    connection.send(way.method + " " + way.path + " HTTP/1.1\r\n" +
                    (headers.starts_with("host:") ? "" : "host: t\r\n") + "content-length: 1\r\n" + headers +
                    "\r\n{");
    return connection.read_reply();
  };
  const std::string json = "content-type: application/json\r\n";
  int guarded = 0;
  for (const Way& way : ways()) {
    for (const std::string page :
         {"origin: http://evil.example\r\n", "origin: null\r\n", "sec-fetch-site: cross-site\r\n",
          "host: evil.example\r\norigin: http://evil.example\r\n", "origin: http://127.0.0.1:8000\r\n"}) {
      const Reply reply = send(way, page + json);
      const bool refused = reply.status == 403 && reply.body.find("cross_site") != std::string::npos;
      EXPECT_EQ(refused, !only_asks(way.path)) << way.path << " " << page << reply.body;
    }
    if (only_asks(way.path)) continue;
    guarded += 1;
    EXPECT_EQ(send(way, "content-type: text/plain\r\n").status, 415) << way.path;
    for (const std::string program : {"host: gpu-7.example.com\r\n", "", "origin: https://ui.example\r\n"}) {
      const int status = send(way, program + json).status;
      EXPECT_TRUE(status == 400 || status == 404) << way.path << " " << program << status;
    }
  }
  int of_users = 0;
  for (const HttpRoute& route : WorkerServer::routes()) {
    if (!lists_method(route.methods, "GET") || route.path == "/v1/residency") continue;  // (a stream)
    std::string path(route.path);
    if (const size_t at = path.find('{'); at != std::string::npos)
      path.replace(at, path.find('}') - at + 1, "prefix-" + std::string(32, 'a'));
    const Way read{"GET", path};
    const Reply rebound = send(read, "host: evil.example\r\nsec-fetch-site: same-origin\r\n");
    const bool refused = rebound.status == 403 && rebound.body.find("cross_site") != std::string::npos;
    EXPECT_EQ(refused, path.starts_with("/v1/prefixes") || path.starts_with("/v1/conversations")) << path;
    EXPECT_NE(send(read, "host: gpu-7.example.com\r\n").status, 403) << path << " by a gateway";
    EXPECT_NE(send(read, "host: 10.0.0.7\r\naccept-language: en\r\n").status, 403) << path;
    of_users += refused;
  }
  EXPECT_EQ(of_users, 4);
  EXPECT_EQ(guarded, 6) << "prefixes (2), conversations, faults, generations by their key (2)";
}

}  // namespace troupe::worker_page_guard_test

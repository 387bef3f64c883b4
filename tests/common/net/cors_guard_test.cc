#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/net/cors.h"

namespace troupe {
namespace browser_guard_test {

int status_of(const std::optional<ApiError>& refusal) {
  return refusal ? refusal->http_status : 200;
}

int change_status(const HeaderList& headers, const CorsOrigins* allowed = nullptr) {
  HttpRequest request;
  request.method = "POST";
  request.headers = headers;
  return status_of(change_refusal(request, allowed));
}

TEST(BrowserGuard, NamesThatOnlyALocalNetworkResolvesAreTaken) {
  for (const char* host :
       {"127.0.0.1:29000", "[::1]:29000", "10.0.0.7", "localhost:29000", "gateway", "gateway-0:29000",
        "troupe.default.svc:29000", "troupe.default.svc.cluster.local", "box.INTERNAL", "203.0.113.7:29000"})
    EXPECT_EQ(status_of(host_refusal(host, {})), 200) << host;
  for (const char* host : {"evil.example:29000", "127.0.0.1.evil.example", "localhost.evil.example",
                           "evil.svc.example", "", "[::1", "1.2.3.4.5", ".evil.example"})
    EXPECT_EQ(status_of(host_refusal(host, {})), 403) << host;
  EXPECT_EQ(status_of(host_refusal("Troupe.Example.com:29000", {"troupe.example.com"})), 200);
  EXPECT_EQ(status_of(host_refusal("x.troupe.example.com", {"troupe.example.com"})), 403);
}

TEST(BrowserGuard, BrowsersReadUsersOwnUnderLocalNamesAlone) {
  const auto status = [](HeaderList headers, const CorsOrigins& allowed = {}) {
    HttpRequest request;
    request.method = "GET";
    request.headers = std::move(headers);
    return status_of(rebound_refusal(request, allowed));
  };
  const std::pair<std::string, std::string> kBrowser[] = {{"accept-language", "en"},
                                                          {"accept-language", ""},
                                                          {"sec-fetch-site", "same-origin"},
                                                          {"origin", "http://evil.example"},
                                                          {"user-agent", "Mozilla/5.0 (X11)"}};
  for (const auto& mark : kBrowser) {
    EXPECT_EQ(status({{"host", "evil.example:31000"}, mark}), 403) << mark.first;
    EXPECT_EQ(status({{"host", "127.0.0.1:31000"}, mark}), 200) << mark.first;
    EXPECT_EQ(status({{"host", "worker-0.workers.default.svc:31000"}, mark}), 200) << mark.first;
  }
  EXPECT_EQ(status({{"host", "gpu-7.example.com:31000"}}), 200) << "a gateway";
  EXPECT_EQ(status({{"host", "gpu-7.example.com"}, {"user-agent", "curl/8"}, {"accept-encoding", "gzip"}}),
            200);
  const HeaderList page{{"host", "gpu-7.example.com"}, {"origin", "https://ui.example"}};
  EXPECT_EQ(status(page, {"https://ui.example"}), 200);
  EXPECT_EQ(status(page), 403);
}

TEST(CorsOrigins, AreWhatBrowsersSend) {
  const auto normal = [](const std::string& text) {
    CorsOrigins origins{text};
    const Status status = normalize_origins(origins);
    return status.ok() ? origins[0] : "error: " + std::string(status.message());
  };
  EXPECT_EQ(normal("http://localhost:8000/"), "http://localhost:8000");
  EXPECT_EQ(normal("HTTP://Localhost:8000"), "http://localhost:8000");
  EXPECT_EQ(normal("https://app.example.com:443"), "https://app.example.com");
  EXPECT_EQ(normal("http://a.example:80/"), "http://a.example");
  EXPECT_EQ(normal("http://a.example:8080"), "http://a.example:8080");
  EXPECT_EQ(normal("http://[0:0::0001]:0080"), "http://[::1]");
  for (const char* kept : {"*", "null", "http://[::1]:3000", "chrome-extension://abc", "tauri://localhost"})
    EXPECT_EQ(normal(kept), kept);
  for (const char* wrong : {"localhost:8000", "http://*.example.com", "http://localhost:*", "http://a/b",
                            "http://", "://a", "", "http://u@a", "http://a, http://b", "http://a//",
                            "http://a:80:90", "http://a:", "http://a:0", "http://a:b", "http://:80",
                            "http://[a]:80", "http://[::1", "http://[::1]80", "http://b\xc3\xbc.example"}) {
    EXPECT_THAT(normal(wrong), testing::StartsWith("error: cors.allowed_origins: '")) << wrong;
  }
}

TEST(BrowserGuard, ChangesByAPageAreRefused) {
  EXPECT_EQ(change_status({}), 200) << "curl";
  EXPECT_EQ(change_status({{"sec-fetch-site", "none"}}), 200) << "an operator's own browser";
  EXPECT_EQ(change_status({{"content-type", "application/json"}}), 200);
  EXPECT_EQ(change_status({{"content-type", "Application/JSON ; charset=utf-8"}}), 200);
  EXPECT_EQ(change_status({{"origin", "http://evil.example"}}), 403);
  EXPECT_EQ(change_status({{"origin", "null"}}), 403) << "a page in a sandbox";
  for (const char* site : {"cross-site", "same-site", "same-origin"})
    EXPECT_EQ(change_status({{"sec-fetch-site", site}}), 403) << site;
  for (const char* type : {"text/plain;charset=UTF-8", "application/x-www-form-urlencoded",
                           "multipart/form-data; boundary=x", "application/jsonx", ";application/json"})
    EXPECT_EQ(change_status({{"content-type", type}}), 415) << type;
}

TEST(BrowserGuard, PagesOfAllowedOriginsMayChange) {
  const CorsOrigins allowed{"https://ui.example"}, all{"*"}, none;
  const HeaderList ui{{"origin", "https://ui.example"}, {"sec-fetch-site", "cross-site"}};
  EXPECT_EQ(change_status(ui, &allowed), 200);
  EXPECT_EQ(change_status(ui, &all), 200);
  EXPECT_EQ(change_status(ui, &none), 403);
  EXPECT_EQ(change_status(ui), 403);
  // After DNS rebinding Origin and Host are one; a page of this machine's is another's, too.
  EXPECT_EQ(
      change_status({{"origin", "http://evil.example:30000"}, {"host", "evil.example:30000"}}, &allowed),
      403);
  for (const char* origin : {"https://ui.example.evil.example", "http://ui.example", "https://ui.example:444",
                             "http://localhost:3000", "http://127.0.0.1:30000", "null"})
    EXPECT_EQ(change_status({{"origin", origin}}, &allowed), 403) << origin;
  EXPECT_EQ(change_status({{"origin", "https://ui.example"}, {"content-type", "text/plain"}}, &allowed), 415)
      << "a browser would have asked first before JSON";
  EXPECT_EQ(change_status({{"sec-fetch-site", "cross-site"}}, &all), 403) << "without an origin to allow";
}

}  // namespace browser_guard_test
}  // namespace troupe

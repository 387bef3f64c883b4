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

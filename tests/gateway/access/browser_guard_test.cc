#include "gateway/access/browser_guard.h"

#include <gtest/gtest.h>

namespace troupe {
namespace browser_guard_test {

int status_of(const std::optional<ApiError>& refusal) {
  return refusal ? refusal->http_status : 200;
}

TEST(BrowserGuard, NamesThatOnlyALocalNetworkResolvesAreTaken) {
  for (const char* host :
       {"127.0.0.1:29000", "[::1]:29000", "10.0.0.7", "localhost:29000", "gateway", "gateway-0:29000",
        "troupe.default.svc:29000", "troupe.default.svc.cluster.local", "box.INTERNAL"})
    EXPECT_EQ(status_of(host_refusal(host, {})), 200) << host;
  for (const char* host : {"evil.example:29000", "127.0.0.1.evil.example", "localhost.evil.example",
                           "evil.svc.example", "", "[::1", "1.2.3.4.5", ".evil.example"})
    EXPECT_EQ(status_of(host_refusal(host, {})), 403) << host;
  EXPECT_EQ(status_of(host_refusal("Troupe.Example.com:29000", {"troupe.example.com"})), 200);
  EXPECT_EQ(status_of(host_refusal("x.troupe.example.com", {"troupe.example.com"})), 403);
}

TEST(BrowserGuard, ChangesByAPageAreRefused) {
  EXPECT_EQ(status_of(change_refusal({})), 200) << "curl";
  EXPECT_EQ(status_of(change_refusal({.sec_fetch_site = "none"})), 200) << "an operator's own browser";
  EXPECT_EQ(status_of(change_refusal({.content_type = "application/json"})), 200);
  EXPECT_EQ(status_of(change_refusal({.content_type = "Application/JSON ; charset=utf-8"})), 200);
  EXPECT_EQ(status_of(change_refusal({.origin = "http://evil.example"})), 403);
  EXPECT_EQ(status_of(change_refusal({.origin = "null"})), 403) << "a page in a sandbox";
  for (const char* site : {"cross-site", "same-site", "same-origin"})
    EXPECT_EQ(status_of(change_refusal({.sec_fetch_site = site})), 403) << site;
  for (const char* type : {"text/plain;charset=UTF-8", "application/x-www-form-urlencoded",
                           "multipart/form-data; boundary=x", "application/jsonx", ";application/json"})
    EXPECT_EQ(status_of(change_refusal({.content_type = type})), 415) << type;
}

}  // namespace browser_guard_test
}  // namespace troupe

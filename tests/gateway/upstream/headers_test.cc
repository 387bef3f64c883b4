#include "gateway/upstream/headers.h"

#include <gtest/gtest.h>

#include <ctime>

namespace troupe::headers_test {

using namespace std::chrono_literals;

TEST(Headers, ThatActOnTheBrowserForTheWholeServerStayHere) {
  const HeaderList answer = {{"set-cookie", "a=1"},
                             {"set-cookie2", "a=1"},
                             {"clear-site-data", "\"*\""},
                             {"alt-svc", "h3=\"evil.example:443\"; ma=86400"},
                             {"strict-transport-security", "max-age=31536000; includeSubDomains"},
                             {"public-key-pins", "pin-sha256=\"x\"; max-age=5184000"},
                             {"public-key-pins-report-only", "pin-sha256=\"x\""},
                             {"expect-ct", "max-age=86400, enforce"},
                             {"refresh", "0;url=http://evil.example"},
                             {"report-to", "{\"group\":\"x\"}"},
                             {"reporting-endpoints", "x=\"https://evil.example\""},
                             {"nel", "{\"report_to\":\"x\"}"},
                             {"service-worker-allowed", "/"},
                             {"accept-ch", "sec-ch-ua-model"},
                             {"accept-ch-lifetime", "86400"},
                             {"critical-ch", "sec-ch-ua-model"},
                             {"set-login", "logged-in"},
                             {"timing-allow-origin", "*"},
                             {"use-as-dictionary", "match=\"/*\""},
                             {"access-control-allow-origin", "*"},
                             {"access-control-allow-credentials", "true"},
                             {"x-troupe-anything", "1"}};
  for (const auto& header : answer) EXPECT_EQ(headers_for_client({header}, {}), HeaderList{}) << header.first;
  const HeaderList plain = {{"content-type", "text/event-stream"},
                            {"cache-control", "no-cache"},
                            {"content-security-policy", "default-src 'none'"},
                            {"x-content-type-options", "nosniff"},
                            {"location", "/v1/responses/7"},
                            {"openai-processing-ms", "12"},
                            {"www-authenticate", "Bearer"},
                            {"retry-after", "7"}};
  EXPECT_EQ(headers_for_client(plain, {}), plain);
}

TEST(Headers, OfAPageStayHere) {
  HttpRequest request;
  request.headers = {{"origin", "https://ui.example"},       {"referer", "https://ui.example/chat?name=x"},
                     {"sec-fetch-site", "cross-site"},       {"sec-fetch-mode", "cors"},
                     {"http-referer", "https://ui.example"}, {"x-title", "UI"}};
  EXPECT_EQ(headers_for_worker(request),
            (HeaderList{{"http-referer", "https://ui.example"}, {"x-title", "UI"}}));
}

TEST(RetryAfter, InSeconds) {
  const std::vector<std::pair<std::string, Duration>> cases = {{"7", 7s},       {"0", 0s},
                                                               {"1.5", 1500ms}, {"0.0001", 1ms},
                                                               {"86401", 24h},  {"1e9", 0s},
                                                               {"-1", 0s},      {"", 0s},
                                                               {"soon", 0s},    {"7s", 0s},
                                                               {"inf", 0s},     {"nan", 0s},
                                                               {"0x10", 0s},    {std::string(400, '9'), 24h}};
  for (const auto& [text, wait] : cases) EXPECT_EQ(retry_after_of(text), wait) << text;
}

TEST(RetryAfter, InMillisecondsBeforeSeconds) {
  const auto pause = [](const HeaderList& headers) { return asked_pause(headers); };
  EXPECT_EQ(pause({{"retry-after", "2"}, {"retry-after-ms", "1500"}}), std::chrono::milliseconds(1500));
  EXPECT_EQ(pause({{"retry-after-ms", "0.5"}}), std::chrono::milliseconds(1));
  EXPECT_EQ(pause({{"retry-after-ms", "999999999999"}}), std::chrono::hours(24));
  for (const char* none : {"", "0", "-5", "soon", "1500 ms"})
    EXPECT_EQ(pause({{"retry-after", "2"}, {"retry-after-ms", none}}), std::chrono::seconds(2)) << none;
  EXPECT_EQ(pause({}), Duration::zero());
}

TEST(RetryAfter, AsADateByTheClockOfItsServer) {
  const std::string date = "Sun, 06 Nov 1994 08:49:37 GMT";
  for (const std::string until :
       {"Sun, 06 Nov 1994 08:50:07 GMT", "Sunday, 06-Nov-94 08:50:07 GMT", "Sun Nov  6 08:50:07 1994"})
    EXPECT_EQ(retry_after_of(until, date), 30s) << until << ": whatever this machine's clock says";
  EXPECT_EQ(retry_after_of("Sun, 06 Nov 1994 08:49:37 GMT", date), 1s);
  EXPECT_EQ(retry_after_of("Sat, 05 Nov 1994 08:49:37 GMT", date), 1s) << "the past is no permission";
  EXPECT_EQ(retry_after_of("Tue, 08 Nov 1994 08:49:37 GMT", date), 24h);
  EXPECT_EQ(retry_after_of("Sun, 06 Nov 1994 08:50:07", date), 0s);
  EXPECT_EQ(retry_after_of("Sun, 99 Nov 1994 08:50:07 GMT", date), 0s);
  EXPECT_EQ(retry_after_of(std::string(100'000, 'S'), date), 0s);
}

TEST(RetryAfter, AsADateByThisClockWhereTheAnswerHasNone) {
  const std::time_t at = std::time(nullptr) + 600;
  std::tm time{};
  ::gmtime_r(&at, &time);
  char text[64];
  ASSERT_GT(std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &time), 0u);
  for (const char* date : {"", "no date"}) {
    EXPECT_GE(retry_after_of(text, date), 590s);
    EXPECT_LE(retry_after_of(text, date), 600s);
  }
  EXPECT_EQ(retry_after_of("Sun, 06 Nov 1994 08:49:37 GMT"), 1s) << "clocks may differ by years";
}

}  // namespace troupe::headers_test

#include "common/net/request_headers.h"

#include <gtest/gtest.h>

#include <string>

namespace troupe::request_headers_test {
namespace {

HttpRequest with_header(std::string name, std::string value) {
  HttpRequest request;
  request.headers.emplace_back(std::move(name), std::move(value));
  return request;
}

TEST(RequestHeaders, AnIdIsTakenOnlyIfShortAndPrintable) {
  for (const std::string good : {"a-B_1.2:3", "a/b+c=", "{\"x\"}", "~!"}) {
    EXPECT_EQ(request_id_of(with_header("x-request-id", good)), good);
  }
  EXPECT_EQ(request_id_of(with_header("x-request-id", std::string(128, 'x'))), std::string(128, 'x'));
  for (const auto& bad :
       {std::string(129, 'x'), std::string("a b"), std::string("a\x7f"), std::string("\xc3\xa9")}) {
    EXPECT_EQ(request_id_of(with_header("x-request-id", bad)), "") << bad;
  }
  EXPECT_EQ(request_id_of(HttpRequest{}), "");
}

TEST(RequestHeaders, AGatewaysDeadlineIsTheDeadlineAndAClientsIsBounded) {
  const TimePoint now{std::chrono::seconds(100)};
  const Duration longest = std::chrono::seconds(10);
  EXPECT_EQ(request_deadline(HttpRequest{}, now, longest)->at, now + longest);
  auto both = with_header("x-request-timeout-ms", "5000");
  EXPECT_EQ(request_deadline(both, now, longest)->at, now + std::chrono::milliseconds(5000));
  both.headers.emplace_back("x-troupe-timeout-ms", "300");
  EXPECT_EQ(request_deadline(both, now, longest)->at, now + std::chrono::milliseconds(300));
  EXPECT_EQ(request_deadline(with_header("x-troupe-timeout-ms", "99000"), now, longest)->at,
            now + std::chrono::seconds(99))
      << "a gateway may have more time than a worker gives its own clients";
  EXPECT_EQ(request_deadline(with_header("x-request-timeout-ms", "99000"), now, longest)->at, now + longest);
  for (const char* huge : {"9000000000000000000", "99999999999999999999"}) {
    EXPECT_EQ(request_deadline(with_header("x-request-timeout-ms", huge), now, longest)->at, now + longest);
    EXPECT_GT(request_deadline(with_header("x-troupe-timeout-ms", huge), now, longest)->at,
              now + std::chrono::hours(24 * 365))
        << huge;
  }
  for (const char* name : {"x-request-timeout-ms", "x-troupe-timeout-ms"}) {
    for (const char* bad : {"0", "-5", "1.5", "5s", "-99999999999999999999", "99999999999999999999s"}) {
      const auto refused = request_deadline(with_header(name, bad), now, longest);
      ASSERT_FALSE(refused.ok()) << bad;
      EXPECT_EQ(refused.error().http_status, 400);
      EXPECT_EQ(refused.error().param, name);
    }
  }
}

TEST(RequestHeaders, AClientsTimeoutIsBoundedAndItsErrorNamesTheHeader) {
  const Duration longest = std::chrono::seconds(10);
  EXPECT_EQ(*client_timeout(HttpRequest{}, longest), longest);
  EXPECT_EQ(*client_timeout(with_header("x-request-timeout-ms", "1"), longest), std::chrono::milliseconds(1));
  EXPECT_EQ(*client_timeout(with_header("x-request-timeout-ms", "10001"), longest), longest);
  EXPECT_EQ(*client_timeout(with_header("x-troupe-timeout-ms", "1"), longest), longest)
      << "only a gateway's worker heeds it";
  const auto refused = client_timeout(with_header("x-request-timeout-ms", "soon"), longest);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "x-request-timeout-ms must be a whole number of milliseconds, at least 1");
}

}  // namespace
}  // namespace troupe::request_headers_test

#include "common/net/file_limit.h"

#include <fcntl.h>
#include <sys/resource.h>

#include "common/net/http_client.h"
#include "tests/common/net/net_fixture.h"

namespace troupe::net_test {
namespace {

// Restores the soft limit after a test.
struct SoftLimitKept {
  rlimit before{};
  SoftLimitKept() { ::getrlimit(RLIMIT_NOFILE, &before); }
  ~SoftLimitKept() { ::setrlimit(RLIMIT_NOFILE, &before); }
  void set(rlim_t soft) const {
    rlimit limit = before;
    limit.rlim_cur = soft;
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
};

rlim_t soft_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

TEST(FileLimit, RaisesToTheWantedLimitAndNeverLowers) {
  const SoftLimitKept kept;
  ASSERT_GE(kept.before.rlim_max, 256u);
  kept.set(128);
  EXPECT_TRUE(raise_file_limit(200).ok());
  EXPECT_EQ(soft_limit(), 200u);
  EXPECT_TRUE(raise_file_limit(150).ok());
  EXPECT_EQ(soft_limit(), 200u);
}

TEST(FileLimit, StopsAtTheHardLimitWithAnError) {
  const SoftLimitKept kept;
  if (kept.before.rlim_max == RLIM_INFINITY) GTEST_SKIP() << "no hard limit here";
  kept.set(128);
  const Status status = raise_file_limit(kept.before.rlim_max + 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(soft_limit(), kept.before.rlim_max);
  EXPECT_NE(std::string(status.message()).find(std::to_string(kept.before.rlim_max)), std::string::npos);
}

Task<Status> status_of_get(HttpClient& client) {
  const ClientRequest request;
  const auto answer = co_await client.send(request, Deadline::never());
  co_return answer.status();
}

TEST(FileLimit, LackOfFilesIsNotReportedAsThePeersFault) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UBSan's vptr check opens a pipe, which must fail here; the plain build runs this";
#endif
  RawListener upstream;
  Loop loop;
  HttpClient client(loop.executor(), upstream.endpoint, HttpClientOptions());
  const Timer first_use(loop.executor());  // makes the loop open its files now, not below
  const SoftLimitKept kept;
  const int lowest_free = ::fcntl(0, F_DUPFD, 0);
  ASSERT_GE(lowest_free, 0);
  ::close(lowest_free);
  kept.set(static_cast<rlim_t>(lowest_free));
  const Status status = loop.run(status_of_get(client));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status.ToString();
  EXPECT_EQ(send_phase(status), SendPhase::kConnect);
  EXPECT_NE(std::string(status.message()).find("ulimit -n"), std::string::npos) << status.ToString();
}

Task<void> answer_ok(Exchange& exchange) {
  const HeaderList headers;
  co_await exchange.respond(200, headers, "ok");
}

TEST(FileLimit, ServerThatKeepsFilesLeavesTheLastOnesToOthers) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UBSan's vptr check opens a pipe, which must fail here; the plain build runs this";
#endif
  Loop loop;
  HttpServerOptions options;
  options.keeps_files = true;
  TestServer main(loop, answer_ok, options);
  TestServer probes(loop, answer_ok);
  const SoftLimitKept kept;
  const int lowest_free = ::fcntl(0, F_DUPFD, 0);
  ASSERT_GE(lowest_free, 0);
  ::close(lowest_free);
  kept.set(static_cast<rlim_t>(lowest_free) + 60);
  std::vector<RawPeer> peers;  // whose ends are files of this process, too
  for (int i = 0; i < 25; ++i) {
    peers.push_back(RawPeer::connect(main.port()));
    peers.back().send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    ASSERT_TRUE(peers.back().read_answer().ends_with("ok")) << i;
  }
  RawPeer probe = RawPeer::connect(probes.port());
  probe.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_TRUE(probe.read_answer().ends_with("ok"));
  EXPECT_GT(main.connections(), 0u);
}

}  // namespace
}  // namespace troupe::net_test

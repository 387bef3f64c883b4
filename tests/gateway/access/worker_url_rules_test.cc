#include "gateway/access/worker_url_rules.h"

#include <gtest/gtest.h>

#include "common/net/http_client.h"

namespace troupe::gateway_test {
namespace {

bool allows(const std::vector<std::string>& rules, const std::string& url) {
  const auto parsed = WorkerUrlRules::parse(rules);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  const auto endpoint = Endpoint::parse(url);
  EXPECT_TRUE(endpoint.ok()) << endpoint.status();
  return parsed.ok() && endpoint.ok() && parsed->allows(endpoint->host, endpoint->authority());
}

TEST(WorkerUrlRules, GlobsAndNetworks) {
  struct Case {
    std::vector<std::string> rules;
    std::string url;
    bool allowed;
  };
  const std::vector<Case> cases = {
      {{}, "http://anything:1", true},
      {{}, "http://127.0.0.1:31000", true},
      {{}, "http://10.7.0.3:31000", true},
      {{}, "http://[fd12::7]:31000", true},
      {{}, "http://worker-0.workers.default.svc.cluster.local:31000", true},
      {{}, "http://8.8.8.8:31000", false},
      {{}, "https://llm.example.com", false},
      {{}, "http://169.254.169.254", false},
      {{}, "http://[::ffff:169.254.169.254]", false},
      {{}, "http://2852039166", false},
      {{}, "http://[fe80::1]:80", false},
      {{}, "http://metadata.google.internal", false},
      {{}, "http://0.0.0.0:31000", false},
      {{"*"}, "http://169.254.169.254", true},
      {{"*"}, "https://llm.example.com", true},
      {{"169.254.0.0/16"}, "http://169.254.7.7:31000", true},
      {{"10.0.0.1:31000"}, "http://10.0.0.1:31000", true},
      {{"10.0.0.1:31000"}, "https://10.0.0.1:31000", true},
      {{"10.0.0.1:31000"}, "http://10.0.0.1:31001", false},
      {{"10.0.0.1:31000"}, "http://10.0.0.11:31000", false},
      {{"10.0.0.1"}, "http://10.0.0.1:9", true},
      {{"10.0.0.*:*"}, "http://10.0.0.7:31000", true},
      {{"10.0.0.*:*"}, "http://10.0.0.7.elsewhere.example:31000", false},
      {{"10.0.0.*"}, "http://10.0.0.x.elsewhere.example", false},
      {{"1?.*:80"}, "http://10.elsewhere.example", false},
      {{"*:*"}, "http://any.example:1", true},
      {{"*.gpu.internal:31*"}, "http://a.GPU.internal:31005", true},
      {{"*.gpu.internal:31*"}, "http://a.gpu.internal:80", false},
      {{"*.gpu.internal:31*"}, "http://evil.example:31000", false},
      {{"worker-?:80"}, "http://worker-7", true},
      {{"worker-?:80"}, "http://worker-77", false},
      {{"*a*a*a*a*b"}, "http://aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:1", false},
      {{"[fd00::*]:31000"}, "http://[FD00::7]:31000", true},
      {{"[fd00::*]"}, "http://[fd00::7]:9", true},
      {{"[fd00::*]"}, "http://[fd01::7]:9", false},
      {{"10.0.0.0/8"}, "http://10.255.1.2:31000", true},
      {{"10.0.0.0/8"}, "http://11.0.0.1:31000", false},
      {{"10.0.0.0/8"}, "http://ten.example:31000", false},
      {{"192.168.4.0/22"}, "http://192.168.7.255:1", true},
      {{"192.168.4.0/22"}, "http://192.168.8.0:1", false},
      {{"0.0.0.0/0"}, "http://1.2.3.4:1", true},
      {{"10.0.0.0/8", "local:1"}, "http://local:1", true},
  };
  for (const Case& one : cases)
    EXPECT_EQ(allows(one.rules, one.url), one.allowed) << one.url << (one.rules.empty() ? "" : one.rules[0]);
}

TEST(WorkerUrlRules, WorkersOfTheConfigurationAreAllowed) {
  for (const std::vector<std::string>& written : {std::vector<std::string>{}, {"10.0.0.0/8"}}) {
    WorkerUrlRules rules = *WorkerUrlRules::parse(written);
    EXPECT_FALSE(rules.allows("llm.example.com", "llm.example.com:443"));
    rules.allow("LLM.example.com:443");
    EXPECT_TRUE(rules.allows("llm.example.com", "llm.Example.com:443"));
    EXPECT_FALSE(rules.allows("llm.example.com", "llm.example.com:80"));
  }
}

TEST(WorkerUrlRules, MalformedRulesAreNamed) {
  for (const std::string rule : {"",          "a b",        "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/x",
                                 "host/8",    "http://a:1", "[",           "[::1",        "[]:80",
                                 "[host]:80", "a:80:90",    "a:b",         "a:",          ":80",
                                 "a:123456",  "fd00::*",    "a]",          "a,b",         "a@b"}) {
    const auto parsed = WorkerUrlRules::parse({rule});
    ASSERT_FALSE(parsed.ok()) << rule;
    EXPECT_NE(parsed.status().message().find("'" + rule + "'"), absl::string_view::npos) << parsed.status();
  }
}

}  // namespace
}  // namespace troupe::gateway_test

#include "common/core/host_scope.h"

#include <gtest/gtest.h>

namespace troupe::host_scope_test {

TEST(HostScope, OfAddressesAndNames) {
  const auto all = [](HostScope scope, std::initializer_list<const char*> hosts) {
    for (const char* host : hosts) EXPECT_EQ(host_scope(host), scope) << host;
  };
  all(HostScope::kPrivate,
      {"127.0.0.1", "127.9.9.9", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.7.7", "100.64.0.1",
       "::1", "[::1]", "fd12:3456::1", "fc00::1", "::ffff:10.0.0.1", "64:ff9b::192.168.1.1", "127.1",
       "0x7f.1", "2130706433", "10.0.0.1."});
  all(HostScope::kLocalName,
      {"localhost", "worker-7", "a.gpu.internal", "w.default.svc", "w.default.svc.cluster.local", "Box.LOCAL",
       "a.localhost", "gpu.lan", "gpu.home.arpa", "gpu.corp", "w.default.svc.cluster.local."});
  all(HostScope::kPublic, {"8.8.8.8", "172.32.0.1", "172.15.0.1", "192.169.0.1", "100.128.0.1", "11.0.0.1",
                           "2001:db8::1", "::ffff:8.8.8.8", "134744072"});
  all(HostScope::kPublicName,
      {"evil.example", "127.0.0.1.evil.example", "svc.example", "internal.example", "1.2.3.4.5"});
  all(HostScope::kLinkLocal, {"169.254.169.254",
                              "169.254.1.1",
                              "fe80::1",
                              "[fe80::1]",
                              "febf::1",
                              "::ffff:169.254.169.254",
                              "::ffff:a9fe:a9fe",
                              "::169.254.169.254",
                              "64:ff9b::a9fe:a9fe",
                              "2002:a9fe:a9fe::1",
                              "2852039166",
                              "0xa9fea9fe",
                              "0xA9.254.0251.254",
                              "169.254.43518",
                              "100.100.100.200",
                              "168.63.129.16",
                              "192.0.0.192",
                              "fd00:ec2::254",
                              "fd20:ce::254",
                              "metadata.google.internal",
                              "METADATA.google.internal.",
                              "metadata",
                              "0.0.0.0",
                              "0",
                              "::",
                              "224.0.0.1",
                              "255.255.255.255",
                              "ff02::1",
                              "fec0::1",
                              "",
                              "[]"});
}

TEST(HostScope, Addresses) {
  for (const char* address : {"1.2.3.4", "::1", "[::1]"}) EXPECT_TRUE(is_address(address)) << address;
  for (const char* name : {"1.2.3", "2130706433", "localhost", ""}) EXPECT_FALSE(is_address(name)) << name;
}

}  // namespace troupe::host_scope_test

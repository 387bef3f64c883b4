#include "gateway/access/api_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace troupe {
namespace api_keys_test {

using testing::ElementsAre;
using testing::HasSubstr;

std::string hex(std::string_view key) {
  const Sha256 digest = sha256(key);
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

std::string error_of(std::string_view yaml) {
  const auto keys = parse_api_keys(yaml, "keys.yaml");
  return keys.ok() ? "" : std::string(keys.status().message());
}

TEST(ApiKeys, DigestIsSha256) {
  // FIPS 180-4's example.
  EXPECT_EQ(hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(ApiKeys, ReadsAFile) {
  const auto keys = parse_api_keys(
      absl::StrCat("writers:\n  sha256: \"", hex("k1"),
                   "\"\n  models: [demo, other]\n  requests_per_s: 2.5\n"
                   "  tokens_per_min: 600\n  requests_at_once: 3\n  priority: -2\n  weight: 2.5\n"
                   "  requests_running: 4\n  tokens_running: 9000\n  requests_waiting: 5\n"
                   "  tenant: acme\n  admin: true\nguests:\n  sha256: ",
                   hex("k2"), "\n"),
      "keys.yaml");
  ASSERT_TRUE(keys.ok()) << keys.status();
  ASSERT_EQ(keys->size(), 2u);
  EXPECT_EQ((*keys)[0].name, "writers");
  EXPECT_EQ((*keys)[0].digest, sha256("k1"));
  EXPECT_THAT((*keys)[0].models, ElementsAre("demo", "other"));
  EXPECT_EQ((*keys)[0].rights.quota.requests_per_s, 2.5);
  EXPECT_EQ((*keys)[0].rights.quota.tokens_per_min, 600);
  EXPECT_EQ((*keys)[0].rights.quota.requests_at_once, 3);
  EXPECT_EQ((*keys)[0].rights.priority, -2);
  EXPECT_EQ((*keys)[0].rights.admission.weight, 2.5);
  EXPECT_EQ((*keys)[0].rights.admission.limits.requests, 4);
  EXPECT_EQ((*keys)[0].rights.admission.limits.tokens, 9000);
  EXPECT_EQ((*keys)[0].rights.admission.waiting_max, 5);
  EXPECT_NE((*keys)[0].rights.admission.id, (*keys)[1].rights.admission.id);
  EXPECT_EQ((*keys)[0].tenant, "acme");
  EXPECT_TRUE((*keys)[0].admin);
  EXPECT_FALSE((*keys)[1].admin);
  EXPECT_TRUE((*keys)[1].models.empty());
  EXPECT_EQ((*keys)[1].rights.priority, 0);
  EXPECT_EQ((*keys)[1].rights.admission.weight, 1);
  EXPECT_EQ((*keys)[1].rights.quota.requests_per_s, 0);
}

TEST(ApiKeys, ErrorsNameTheLineAndTheKey) {
  const std::string good = absl::StrCat("a:\n  sha256: ", hex("k"), "\n");
  EXPECT_THAT(error_of(""), HasSubstr("keys.yaml: names nobody"));
  EXPECT_THAT(error_of("a: 5\n"), HasSubstr("keys.yaml:1: 'a' must be a name"));
  EXPECT_THAT(error_of("a b:\n  sha256: x\n"), HasSubstr("'a b' must be a name"));
  EXPECT_THAT(error_of("a:\n  sha256: abc\n"), HasSubstr("key 'a': sha256 must be the 64 hex digits"));
  EXPECT_THAT(error_of("a:\n  models: [demo]\n"), HasSubstr("key 'a': sha256 must be"));
  EXPECT_THAT(error_of(good + "b:\n  sha256: " + hex("k") + "\n"), HasSubstr("the same as that of 'a'"));
  EXPECT_THAT(error_of(good + "  request_per_s: 5\n"), HasSubstr("keys.yaml:3: "));
  EXPECT_THAT(error_of(good + "  requests_per_s: -1\n"), HasSubstr("keys.yaml:3: "));
  EXPECT_THAT(error_of(good + "  priority: 6\n"), HasSubstr("keys.yaml:3: "));
  EXPECT_THAT(error_of(good + "  weight: 0\n"), HasSubstr("keys.yaml:3: "));
  EXPECT_THAT(error_of(good + "  admin: perhaps\n"), HasSubstr("keys.yaml:3: "));
  EXPECT_THAT(error_of(good + "  tenant: a b\n"), HasSubstr("key 'a': tenant must be a name"));
  std::string many;
  for (size_t i = 0; i <= kApiKeysMax; ++i) absl::StrAppend(&many, "k", i, ":\n  sha256: x\n");
  EXPECT_THAT(error_of(many), HasSubstr("more than 1000"));
}

class Ring : public testing::Test {
 protected:
  std::vector<ApiKey> two() {
    std::vector<ApiKey> keys(2);
    keys[0].name = "writers";
    keys[0].digest = sha256("k1");
    keys[0].models = {"demo"};
    keys[0].rights.quota.requests_at_once = 1;
    keys[1].name = "guests";
    keys[1].digest = sha256("k2");
    return keys;
  }
  Metrics metrics_;
  ApiKeys keys_{metrics_};
  const TimePoint now_{};
};

TEST_F(Ring, FindsClientsByTheirKeysOnly) {
  keys_.take(two(), "", now_);
  ASSERT_NE(keys_.find("Bearer k1"), nullptr);
  EXPECT_EQ(keys_.find("Bearer k1")->name(), "writers");
  EXPECT_EQ(keys_.find("bearer k2")->name(), "guests");
  for (const char* wrong :
       {"", "Bearer ", "Bearer", "k1", "Bearer k3", "Bearer  k1", "Bearer k1 ", "Basic k1"}) {
    EXPECT_EQ(keys_.find(wrong), nullptr) << wrong;
  }
  EXPECT_TRUE(keys_.find("Bearer k1")->may_use("demo"));
  EXPECT_FALSE(keys_.find("Bearer k1")->may_use("other"));
  EXPECT_TRUE(keys_.find("Bearer k2")->may_use("other"));
}

TEST_F(Ring, ATenantsKeysAreOneOwnerWhoseNameGivesNothingAway) {
  std::vector<ApiKey> keys = two();
  keys.push_back(keys[1]);
  keys[0].tenant = keys[1].tenant = "acme";
  keys[2].name = "acme";  // a key that is named as the tenant is
  keys[2].digest = sha256("k3");
  const std::string secret(32, 's');
  keys_.take(keys, secret, now_);
  const auto writers = keys_.find("Bearer k1"), guests = keys_.find("Bearer k2"),
             alone = keys_.find("Bearer k3");
  EXPECT_EQ(writers->owner(), guests->owner());
  EXPECT_NE(writers->owner(), alone->owner());
  EXPECT_NE(writers->owner(), writers->tenant_salt()) << "which is a secret of the gateways'";
  EXPECT_EQ(alone->owner().find("acme"), std::string::npos);
  EXPECT_EQ(keys_.of_owner(alone->owner()), alone);
  EXPECT_EQ(keys_.of_owner(guests->owner())->tenant_salt(), guests->tenant_salt());
  EXPECT_EQ(keys_.of_owner(""), nullptr);
  Metrics others;
  ApiKeys other_gateway(others);
  other_gateway.take(keys, secret, now_);
  EXPECT_EQ(other_gateway.find("Bearer k1")->owner(), writers->owner());
}

TEST_F(Ring, ReloadKeepsUsageAndRunningRequests) {
  keys_.take(two(), "", now_);
  const auto writers = keys_.find("Bearer k1");
  EXPECT_FALSE(writers->begin(now_).has_value());
  std::vector<ApiKey> changed = {two()[0]};
  changed[0].digest = sha256("k9");
  keys_.take(changed, "", now_);
  EXPECT_EQ(keys_.find("Bearer k1"), nullptr);
  EXPECT_EQ(keys_.find("Bearer k2"), nullptr);
  ASSERT_EQ(keys_.find("Bearer k9"), writers);
  EXPECT_TRUE(writers->begin(now_).has_value()) << "the one that runs still counts";
  keys_.take({two()[1]}, "", now_);
  writers->end(10, now_);
  EXPECT_THAT(metrics_.text(), HasSubstr("troupe_gateway_key_tokens_total{key=\"writers\"} 10"));
  EXPECT_THAT(metrics_.text(),
              HasSubstr("troupe_gateway_key_refused_total{key=\"writers\",limit=\"requests_at_once\"} 1"));
}

TEST_F(Ring, EachOfSeveralGatewaysEnforcesItsShard) {
  std::vector<ApiKey> keys = {two()[0]};
  keys[0].rights.quota.requests_at_once = 4;
  keys[0].rights.admission.limits.requests = 9;
  keys[0].rights.admission.waiting_max = 1;
  keys_.share({1, 2}, now_);
  keys_.take(keys, "", now_);
  const auto writers = keys_.find("Bearer k1");
  const auto let_in = [&] {
    int count = 0;
    while (!writers->begin(now_)) count += 1;
    return count;
  };
  EXPECT_EQ(let_in(), 2);
  EXPECT_EQ(writers->admission().limits.requests, 4);
  EXPECT_EQ(writers->admission().waiting_max, 1) << "none would be nobody";
  keys_.take(keys, "", now_);
  EXPECT_EQ(let_in(), 0) << "a reload makes it no less a part";
  keys_.share({}, now_);
  EXPECT_EQ(let_in(), 2);
  EXPECT_EQ(writers->admission().limits.requests, 9);
}

TEST_F(Ring, InvalidFileChangesNothing) {
  keys_.take(two(), "", now_);
  EXPECT_THAT(std::string(keys_.load("/nowhere/keys.yaml", "", now_).message()),
              HasSubstr("/nowhere/keys.yaml"));
  EXPECT_EQ(keys_.size(), 2u);
  EXPECT_NE(keys_.find("Bearer k1"), nullptr);
}

}  // namespace api_keys_test
}  // namespace troupe

// Quotas of gateways that share an etcd.

#include "gateway/cluster/account_store.h"

#include "gateway/proxy/accounts.h"
#include "tests/gateway/cluster/scripted_etcd.h"
#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace {

struct Arrivals {
  int admitted = 0, ended = 0;
};

Task<void> arrive(Accounts& accounts, Accounts::Visit& visit, Arrivals& arrivals) {
  const auto went = co_await accounts.arrive(visit, 1);
  arrivals.admitted += went.ok() ? 1 : 0;
  arrivals.ended += 1;
}

TEST(AccountStore, IsAskedByOneRequestOfAnAccountForAllThatArriveTogether) {
  Loop loop;
  ScriptedEtcd etcd(loop);
  Metrics metrics;
  SteadyClock clock;
  EtcdOptions members;
  members.members = {etcd.endpoint()};
  AccountOptions options;
  options.end_user.requests_per_min = 1000;
  constexpr int kTogether = 60;
  const SpentTokens spent;
  std::vector<std::unique_ptr<Accounts::Visit>> visits;
  std::unique_ptr<TaskGroup> tasks, background;
  std::unique_ptr<AccountStore> store;
  std::unique_ptr<Accounts> accounts;
  Arrivals arrivals;
  loop.call([&] {
    tasks = std::make_unique<TaskGroup>(loop.executor());
    background = std::make_unique<TaskGroup>(loop.executor());
    store = std::make_unique<AccountStore>(members, "/troupe/v1",
                                           AccountStore::Parts{loop.executor(), metrics, clock});
    accounts = std::make_unique<Accounts>(
        options, Accounts::Parts{loop.executor(), metrics, *background, store.get()});
    for (int i = 0; i < kTogether; ++i) {
      visits.push_back(accounts->visit(nullptr, "ann", spent));
      tasks->spawn(arrive(*accounts, *visits.back(), arrivals));
    }
  });
  EXPECT_TRUE(loop.eventually([&] { return arrivals.ended == kTogether; }));
  EXPECT_EQ(arrivals.admitted, kTogether);
  loop.call([&] { EXPECT_EQ(etcd.writes, 1) << "its slice is a quarter of the limit"; });
  EXPECT_NE(metrics.text().find("troupe_gateway_account_store_failures_total 0"), std::string::npos);
  loop.call([&] { visits.clear(); });
  loop.run(background->join());
  loop.run(tasks->join());
  loop.call([&] {
    tasks.reset();
    background.reset();
    accounts.reset();
    store.reset();
  });
}

}  // namespace
}  // namespace troupe::gateway_test

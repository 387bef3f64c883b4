// Where personas go on foreign workers, which report no residency: by their weights, and alike whichever
// gateway chooses.

#include <cmath>
#include <map>

#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test::foreign_placement {
namespace {

// The persona has no conversation that would lead it back.
std::string ask_persona(const TestGateway& gateway, int persona, int turn = 0) {
  const std::string card = "You are Ruvo" + std::to_string(persona) + ". " + std::string(1300, 'p');
  const Answer answer = gateway.ask(chat_body(card, "question " + std::to_string(turn)));
  EXPECT_EQ(answer.status, 200) << answer.body;
  return answer.route("node");
}

TEST(UpstreamWeight, IsAWorkersShareOfThePersonas) {
  constexpr int kPersonas = 400;
  // Each persona's choice is a draw of its own: five standard deviations are exceeded once in a million runs.
  const auto bound = [](double share) { return 5 * std::sqrt(kPersonas * share * (1 - share)); };
  for (const double weight : {1.0, 4.0}) {
    Loop loop;
    StubWorker light(loop, answer_whole), heavy(loop, answer_whole);
    Upstream one(light.endpoint()), other(heavy.endpoint());
    other.weight = weight;
    TestGateway gateway(loop, {one, other});
    for (int i = 0; i < kPersonas; ++i) ask_persona(gateway, i);
    const auto asked = static_cast<double>(loop.call([&] { return heavy.seen.size(); }));
    const double share = weight / (1 + weight);
    EXPECT_NEAR(asked, kPersonas * share, bound(share)) << "weight " << weight;
  }
}

TEST(GatewayRestart, PersonasGoBackToTheForeignWorkersThatHaveThem) {
  constexpr int kPersonas = 40;
  Loop loop;
  StubWorker a(loop, answer_whole), b(loop, answer_whole), c(loop, answer_whole), d(loop, answer_whole);
  const std::vector<Upstream> workers{a.endpoint(), b.endpoint(), c.endpoint(), d.endpoint()};
  std::vector<std::string> before(kPersonas);
  std::map<std::string, int> at;
  {
    TestGateway gateway(loop, workers, TestGateway::quick_config(), 42);
    for (int turn = 0; turn < 3; ++turn)
      for (int i = 0; i < kPersonas; ++i) before[i] = ask_persona(gateway, i, turn);
  }
  TestGateway again(loop, workers, TestGateway::quick_config(), 43);
  int back = 0;
  for (int i = 0; i < kPersonas; ++i) {
    at[before[i]] += 1;
    back += ask_persona(again, i, 9) == before[i] ? 1 : 0;
  }
  EXPECT_EQ(at.size(), 4u) << "some worker had none, which shows little";
  EXPECT_EQ(back, kPersonas) << "by chance: " << kPersonas / 4;
}

}  // namespace
}  // namespace troupe::gateway_test::foreign_placement

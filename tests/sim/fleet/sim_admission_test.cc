// The gateways' queues in a simulated fleet: who is let in, waits or is refused, and that every request ends
// exactly once.

#include "sim/fleet/sim_admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/sim/simulator_testing.h"

namespace troupe::sim {
namespace {

using namespace simulator_test;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;

// Two places at the workers of one gateway, and events as a simulation would post them.
class Desk {
 public:
  explicit Desk(const SimAdmissionOptions& options)
      : view_(1, nodes()),
        admission_(options, 1, events_,
                   {.workers =
                        [this](size_t) {
                          return route::AdmissionController::Workers{view_, loads_, 1};
                        },
                    .place = [this](uint64_t id) -> QueuePlace& { return places_[id]; },
                    .decided = [this](uint64_t id) { decided_.push_back(id); },
                    .asks_again = [this](uint64_t id) { again_.push_back(id); }}) {
    loads_.update_cluster(view_);
  }

  route::AdmissionOutcome arrive(uint64_t id, uint64_t persona = 1, uint64_t key = 0) {
    SimAdmission::Arrival arrival;
    arrival.id = id;
    arrival.key = keys_[id] = key;
    arrival.request.pool = "model";
    arrival.request.persona = Hash128{1, persona};
    arrival.request.deadline = TimePoint::max();
    admission_.arrive(0, arrival, places_[id]);
    return places_[id].outcome;
  }
  void leave(uint64_t id, int64_t tokens = 1) { admission_.leave(0, keys_[id], places_[id], {1, tokens}); }
  void restart() { admission_.restart(0); }
  // Ids of requests whose wait ended until then, in order.
  std::vector<uint64_t> until(Duration at) {
    decided_.clear();
    while (events_.size() > 0 && events_.next().at <= TimePoint{at}) {
      admission_.on_time(0, events_.pop().value);
    }
    events_.advance(TimePoint{at});
    return decided_;
  }
  const QueuePlace& place(uint64_t id) { return places_[id]; }
  const std::vector<uint64_t>& again() const { return again_; }
  size_t posted() const { return events_.size(); }
  bool consistent() const { return admission_.of(0).consistent(); }

 private:
  static std::vector<route::NodeView> nodes() {
    std::vector<route::NodeView> nodes(1);
    nodes[0].id = "n0";
    nodes[0].models = {"model"};
    nodes[0].state = route::NodeState::kAlive;
    return nodes;
  }
  route::ClusterView view_;
  route::LoadTracker loads_{route::AffinityOptions()};
  EventQueue events_;
  std::map<uint64_t, QueuePlace> places_;
  std::map<uint64_t, uint64_t> keys_;
  std::vector<uint64_t> decided_, again_;
  SimAdmission admission_;
};

SimAdmissionOptions two_places() {
  SimAdmissionOptions options;
  options.controller.room.worker_requests = 2;
  return options;
}

TEST(SimAdmission, AnEndLetsTheNextInAtOnce) {
  Desk desk(two_places());
  EXPECT_EQ(desk.arrive(1), route::AdmissionOutcome::kAdmitted);
  EXPECT_EQ(desk.arrive(2), route::AdmissionOutcome::kAdmitted);
  EXPECT_EQ(desk.arrive(3), route::AdmissionOutcome::kWaiting);
  EXPECT_EQ(desk.arrive(4), route::AdmissionOutcome::kWaiting);
  EXPECT_THAT(desk.until(milliseconds(70)), IsEmpty());
  desk.leave(1);
  EXPECT_THAT(desk.until(milliseconds(70)), ElementsAre(3)) << "not at the next look, 30 ms later";
  EXPECT_EQ(desk.place(3).wait, milliseconds(70));
  EXPECT_EQ(desk.place(3).outcome, route::AdmissionOutcome::kAdmitted);
  desk.leave(2);
  desk.leave(3);
  EXPECT_THAT(desk.until(milliseconds(80)), ElementsAre(4));
  desk.leave(4);
  desk.until(milliseconds(500));
  EXPECT_EQ(desk.posted(), 0u) << "no request waits, so no look is due";
  EXPECT_TRUE(desk.consistent());
}

TEST(SimAdmission, WaitingEndsAtTheTimeOutWithinALook) {
  SimAdmissionOptions options = two_places();
  options.controller.admission.wait_max = milliseconds(120);
  Desk desk(options);
  for (uint64_t id = 1; id <= 3; ++id) desk.arrive(id);
  EXPECT_THAT(desk.until(milliseconds(119)), IsEmpty());
  EXPECT_THAT(desk.until(milliseconds(150)), ElementsAre(3));
  EXPECT_EQ(desk.place(3).outcome, route::AdmissionOutcome::kTimedOut);
  EXPECT_TRUE(desk.place(3).refused());
}

TEST(SimAdmission, AFullQueueRefusesThePersonaThatFillsIt) {
  SimAdmissionOptions options = two_places();
  options.controller.admission.queue_max = 4;
  Desk desk(options);
  for (uint64_t id = 1; id <= 6; ++id) desk.arrive(id);
  EXPECT_EQ(desk.arrive(7), route::AdmissionOutcome::kQueueFull);
  EXPECT_EQ(desk.arrive(8, 2), route::AdmissionOutcome::kWaiting) << "another persona has a claim";
  EXPECT_THAT(desk.until(milliseconds(0)), ElementsAre(6));
  EXPECT_EQ(desk.place(6).outcome, route::AdmissionOutcome::kPushedOut);
}

TEST(SimAdmission, ARestartHasTheWaitingAskAgainAndForgetsTheOthers) {
  Desk desk(two_places());
  for (uint64_t id = 1; id <= 4; ++id) desk.arrive(id);
  desk.until(milliseconds(10));
  desk.restart();
  EXPECT_THAT(desk.again(), ElementsAre(3, 4));
  EXPECT_EQ(desk.arrive(3), route::AdmissionOutcome::kAdmitted);
  EXPECT_EQ(desk.place(3).wait, milliseconds(10));
  desk.leave(1);  // the gateway does not know it any more
  EXPECT_EQ(desk.arrive(4), route::AdmissionOutcome::kAdmitted);
  EXPECT_EQ(desk.arrive(5), route::AdmissionOutcome::kWaiting);
  EXPECT_TRUE(desk.consistent());
}

TEST(SimAdmission, ALimitSwitchesItOnAndTheDefaultIsOff) {
  SimAdmissionOptions options;
  EXPECT_FALSE(options.active());
  options.controller.admission.persona.requests = 3;
  EXPECT_TRUE(options.active());
  options = {};
  options.enabled = true;
  EXPECT_TRUE(options.active());
}

// --- API keys ---

SimAdmissionOptions with_key(const route::KeyRights& rights) {
  SimAdmissionOptions options;
  options.keys[7] = rights;
  options.keys[7].admission.id = hash_bytes("writers");
  return options;
}

TEST(SimAdmission, KeyOverItsLimitIsRefusedAtTheDoorAndOthersAreNot) {
  route::KeyRights rights;
  rights.quota.requests_at_once = 1;
  Desk desk(with_key(rights));
  EXPECT_EQ(desk.arrive(1, 1, 7), route::AdmissionOutcome::kAdmitted);
  EXPECT_FALSE(desk.place(1).refused());
  desk.arrive(2, 1, 7);
  EXPECT_TRUE(desk.place(2).refused());
  EXPECT_EQ(desk.place(2).refusal(), "requests_at_once");
  EXPECT_EQ(desk.place(2).refusal_status(), 429);
  desk.leave(2);
  desk.arrive(3, 1, 8);
  desk.arrive(4, 1, 0);
  EXPECT_FALSE(desk.place(3).refused() || desk.place(4).refused()) << "another key, and none";
  desk.leave(1);
  desk.arrive(5, 1, 7);
  EXPECT_FALSE(desk.place(5).refused()) << "a refused request has taken no place, an ended one has left its";
}

TEST(SimAdmission, KeyIsChargedThePromptAndTheAnswer) {
  route::KeyRights rights;
  rights.quota.tokens_per_min = 600;
  Desk desk(with_key(rights));
  desk.arrive(1, 1, 7);
  desk.leave(1, 1200);
  desk.arrive(2, 1, 7);
  EXPECT_EQ(desk.place(2).refusal(), "tokens_per_min");
  desk.until(std::chrono::seconds(59));
  desk.arrive(3, 1, 7);
  EXPECT_TRUE(desk.place(3).refused()) << "a debt of a minute's tokens";
  desk.until(std::chrono::seconds(61));
  desk.arrive(4, 1, 7);
  EXPECT_FALSE(desk.place(4).refused());
}

TEST(SimAdmission, KeysLimitInTheQueueMakesItsRequestsWait) {
  route::KeyRights rights;
  rights.admission.limits.requests = 1;
  rights.admission.waiting_max = 1;
  Desk desk(with_key(rights));
  EXPECT_EQ(desk.arrive(1, 1, 7), route::AdmissionOutcome::kAdmitted);
  EXPECT_EQ(desk.arrive(2, 1, 7), route::AdmissionOutcome::kWaiting);
  EXPECT_EQ(desk.arrive(3, 1, 7), route::AdmissionOutcome::kKeyQueueFull);
  EXPECT_EQ(desk.arrive(4, 1, 0), route::AdmissionOutcome::kAdmitted);
  desk.leave(1);
  EXPECT_THAT(desk.until(milliseconds(0)), ElementsAre(2));
}

TEST(SimAdmission, RestartForgetsWhatAKeyHasUsed) {
  route::KeyRights rights;
  rights.quota.requests_at_once = 1;
  Desk desk(with_key(rights));
  desk.arrive(1, 1, 7);
  desk.restart();
  desk.arrive(2, 1, 7);
  EXPECT_FALSE(desk.place(2).refused());
  desk.leave(1);
  desk.arrive(3, 1, 7);
  EXPECT_TRUE(desk.place(3).refused()) << "the end of an earlier life's request frees nothing";
}

struct Ends {
  std::map<int64_t, int> times;  // by number
  std::map<RequestEnd, int64_t> by_end;
  int64_t waited = 0;
};

Ends ends_of(PersonaWorkload workload, SimulationOptions options, Result& result) {
  Ends ends;
  options.on_request = [&ends](const RequestLine& line) {
    ends.times[line.number] += 1;
    ends.by_end[line.end] += 1;
    ends.waited += line.place.waited ? 1 : 0;
    EXPECT_EQ(line.end == RequestEnd::kRefused, line.place.refused());
    EXPECT_TRUE(line.end != RequestEnd::kRefused || line.attempts == 0) << "it was sent to no node";
  };
  result = run_personas(workload, options);
  return ends;
}

// A viral persona, a fleet that is too small, nodes that die and gateways that restart.
TEST(SimAdmission, EveryRequestEndsExactlyOnce) {
  PersonaWorkload workload = kSmall;
  workload.rate = 60;
  workload.duration_s = 40;
  workload.flash =
      FlashCrowd{.share = 0.6, .begin = std::chrono::seconds(10), .duration = std::chrono::seconds(20)};
  for (const int32_t gateways : {1, 3}) {
    SimulationOptions options = options_of(2, gateways);
    options.conservation_every = 64;
    options.admission.controller.room.worker_requests = 6;
    options.admission.controller.admission.queue_max = 20;
    options.admission.controller.admission.wait_max = milliseconds(400);
    options.faults = {{.kind = Fault::Kind::kRestartGateway, .at_s = 15, .target = 0},
                      {.kind = Fault::Kind::kKill, .at_s = 20, .target = 1},
                      {.kind = Fault::Kind::kReturn, .at_s = 25, .target = 1}};
    Result result;
    const Ends ends = ends_of(workload, options, result);
    ASSERT_TRUE(result.queue.has_value());
    int64_t refused = 0;
    std::set<std::string_view> reasons;
    for (const QueueFigures::Reason& reason : result.queue->refused) {
      refused += reason.count;
      reasons.insert(reason.name);
    }
    EXPECT_EQ(static_cast<int64_t>(ends.times.size()), result.requests);
    for (const auto& [number, times] : ends.times) EXPECT_EQ(times, 1) << number;
    EXPECT_EQ(ends.by_end.at(RequestEnd::kRefused), refused);
    EXPECT_EQ(result.queue->refused_429 + result.queue->refused_503, refused);
    EXPECT_EQ(ends.waited, result.queue->waited);
    EXPECT_GE(result.lost, refused);
    EXPECT_GT(result.queue->refused_429, 0);
    EXPECT_THAT(reasons, testing::Contains("timed_out"));
    EXPECT_THAT(reasons, testing::Contains("queue_full"));
    EXPECT_GT(ends.by_end.at(RequestEnd::kAnswered), 500);
  }
}

// Switched on in a fleet with room it changes nothing; and not switched on there are no figures of it.
TEST(SimAdmission, WithRoomNoRequestWaits) {
  SimulationOptions options = options_of(4);
  const Result without = run_personas(kSmall, options);
  EXPECT_FALSE(without.queue.has_value());
  options.admission.enabled = true;
  const Result with = run_personas(kSmall, options);
  ASSERT_TRUE(with.queue.has_value());
  EXPECT_EQ(with.queue->waited, 0);
  EXPECT_EQ(with.ttft_ms.p99, without.ttft_ms.p99);
  EXPECT_EQ(with.hit_tokens, without.hit_tokens);
}

// The others' first tokens beside a viral persona: in order of arrival they wait behind it.
TEST(SimAdmission, FairQueueKeepsAViralPersonaOffTheOthers) {
  PersonaWorkload workload = kSmall;
  workload.zipf = 0;
  workload.rate = 10;
  workload.flash =
      FlashCrowd{.share = 0.9, .begin = std::chrono::seconds(20), .duration = std::chrono::seconds(30)};
  SimulationOptions options = options_of(1);
  options.crowd_set = flash_set(workload);
  options.crowd_begin = std::chrono::seconds(20);
  options.admission.controller.room.worker_requests = 30;
  const Result fair = run_personas(workload, options);
  options.admission.controller.admission.fair = false;
  const Result in_order = run_personas(workload, options);
  ASSERT_TRUE(fair.crowd.has_value() && in_order.crowd.has_value());
  EXPECT_GT(in_order.queue->waited, 100) << "the fleet is too small for the crowd";
  EXPECT_LT(fair.crowd->others_ms, in_order.crowd->others_ms / 2);
}

}  // namespace
}  // namespace troupe::sim

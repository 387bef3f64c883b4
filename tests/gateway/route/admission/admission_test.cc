#include "gateway/route/admission/admission.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <string>

#include "common/core/random.h"

namespace troupe::route {
namespace admission_test {

using Outcome = AdmissionOutcome;

TimePoint at(double seconds) {
  return TimePoint(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)));
}

double seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}

Hash128 named(const std::string& name) {
  return hash_bytes(name);
}

AdmissionRequest request_of(const std::string& persona, int64_t tokens = 100) {
  AdmissionRequest request;
  request.pool = "demo";
  request.pool_room = 4;
  request.persona = named(persona);
  request.tokens = tokens;
  request.deadline = at(1e6);
  return request;
}

AdmissionRequest request_of_key(const std::string& key, const std::string& persona, double weight = 1) {
  AdmissionRequest request = request_of(persona);
  request.key.id = named(key);
  request.key.weight = weight;
  return request;
}

// Workers that are always full: each request takes as long as its tokens, one per lane.
class Mill {
 public:
  explicit Mill(const AdmissionOptions& options, double tokens_per_s = 1000)
      : admission(options), rate_(tokens_per_s) {}

  Admission::Answer arrive(const AdmissionRequest& request, const std::string& label) {
    const auto answer = admission.arrive(request, now());
    if (answer.ticket != 0) labels_[answer.ticket] = {label, request.tokens, time};
    if (answer.outcome == Outcome::kAdmitted) begin(answer.ticket);
    take(admission.advance(now()));
    return answer;
  }
  // Ends the request that is due first.
  bool step() {
    if (ends_.empty()) return false;
    const auto [end, ticket] = *ends_.begin();
    ends_.erase(ends_.begin());
    time = end;
    admission.leave(ticket, labels_.at(ticket).tokens, now());
    labels_.erase(ticket);
    take(admission.advance(now()));
    return true;
  }
  TimePoint now() const { return at(time); }

  Admission admission;
  double time = 0;
  std::map<std::string, int64_t> tokens_in;          // admitted, by label
  std::map<std::string, std::vector<double>> waits;  // of admitted requests, by label
  std::map<Outcome, int> outcomes;

 private:
  struct Label {
    std::string name;
    int64_t tokens = 0;
    double arrived = 0;
  };
  void begin(uint64_t ticket) {
    const Label& label = labels_.at(ticket);
    tokens_in[label.name] += label.tokens;
    waits[label.name].push_back(time - label.arrived);
    ends_.emplace(time + static_cast<double>(label.tokens) / rate_, ticket);
  }
  void take(const std::vector<Admission::Event>& events) {
    for (const auto& event : events) {
      outcomes[event.outcome] += 1;
      if (event.outcome == Outcome::kAdmitted) {
        begin(event.ticket);
      } else {
        labels_.erase(event.ticket);
      }
    }
  }

  const double rate_;
  std::map<uint64_t, Label> labels_;
  std::set<std::pair<double, uint64_t>> ends_;
};

TEST(Admission, NoRequestWaitsWhileThereIsRoom) {
  Admission admission({});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(admission.arrive(request_of("a"), at(0)).outcome, Outcome::kAdmitted);
  EXPECT_EQ(admission.arrive(request_of("b"), at(0)).outcome, Outcome::kWaiting);
  EXPECT_EQ(admission.running(), 4);
  EXPECT_EQ(admission.running_tokens(), 400);
  // Another model's workers have room of their own.
  AdmissionRequest other = request_of("b");
  other.pool = "other";
  EXPECT_EQ(admission.arrive(other, at(0)).outcome, Outcome::kAdmitted);
  EXPECT_TRUE(admission.consistent());
}

TEST(Admission, EndedRequestAdmitsTheNextInTheQueue) {
  Admission admission({});
  std::vector<uint64_t> inside;
  for (int i = 0; i < 4; ++i) inside.push_back(admission.arrive(request_of("a"), at(0)).ticket);
  const auto waits = admission.arrive(request_of("b"), at(0));
  EXPECT_TRUE(admission.advance(at(1)).empty());
  admission.leave(inside[0], std::nullopt, at(2));
  const auto events = admission.advance(at(2));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].ticket, waits.ticket);
  EXPECT_EQ(events[0].outcome, Outcome::kAdmitted);
  EXPECT_DOUBLE_EQ(seconds(events[0].waited), 2);
  EXPECT_TRUE(admission.advance(at(3)).empty()) << "once";
}

TEST(Admission, MoreRoomAdmitsAtOnce) {
  Admission admission({});
  for (int i = 0; i < 10; ++i) admission.arrive(request_of("a"), at(0));
  EXPECT_EQ(admission.waiting(), 6u);
  EXPECT_EQ(admission.waiting_pools(), std::vector<std::string>{"demo"});
  admission.pool_room("demo", 7);
  EXPECT_EQ(admission.advance(at(0)).size(), 3u);
  EXPECT_EQ(admission.waiting(), 3u);
  // Less room removes no running request.
  admission.pool_room("demo", 1);
  EXPECT_TRUE(admission.advance(at(0)).empty());
  EXPECT_EQ(admission.running(), 7);
}

TEST(Admission, CancelledRequestLeavesTheQueueAtOnce) {
  Admission admission({});
  std::vector<uint64_t> tickets;
  for (int i = 0; i < 7; ++i) tickets.push_back(admission.arrive(request_of("a"), at(0)).ticket);
  admission.leave(tickets[5], std::nullopt, at(1));
  EXPECT_EQ(admission.waiting(), 2u);
  for (int i = 0; i < 4; ++i) admission.leave(tickets[static_cast<size_t>(i)], std::nullopt, at(1));
  const auto events = admission.advance(at(1));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].ticket, tickets[4]);
  EXPECT_EQ(events[1].ticket, tickets[6]);
  // Likewise one that was just admitted, before its event was read.
  admission.arrive(request_of("b"), at(1));
  admission.arrive(request_of("b"), at(1));
  const auto last = admission.arrive(request_of("b"), at(1));
  EXPECT_EQ(last.outcome, Outcome::kWaiting);
  admission.leave(tickets[4], std::nullopt, at(2));
  admission.leave(last.ticket, std::nullopt, at(2));
  EXPECT_TRUE(admission.advance(at(2)).empty());
  EXPECT_TRUE(admission.consistent());
}

TEST(Admission, DeadlinesExpireInTheQueue) {
  AdmissionOptions options;
  options.wait_max = std::chrono::seconds(10);
  Admission admission(options);
  for (int i = 0; i < 4; ++i) admission.arrive(request_of("a"), at(0));
  AdmissionRequest hurried = request_of("b");
  hurried.deadline = at(3);
  const auto first = admission.arrive(hurried, at(0));
  const auto second = admission.arrive(request_of("b"), at(0));
  EXPECT_EQ(admission.next_deadline(), at(3));
  EXPECT_TRUE(admission.advance(at(2.9)).empty());
  auto events = admission.advance(at(3));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].ticket, first.ticket);
  EXPECT_EQ(events[0].outcome, Outcome::kDeadline);
  events = admission.advance(at(10));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].ticket, second.ticket);
  EXPECT_EQ(events[0].outcome, Outcome::kTimedOut);
  EXPECT_EQ(events[0].wait, std::chrono::seconds(10)) << "as long as nothing has gone";
  EXPECT_FALSE(admission.next_deadline().has_value());
}

TEST(Admission, DrainEndsTheQueue) {
  Admission admission({});
  std::vector<uint64_t> inside;
  for (int i = 0; i < 4; ++i) inside.push_back(admission.arrive(request_of("a"), at(0)).ticket);
  admission.arrive(request_of("b"), at(0));
  admission.arrive(request_of("b"), at(0));
  admission.drain(at(5));
  admission.leave(inside[0], std::nullopt, at(1));
  EXPECT_EQ(admission.advance(at(1)).front().outcome, Outcome::kAdmitted);
  const auto events = admission.advance(at(5));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].outcome, Outcome::kDrained);
}

TEST(Admission, KeyPersonaAndTotalLimitsHold) {
  AdmissionOptions options;
  options.total = {.requests = 5};
  options.persona = {.tokens = 250};
  Admission admission(options);
  const auto ask = [&](const std::string& key, const std::string& persona) {
    AdmissionRequest request = request_of_key(key, persona);
    request.pool_room = 100;
    if (key == "small") request.key.limits.requests = 1;
    return admission.arrive(request, at(0));
  };
  const auto first = ask("small", "a");
  EXPECT_EQ(first.outcome, Outcome::kAdmitted);
  const auto second = ask("small", "b");
  EXPECT_EQ(second.outcome, Outcome::kWaiting) << "its key has one already";
  EXPECT_EQ(ask("large", "a").outcome, Outcome::kAdmitted) << "and holds up nobody else";
  EXPECT_EQ(ask("large", "a").outcome, Outcome::kAdmitted) << "the last may go over a limit in tokens";
  EXPECT_EQ(ask("large", "a").outcome, Outcome::kWaiting) << "300 tokens of this persona are there";
  EXPECT_EQ(ask("large", "b").outcome, Outcome::kAdmitted);
  EXPECT_EQ(ask("large", "c").outcome, Outcome::kAdmitted);
  EXPECT_EQ(ask("large", "d").outcome, Outcome::kWaiting) << "five of all";
  EXPECT_TRUE(admission.advance(at(0)).empty());
  admission.leave(first.ticket, std::nullopt, at(1));
  // The key's other request is the first in the queue that may enter now.
  const auto events = admission.advance(at(1));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].ticket, second.ticket);
  EXPECT_TRUE(admission.consistent());
}

TEST(Admission, FullQueueMakesRoomForAFlowWithFewWaiting) {
  AdmissionOptions options;
  options.queue_max = 8;
  Mill mill(options);
  for (int i = 0; i < 4 + 8; ++i) mill.arrive(request_of("viral"), "viral");
  EXPECT_EQ(mill.arrive(request_of("viral"), "viral").outcome, Outcome::kQueueFull);
  EXPECT_EQ(mill.arrive(request_of("tail"), "tail").outcome, Outcome::kWaiting);
  EXPECT_EQ(mill.outcomes[Outcome::kPushedOut], 1);
  EXPECT_EQ(mill.admission.waiting(), 8u);
  // An unimportant request never pushes an important one out, and is pushed out before any.
  AdmissionRequest late = request_of("late");
  late.priority = 3;
  EXPECT_EQ(mill.arrive(late, "late").outcome, Outcome::kQueueFull);
  AdmissionRequest early = request_of("viral");
  early.priority = -1;
  EXPECT_EQ(mill.arrive(early, "early").outcome, Outcome::kWaiting);
  EXPECT_EQ(mill.outcomes[Outcome::kPushedOut], 2);
  EXPECT_EQ(mill.admission.waiting(-1), 1u);
  EXPECT_TRUE(mill.admission.consistent());
}

TEST(Admission, WaitingRequestsOfAKeyAreBounded) {
  Admission admission({});
  AdmissionRequest request = request_of_key("k", "a");
  request.key.waiting_max = 2;
  for (int i = 0; i < 4; ++i) EXPECT_EQ(admission.arrive(request, at(0)).outcome, Outcome::kAdmitted);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(admission.arrive(request, at(0)).outcome, Outcome::kWaiting);
  EXPECT_EQ(admission.arrive(request, at(0)).outcome, Outcome::kKeyQueueFull);
  EXPECT_EQ(admission.preview(request, at(0)).outcome, Outcome::kKeyQueueFull);
  EXPECT_EQ(admission.arrive(request_of("a"), at(0)).outcome, Outcome::kWaiting);
}

TEST(Admission, SharesFollowKeyWeightsWhateverThePersonas) {
  AdmissionOptions options;
  options.queue_max = 4000;
  options.wait_max = std::chrono::hours(10);
  Mill mill(options);
  Random random(5);
  const std::map<std::string, double> weights{{"one", 1}, {"two", 2}, {"four", 4}};
  const auto refill = [&] {
    for (const auto& [key, weight] : weights) {
      const int personas = key == "one" ? 10 : 2;  // more personas are worth no more
      for (int i = 0; i < 10; ++i) {
        AdmissionRequest request = request_of_key(key, key + std::to_string(i % personas), weight);
        request.tokens = 50 + random.below(200);
        mill.arrive(request, key);
      }
    }
  };
  for (int i = 0; i < 40; ++i) refill();
  auto before = mill.tokens_in;
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(mill.step());
  double all = 0;
  for (const auto& [key, weight] : weights) all += static_cast<double>(mill.tokens_in[key] - before[key]);
  for (const auto& [key, weight] : weights) {
    const double share = static_cast<double>(mill.tokens_in[key] - before[key]) / all;
    EXPECT_NEAR(share, weight / 7, 0.03) << key;
  }
}

TEST(Admission, ActualCostOfAnswersCounts) {
  // Both keys' requests look alike in rate and cost, but one's answers are three times as long.
  AdmissionOptions options;
  options.queue_max = 4000;
  options.wait_max = std::chrono::hours(1);
  Admission admission(options);
  std::map<uint64_t, bool> is_long;
  std::deque<uint64_t> inside;
  for (int i = 0; i < 1000; ++i) {
    for (const bool lengthy : {false, true}) {
      const auto answer = admission.arrive(request_of(lengthy ? "long" : "short"), at(0));
      is_long[answer.ticket] = lengthy;
      if (answer.outcome == Outcome::kAdmitted) inside.push_back(answer.ticket);
    }
  }
  std::map<bool, int> ended;
  for (int i = 0; i < 400; ++i) {
    const uint64_t ticket = inside.front();
    inside.pop_front();
    ended[is_long[ticket]] += 1;
    admission.leave(ticket, is_long[ticket] ? 300 : 100, at(i));
    for (const auto& event : admission.advance(at(i))) inside.push_back(event.ticket);
  }
  EXPECT_NEAR(ended[false], 300, 12);
}

// One persona gets ten times the load that the fleet can serve, beside forty with little load.
TEST(Admission, ViralPersonaDoesNotDelayTheOthers) {
  std::map<bool, double> worst;
  for (const bool fair : {true, false}) {
    AdmissionOptions options;
    options.fair = fair;
    options.queue_max = 100'000;
    options.wait_max = std::chrono::hours(1);
    Mill mill(options);  // 4 lanes of 10 requests a second
    Random random(11);
    for (int tick = 0; tick < 600; ++tick) {  // a minute
      const double until = tick * 0.1;
      while (mill.time < until && mill.step()) {
      }
      mill.time = std::max(mill.time, until);
      for (int i = 0; i < 40; ++i) mill.arrive(request_of("viral"), "viral");
      if (tick % 2 == 0) mill.arrive(request_of("tail" + std::to_string(random.below(40))), "tail");
    }
    for (int i = 0; i < 30'000; ++i) mill.step();
    auto& waits = mill.waits["tail"];
    EXPECT_EQ(waits.size(), 300u);
    worst[fair] = *std::max_element(waits.begin(), waits.end());
  }
  EXPECT_LT(worst[true], 1);
  EXPECT_GT(worst[false], 100);
}

TEST(Admission, PrioritiesHoldAndNoClassStarves) {
  AdmissionOptions options;
  options.queue_max = 10'000;
  Mill mill(options);
  for (int i = 0; i < 600; ++i) {
    for (const int priority : {-2, 0, 0, 4}) {
      AdmissionRequest request = request_of("p" + std::to_string(i % 3));
      request.priority = priority;
      mill.arrive(request, std::to_string(priority));
    }
  }
  const auto before = mill.tokens_in;
  for (int i = 0; i < 400; ++i) mill.step();
  const auto let_in = [&](const std::string& label) {
    const auto was = before.find(label);
    return (mill.tokens_in[label] - (was == before.end() ? 0 : was->second)) / 100;
  };
  EXPECT_NEAR(let_in("-2"), 350, 2) << "seven eighths";
  EXPECT_NEAR(let_in("0"), 25, 2) << "and one in turn";
  EXPECT_NEAR(let_in("4"), 25, 2);
}

TEST(Admission, RetryAfterFollowsTheDrainRate) {
  AdmissionOptions options;
  options.queue_max = 400;
  Mill mill(options);  // 4 lanes, each 10 requests a second: 40 in all
  for (int i = 0; i < 404; ++i) mill.arrive(request_of("a"), "a");
  EXPECT_EQ(mill.arrive(request_of("a"), "a").wait, std::chrono::seconds(1)) << "nothing is known yet";
  while (mill.time < 2) mill.step();
  for (int i = 0; i < 200 && mill.admission.waiting() < 400; ++i) mill.arrive(request_of("a"), "a");
  const auto refused = mill.arrive(request_of("a"), "a");
  EXPECT_EQ(refused.outcome, Outcome::kQueueFull);
  EXPECT_GE(refused.wait, std::chrono::seconds(9)) << "400 at 40 a second";
  EXPECT_LE(refused.wait, std::chrono::seconds(12));
  // The wait of a flow without waiting requests is short.
  EXPECT_LE(mill.admission.preview(request_of("b"), mill.now()).wait, std::chrono::seconds(1));
  // A request that would be too late is refused at once.
  AdmissionRequest hurried = request_of("a");
  hurried.deadline = mill.now() + std::chrono::seconds(5);
  EXPECT_EQ(mill.arrive(hurried, "a").outcome, Outcome::kQueueFull);
  while (mill.admission.waiting() > 300) mill.step();
  hurried.deadline = mill.now() + std::chrono::seconds(5);
  EXPECT_EQ(mill.arrive(hurried, "a").outcome, Outcome::kWouldBeLate);
  hurried.deadline = mill.now() + std::chrono::seconds(12);
  EXPECT_EQ(mill.arrive(hurried, "a").outcome, Outcome::kWaiting);
}

// Answers of 30 s: the queue drains too slowly for its own rate to be known.
// Answers of 30 s: the queue drains too slowly for its own rate to be known.
TEST(Admission, RequestThatASlowPoolCannotServeInTimeIsRefusedAtOnce) {
  Mill mill({}, 100.0 / 30);
  const auto within = [&](double seconds_left) {
    AdmissionRequest request = request_of("a");
    request.deadline = at(mill.time + seconds_left);
    return mill.arrive(request, "a").outcome;
  };
  for (int i = 0; i < 11; ++i) mill.arrive(request_of("a"), "a");
  EXPECT_EQ(within(100), Outcome::kWaiting);
  for (int i = 0; i < 4; ++i) mill.step();
  mill.time = 40;
  // Four are served in 30 s, four wait: its turn comes in 50 s, and not in 19 s.
  EXPECT_EQ(within(10), Outcome::kWouldBeLate);
  EXPECT_EQ(within(25), Outcome::kWaiting) << "the pool may become faster";
}

// Prompts are computed many times faster than answers are written.
TEST(Admission, ALongPromptIsNotRefusedForTheTimeThatItsAnswerWouldTakeAsLong) {
  Mill mill({}, 100.0 / 30);
  for (int i = 0; i < 11; ++i) mill.arrive(request_of("a"), "a");
  for (int i = 0; i < 4; ++i) mill.step();
  mill.time = 40;
  // Three wait: its turn comes in 15 s at twice the pool's rate.
  const auto arrive = [&](int64_t prompt_tokens, double seconds_left) {
    AdmissionRequest request = request_of("a");
    request.tokens += prompt_tokens;
    request.prompt_tokens = prompt_tokens;
    request.deadline = at(mill.time + seconds_left);
    return mill.arrive(request, "a").outcome;
  };
  EXPECT_EQ(arrive(32'000, 10), Outcome::kWouldBeLate);
  EXPECT_EQ(arrive(32'000, 60), Outcome::kWaiting);
  EXPECT_EQ(arrive(0, 60), Outcome::kWaiting) << "nor for that of one before it";
}

TEST(Admission, FlowMemoryIsBoundedWithoutRefusals) {
  AdmissionOptions options;
  options.flows_max = 64;
  Mill mill(options);
  for (int i = 0; i < 5000; ++i) {
    const auto answer = mill.arrive(request_of("p" + std::to_string(i)), "p");
    EXPECT_TRUE(answer.outcome == Outcome::kAdmitted || answer.outcome == Outcome::kWaiting);
    if (i % 2 == 1) mill.step();
    if (mill.admission.waiting() > 500) {
      while (mill.admission.waiting() > 0) mill.step();
    }
    EXPECT_LE(mill.admission.flows_remembered(), 64u);
  }
  while (mill.step()) {
  }
  EXPECT_EQ(mill.admission.flows(), 0u);
  EXPECT_TRUE(mill.admission.consistent());
}

}  // namespace admission_test
}  // namespace troupe::route

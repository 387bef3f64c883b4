#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "common/core/random.h"
#include "gateway/route/admission/admission.h"

namespace troupe::route {
namespace admission_chance_test {

using Outcome = AdmissionOutcome;

// Random use of all operations: no request is lost or answered twice, no bound is exceeded, and no request
// waits that may enter.
class Chance {
 public:
  explicit Chance(uint64_t seed) : random_(seed), options_(made_options()), admission_(options_) {}

  void run() {
    for (int i = 0; i < 400 && !testing::Test::HasFailure(); ++i) act();
    admission_.drain(now_ + std::chrono::seconds(1));
    for (int i = 0; i < 4000 && !(inside_.empty() && waiting_.empty()); ++i) {
      pass_time();
      end_one();
      take();
    }
    EXPECT_TRUE(inside_.empty() && waiting_.empty()) << "everybody was told something";
    EXPECT_EQ(admission_.running(), 0);
    EXPECT_EQ(admission_.running_tokens(), 0);
    EXPECT_EQ(admission_.flows(), 0u);
    EXPECT_TRUE(admission_.consistent());
  }

 private:
  struct Asked {
    size_t pool = 0;
    Hash128 key, persona;
    int64_t tokens = 0;
    TimePoint deadline{};
  };
  AdmissionOptions made_options() {
    AdmissionOptions options;
    options.queue_max = 1 + random_.below(40);
    options.wait_max = std::chrono::milliseconds(100 + random_.below(5000));
    options.fair = random_.below(4) > 0;
    options.flows_max = 1 + random_.below(8);
    if (random_.below(2) == 0) options.total.requests = 1 + random_.below(12);
    if (random_.below(3) == 0) options.total.tokens = 1 + random_.below(3000);
    if (random_.below(2) == 0) options.persona.requests = 1 + random_.below(4);
    if (random_.below(3) == 0) options.persona.tokens = 1 + random_.below(1000);
    return options;
  }

  void act() {
    pass_time();
    const uint32_t what = random_.below(10);
    if (what < 5) arrive();
    if (what == 5) cancel_one();
    if (what == 6) admission_.pool_room(kPools[random_.below(2)], room_[random_.below(2)]);
    if (what >= 7) end_one();
    if (random_.below(60) == 0) room_[random_.below(2)] = 1 + random_.below(10);
    if (random_.below(80) == 0) change();
    take();
    EXPECT_LE(admission_.waiting(), std::max(2 * options_.queue_max, queued_before_ + options_.queue_max));
    EXPECT_TRUE(admission_.consistent());
  }
  void pass_time() { now_ += std::chrono::milliseconds(random_.below(60)); }

  // Smaller bounds remove no request.
  void change() {
    const size_t flows_max = options_.flows_max;
    options_ = made_options();
    options_.flows_max = flows_max;
    queued_before_ = admission_.waiting();
    admission_.change(options_);
  }

  void arrive() {
    Asked asked;
    asked.pool = random_.below(2);
    const uint32_t key = random_.below(4);
    asked.key = key == 0 ? Hash128{} : Hash128{key, 1};
    const uint32_t persona = random_.below(6);
    asked.persona = persona == 0 ? Hash128{} : Hash128{persona, asked.pool};
    asked.tokens = 1 + random_.below(400);
    asked.deadline = now_ + std::chrono::milliseconds(random_.below(8000));
    AdmissionRequest request;
    request.pool = kPools[asked.pool];
    request.pool_room = room_[asked.pool];
    request.key.id = asked.key;
    request.key.weight = 0.5 * (1 + key);
    if (key == 1) request.key.limits.requests = kKeyRequests;
    if (key == 2) request.key.waiting_max = kKeyWaiting;
    request.persona = asked.persona;
    request.priority = static_cast<int32_t>(random_.below(14)) - 7;
    request.tokens = asked.tokens;
    request.deadline = asked.deadline;
    admission_.pool_room(request.pool, request.pool_room);
    take();
    const auto guess = admission_.preview(request, now_);
    const auto answer = admission_.arrive(request, now_);
    EXPECT_EQ(guess.outcome, answer.outcome);
    if (answer.outcome == Outcome::kAdmitted) enter(answer.ticket, asked);
    if (answer.outcome == Outcome::kWaiting) waiting_.emplace(answer.ticket, asked);
    EXPECT_EQ(answer.ticket == 0,
              answer.outcome != Outcome::kAdmitted && answer.outcome != Outcome::kWaiting);
  }
  void cancel_one() {
    if (waiting_.empty()) return;
    const auto one = std::next(waiting_.begin(), random_.below(static_cast<uint32_t>(waiting_.size())));
    admission_.leave(one->first, std::nullopt, now_);
    waiting_.erase(one);
  }
  void end_one() {
    if (inside_.empty()) return;
    const auto one = std::next(inside_.begin(), random_.below(static_cast<uint32_t>(inside_.size())));
    std::optional<int64_t> cost;
    if (random_.below(2) == 0) cost = random_.below(800);
    admission_.leave(one->first, cost, now_);
    inside_.erase(one);
  }

  // A bound may be exceeded only by requests from before it.
  void enter(uint64_t ticket, const Asked& asked) {
    Count all, of_persona, of_key;
    int64_t of_pool = 0;
    for (const auto& [other, there] : inside_) {
      all.add(there);
      if (there.persona == asked.persona) of_persona.add(there);
      if (there.key == asked.key) of_key.add(there);
      of_pool += there.pool == asked.pool ? 1 : 0;
    }
    EXPECT_TRUE(all.below(options_.total));
    EXPECT_TRUE(asked.persona.is_zero() || of_persona.below(options_.persona));
    EXPECT_TRUE(asked.key != (Hash128{1, 1}) || of_key.requests < kKeyRequests);
    EXPECT_LT(of_pool, 10);
    EXPECT_TRUE(inside_.emplace(ticket, asked).second) << "let in twice";
  }
  void take() {
    for (const auto& event : admission_.advance(now_)) {
      const auto found = waiting_.find(event.ticket);
      ASSERT_NE(found, waiting_.end()) << "told of one that does not wait";
      const Asked asked = found->second;
      waiting_.erase(found);
      if (event.outcome == Outcome::kAdmitted) {
        EXPECT_LT(now_ - Duration(1), asked.deadline);
        enter(event.ticket, asked);
      } else if (event.outcome == Outcome::kDeadline) {
        EXPECT_GE(now_, asked.deadline);
      }
    }
    EXPECT_EQ(admission_.waiting(), waiting_.size());
    for (const auto& [ticket, asked] : waiting_) EXPECT_GT(asked.deadline, now_);
  }

  struct Count {
    int64_t requests = 0, tokens = 0;
    void add(const Asked& asked) {
      requests += 1;
      tokens += asked.tokens;
    }
    bool below(const AdmissionLimits& limits) const {
      return (limits.requests == 0 || requests < limits.requests) &&
             (limits.tokens == 0 || tokens < limits.tokens);
    }
  };
  static constexpr const char* kPools[] = {"demo", "other"};
  static constexpr int64_t kKeyRequests = 2, kKeyWaiting = 5;
  Random random_;
  AdmissionOptions options_;
  Admission admission_;
  int64_t room_[2] = {3, 5};
  size_t queued_before_ = 0;
  TimePoint now_ = TimePoint(std::chrono::seconds(1));
  std::map<uint64_t, Asked> inside_, waiting_;
};

TEST(Admission, RandomUseLosesOrRepeatsNoAnswer) {
  for (uint64_t seed = 1; seed <= 2000 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Chance(seed).run();
  }
}

}  // namespace admission_chance_test
}  // namespace troupe::route

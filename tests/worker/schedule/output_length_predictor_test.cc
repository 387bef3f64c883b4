// How long answers get, learned a set at a time, and what admission gains by it.

#include "worker/schedule/output_length_predictor.h"

#include <cmath>
#include <cstdio>
#include <random>

#include "tests/worker/schedule/driver.h"
#include "worker/schedule/kv_forecast.h"

namespace troupe {
namespace output_lengths_test {

using namespace testing;

Hash128 set_of(uint64_t n) {
  return {9, n};
}

TEST(OutputLengthPredictor, LearnsLengthsPerSet) {
  OutputLengthPredictor lengths(8);
  EXPECT_EQ(lengths.predict(set_of(1), 0, 0.5), 0);
  std::mt19937_64 random(1);
  std::normal_distribution<double> noise(1, 0.1);
  for (int i = 0; i < 200; ++i) {
    for (uint64_t set = 1; set <= 3; ++set) {
      lengths.record(set_of(set),
                     static_cast<int32_t>(std::pow(10, static_cast<double>(set)) * noise(random)));
    }
  }
  for (uint64_t set = 1; set <= 3; ++set) {
    const double mean = std::pow(10, static_cast<double>(set));
    EXPECT_NEAR(lengths.predict(set_of(set), 0, 0.5) / mean, 1, 0.2) << set;
    EXPECT_GT(lengths.predict(set_of(set), 0, 0.9), mean);
  }
  EXPECT_NEAR(lengths.predict(set_of(77), 0, 0.5), 100, 30) << "an unknown set is taken for the average one";
}

TEST(OutputLengthPredictor, PredictsMoreThanWasEmitted) {
  OutputLengthPredictor lengths(8);
  for (int i = 0; i < 100; ++i) lengths.record({}, i < 90 ? 20 : 400);
  EXPECT_LE(lengths.predict({}, 0, 0.5), 24);
  EXPECT_GT(lengths.predict({}, 30, 0.5), 300);
  for (int emitted = 0; emitted < 5000; emitted += 7) {
    EXPECT_GT(lengths.predict({}, emitted, 0.5), emitted);
  }
}

TEST(OutputLengthPredictor, ForgetsOldAnswersAndLimitsSets) {
  OutputLengthPredictor lengths(4);
  for (int i = 0; i < 1000; ++i) lengths.record(set_of(1), 500);
  for (int i = 0; i < 300; ++i) lengths.record(set_of(1), 10);
  EXPECT_LT(lengths.predict(set_of(1), 0, 0.5), 20);
  for (uint64_t set = 2; set < 2000; ++set) lengths.record(set_of(set), 50);
  EXPECT_NEAR(lengths.predict(set_of(1), 0, 0.5), 50, 10) << "forgotten: the average set's";
  OutputLengthPredictor none(0);
  none.record(set_of(1), 30);
  EXPECT_NEAR(none.predict(set_of(1), 0, 0.5), 30, 8);
}

TEST(KvForecast, ReservesForThePeakNotTheSumOfEnds) {
  KvForecast forecast(16);
  EXPECT_EQ(forecast.reserve_count({.remaining_count = 160}), 11);  // its own growth, half a block rounded
  // One ends at once and gives 100 blocks back; another goes on for long.
  const std::vector<KvForecast::Request> running{{.remaining_count = 1, .own_count = 1600},
                                                 {.remaining_count = 800}};
  forecast.reset(running);
  EXPECT_LE(forecast.reserve_count({.remaining_count = 160}), 3) << "only until the first has ended";
  forecast.reset(std::span(running).last(1));
  EXPECT_EQ(forecast.reserve_count({.remaining_count = 160}), 21) << "the other grows beside it";
  forecast.add({.remaining_count = 1, .own_count = 1600});
  EXPECT_LE(forecast.reserve_count({.remaining_count = 160}), 3);
}

struct Outcome {
  int64_t preemptions = 0, steps = 0, computed = 0;
  double running = 0;  // mean
};

// Personas of short and of long answers, all with the same generous max_tokens, each asked by many at once.
Outcome serve_with(OutputReserve reserve) {
  SchedulerConfig config;
  config.block_count = 1200;
  config.max_num_seqs = 128;
  config.max_num_batched_tokens = 2048;
  config.max_model_len = 4096;
  config.output_reserve = reserve;
  Scheduler scheduler(config);
  std::mt19937_64 random(3);
  std::map<RequestId, int> lengths;
  const double means[] = {30, 120, 400};
  Outcome outcome;
  std::vector<RequestId> finished;
  std::vector<StepToken> tokens;
  RequestId next_id = 1;
  for (int wave = 0; wave < 12; ++wave) {
    const size_t set = static_cast<size_t>(wave % 3);
    for (int i = 0; i < 100; ++i, ++next_id) {
      NewRequest request;
      request.id = next_id;
      request.prompt = tokens_from(static_cast<TokenId>(next_id) * 1000, 120);
      request.max_new_count = 1500;
      request.spec.set = set_of(set + 1);
      lengths[next_id] = 1 + static_cast<int>(std::gamma_distribution<double>(4, means[set] / 4)(random));
      EXPECT_TRUE(scheduler.add(std::move(request)).ok());
    }
    while (true) {
      const Batch& batch = scheduler.plan(TimePoint{});
      if (batch.empty()) break;
      if (wave >= 3) ++outcome.steps;
      if (wave >= 3) outcome.running += scheduler.stats().running;
      tokens.clear();
      for (const BatchItem& item : batch.items) {
        if (item.samples) tokens.push_back({item.id, 7, item.sample_position + 1 >= lengths.at(item.id)});
      }
      scheduler.commit(tokens, TimePoint{}, finished);
    }
    // Without any known length a prediction is a guess: the first wave of each set does not count.
    if (wave == 2) outcome.preemptions = -scheduler.stats().preemptions_total;
    if (wave == 2) outcome.computed = -scheduler.stats().computed_tokens_total;
  }
  outcome.running /= static_cast<double>(outcome.steps);
  outcome.preemptions += scheduler.stats().preemptions_total;
  outcome.computed += scheduler.stats().computed_tokens_total;
  EXPECT_TRUE(scheduler.verify().ok()) << scheduler.verify();
  EXPECT_EQ(scheduler.stats().running + scheduler.stats().waiting, 0);
  return outcome;
}

TEST(OutputLengthPredictor, AdmissionByPredictionPreemptsRarelyAndWastesLittle) {
  const Outcome none = serve_with(OutputReserve::kNone);
  const Outcome predicted = serve_with(OutputReserve::kPredicted);
  const Outcome most = serve_with(OutputReserve::kMax);
  for (const auto& [name, o] :
       {std::pair{"one block each", none}, {"predicted", predicted}, {"max_tokens", most}}) {
    std::printf("reserve %-14s: %5ld preemptions, %6ld steps, %5.1f running, %8ld tokens computed\n", name,
                static_cast<long>(o.preemptions), static_cast<long>(o.steps), o.running,
                static_cast<long>(o.computed));
  }
  EXPECT_LE(predicted.preemptions, none.preemptions / 20);
  EXPECT_LT(predicted.computed, none.computed);
  EXPECT_LT(predicted.steps, 1.2 * static_cast<double>(none.steps));
  EXPECT_LT(predicted.steps, 0.5 * static_cast<double>(most.steps));
  EXPECT_EQ(most.preemptions, 0);
}

}  // namespace output_lengths_test
}  // namespace troupe

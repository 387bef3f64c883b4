// Counted decodes must give the same results as listed ones: two schedulers get the same random requests, and
// at every step everything that both report must be equal.

#include <gtest/gtest.h>

#include <random>

#include "tests/common/sanitized.h"
#include "worker/schedule/fast_forward.h"
#include "worker/schedule/scheduler.h"
#include "worker/schedule/step_time.h"

namespace troupe {
namespace counted_decodes {

class Twins {
 public:
  Twins(uint64_t seed, Batching batching)
      : random_(seed), config_(random_config(batching)), listed_(config_) {
    config_.simulation.count_decodes = true;
    counted_ = std::make_unique<Scheduler>(config_);
  }

  void run(int operation_count) {
    for (int i = 0; i < operation_count && !::testing::Test::HasFailure(); ++i) {
      const int choice = pick(0, 99);
      if (choice < 12) {
        add();
      } else if (choice < 14 && next_id_ > 1) {
        const RequestId id = static_cast<RequestId>(pick(1, static_cast<int>(next_id_) - 1));
        listed_.remove(id);
        counted_->remove(id);
      } else {
        step(choice < 17);
      }
      same_stats();
      ASSERT_TRUE(counted_->verify().ok()) << counted_->verify();
      ASSERT_TRUE(listed_.verify().ok()) << listed_.verify();
    }
  }

  int64_t counted_steps = 0, passed_steps = 0, finished_count = 0;
  const SchedulerStats& stats() const { return counted_->stats(); }

 private:
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  SchedulerConfig random_config(Batching batching) {
    const int32_t block_sizes[] = {1, 2, 4, 16};
    SchedulerConfig config;
    config.batching = batching;
    config.block_size = block_sizes[pick(0, 3)];
    config.block_count = pick(4, 60);
    config.max_num_seqs = pick(1, 12);
    config.max_num_batched_tokens = pick(1, 80);
    config.max_waiting = pick(1, 30);
    config.max_model_len = pick(20, 400);
    config.max_passes = pick(0, 4);
    config.enable_prefix_caching = pick(0, 9) > 0;
    config.output_reserve = static_cast<OutputReserve>(pick(0, 2));
    config.tpot_budget = std::chrono::microseconds(pick(0, 2) * 550);
    config.max_sets = pick(0, 3);
    config.simulation.name_blocks = pick(0, 1) == 0;
    return config;
  }

  // A persona's blocks, then a session's; some sessions go on.
  void add() {
    NewRequest request;
    request.id = next_id_++;
    const auto persona = static_cast<uint64_t>(pick(1, 4));
    const auto session = static_cast<uint64_t>(pick(1, 40));
    request.prompt_count = pick(1, 120);
    request.spec.prefix_count = pick(0, request.prompt_count);
    request.max_new_count = pick(1, 60);
    request.spec.background = config_.batching != Batching::kMerged && pick(0, 7) == 0;
    if (pick(0, 3) > 0) request.spec.set = {persona, 1};
    if (pick(0, 3) > 0) request.spec.session = {session, 2};
    const int32_t own = pick(0, request.prompt_count) / config_.block_size;
    const int32_t known = (request.prompt_count + pick(0, request.max_new_count)) / config_.block_size;
    for (int32_t i = 0; i < known; ++i) {
      const uint64_t depth = static_cast<uint64_t>(i);
      request.block_hashes.push_back(
          i < own ? Hash128{persona, 100 + depth}
                  : Hash128{session << 20 | persona << 10 | depth, static_cast<uint64_t>(1000 + own)});
    }
    const NewRequest copy = request;
    EXPECT_EQ(listed_.add(copy), counted_->add(std::move(request)));
  }

  void step(bool fails) {
    const Batch& a = listed_.plan(now_);
    const Batch& b = counted_->plan(now_);
    ASSERT_EQ(a.empty(), b.empty());
    if (a.empty()) return;
    same_batches(a, b);
    if (pick(0, 1) == 0) pass(a, b);
    const StepLoad load = step_load(b);
    now_ += Duration(1'000'000 + 1000 * load.prefill_tokens + 10'000 * load.decode_count);
    if (fails) {
      listed_.abandon();
      counted_->abandon();
      return;
    }
    counted_steps += b.counted_decodes > 0;
    listed_.commit(tokens_of(a), now_, finished_);
    std::vector<RequestId> finished;
    counted_->commit(tokens_of(b), now_, finished);
    EXPECT_EQ(finished, finished_);
    finished_count += static_cast<int64_t>(finished.size());
    same_changes();
  }

  // Several steps at once, and one by one.
  void pass(const Batch& a, const Batch& b) {
    const int64_t most = counted_->fast_forward().uneventful_steps();
    const int64_t steps = pick(0, static_cast<int>(std::min<int64_t>(most, 100)));
    counted_->fast_forward().pass(steps);
    for (int64_t i = 0; i < steps; ++i) {
      listed_.commit(tokens_of(a), now_, finished_);
      EXPECT_TRUE(finished_.empty());
      EXPECT_FALSE(listed_.residency().has_changes());
      listed_.plan(now_);
    }
    passed_steps += steps;
    EXPECT_EQ(counted_->fast_forward().uneventful_steps(), most - steps);
    same_stats();
    ASSERT_TRUE(counted_->verify().ok()) << counted_->verify();
    same_batches(a, b);
  }

  static bool decodes(const BatchItem& item) {
    return item.count == 1 && item.samples && item.sample_position > 0;
  }

  static std::vector<StepToken> tokens_of(const Batch& batch) {
    std::vector<StepToken> tokens;
    for (const BatchItem& item : batch.items) {
      if (item.samples) tokens.push_back({item.id, 0, false});
    }
    return tokens;
  }

  static void same_batches(const Batch& a, const Batch& b) {
    const StepLoad x = step_load(a), y = step_load(b);
    EXPECT_EQ(x.decode_count, y.decode_count);
    EXPECT_EQ(x.decode_context_tokens, y.decode_context_tokens);
    EXPECT_EQ(x.prefill_context_tokens, y.prefill_context_tokens);
    EXPECT_EQ(x.prefill_tokens, y.prefill_tokens);
    EXPECT_EQ(x.prefill_pairs, y.prefill_pairs);
    EXPECT_EQ(a.token_count, b.token_count);
    EXPECT_EQ(a.preempted, b.preempted);
    // The items that are missing are decodes; the others are equal and in the same order.
    const size_t skipped = a.items.size() - b.items.size();
    ASSERT_EQ(skipped, static_cast<size_t>(b.counted_decodes));
    for (size_t i = 0; i < a.items.size(); ++i) {
      if (i < skipped) {
        EXPECT_TRUE(decodes(a.items[i]));
        continue;
      }
      const BatchItem &one = a.items[i], &other = b.items[i - skipped];
      EXPECT_EQ(one.id, other.id);
      EXPECT_EQ(one.start, other.start);
      EXPECT_EQ(one.count, other.count);
      EXPECT_EQ(one.samples, other.samples);
      EXPECT_EQ(one.sample_position, other.sample_position);
      EXPECT_EQ(one.blocks.size(), other.blocks.size());  // which blocks depends on the order
    }
  }

  void same_stats() {
    const SchedulerStats &a = listed_.stats(), &b = counted_->stats();
    EXPECT_EQ(a.running, b.running);
    EXPECT_EQ(a.waiting, b.waiting);
    EXPECT_EQ(a.pending_prefill_tokens, b.pending_prefill_tokens);
    EXPECT_EQ(a.blocks_free, b.blocks_free);
    EXPECT_EQ(a.blocks_cached, b.blocks_cached);
    EXPECT_EQ(a.blocks_used, b.blocks_used);
    EXPECT_EQ(a.preemptions_total, b.preemptions_total);
    EXPECT_EQ(a.computed_tokens_total, b.computed_tokens_total);
    EXPECT_EQ(a.prefix_hit_tokens_total, b.prefix_hit_tokens_total);
    EXPECT_EQ(a.evicted_blocks_total, b.evicted_blocks_total);
    EXPECT_EQ(a.evicted_shared_blocks_total, b.evicted_shared_blocks_total);
    EXPECT_EQ(a.budget_limited_steps_total, b.budget_limited_steps_total);
  }

  void same_changes() {
    std::vector<Resident> a, b;
    listed_.residency().take_changes(a);
    counted_->residency().take_changes(b);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].kind, b[i].kind);
      EXPECT_EQ(a[i].name, b[i].name);
      EXPECT_EQ(a[i].tokens, b[i].tokens);
      EXPECT_EQ(a[i].grew, b[i].grew);
    }
  }

  std::mt19937_64 random_;
  SchedulerConfig config_;
  Scheduler listed_;
  std::unique_ptr<Scheduler> counted_;
  std::vector<RequestId> finished_;
  RequestId next_id_ = 1;
  TimePoint now_{};
};

TEST(CountedDecodes, EqualListedDecodesInMergedSteps) {
  int64_t steps = 0, passed = 0, finished = 0, preempted = 0, evicted = 0, limited = 0;
  for (int64_t seed = 1; seed <= eighth_if_sanitized(400) && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Twins twins(static_cast<uint64_t>(seed), Batching::kMerged);
    twins.run(300);
    steps += twins.counted_steps;
    passed += twins.passed_steps;
    finished += twins.finished_count;
    preempted += twins.stats().preemptions_total;
    evicted += twins.stats().evicted_blocks_total;
    limited += twins.stats().budget_limited_steps_total;
  }
  // The seeds reach the cases in which the two could differ.
  EXPECT_GT(steps, least_of_eighth(10'000));
  EXPECT_GT(passed, least_of_eighth(3'000));
  EXPECT_GT(finished, least_of_eighth(1'000));
  EXPECT_GT(preempted, least_of_eighth(100));
  EXPECT_GT(evicted, least_of_eighth(1'000));
  EXPECT_GT(limited, least_of_eighth(10));
}

TEST(CountedDecodes, EqualListedDecodesInOtherBatchings) {
  for (const Batching batching : {Batching::kSeparate, Batching::kStatic}) {
    int64_t passed = 0, preempted = 0, finished = 0;
    for (int64_t seed = 1; seed <= eighth_if_sanitized(400) && !HasFailure(); ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      Twins twins(static_cast<uint64_t>(seed), batching);
      twins.run(300);
      passed += twins.passed_steps;
      finished += twins.finished_count;
      preempted += twins.stats().preemptions_total;
    }
    EXPECT_GT(passed, least_of_eighth(3'000));
    EXPECT_GT(finished, least_of_eighth(1'000));
    EXPECT_GT(preempted, least_of_eighth(100));
  }
}

}  // namespace counted_decodes
}  // namespace troupe

#include "worker/model/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/worker/model/demo_model.h"
#include "tests/worker/model/tiny_model.h"
#include "worker/model/warm_up.h"

namespace troupe {
namespace runner_test {

using testing::HasSubstr;

// A tiny model on ref: 4 blocks of 4 tokens, steps of 6 tokens and 2 requests, 12 positions.
class Runner : public testing::Test {
 protected:
  Runner() {
    TinyModel().write(dir_);
    options_.model_dir = dir_.path();
    options_.backend = "ref";
    options_.block_size = 4;
    options_.kv_cache_tokens = 19;
    options_.max_batched_tokens = 6;
    options_.max_num_seqs = 2;
    options_.max_model_len = 12;
    auto loaded = ModelRunner::load(options_);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    if (loaded.ok()) runner_ = std::move(*loaded);
  }

  std::string load_error(const std::function<void(RunnerOptions&)>& edit) const {
    RunnerOptions options = options_;
    edit(options);
    const auto loaded = ModelRunner::load(options);
    return loaded.ok() ? "loaded" : std::string(loaded.status().message());
  }

  std::string run_error(const std::vector<BatchItem>& items) {
    Batch batch;
    batch.items = items;
    std::vector<SampleRow> draws;
    for (const BatchItem& item : items) {
      if (item.samples) draws.emplace_back();
    }
    return run_error(batch, draws);
  }
  std::string run_error(const Batch& batch, const std::vector<SampleRow>& draws) {
    const auto output = runner_->run(batch, {draws, {}});
    return output.ok() ? "ran" : std::string(output.status().message());
  }

  TempDir dir_;
  RunnerOptions options_;
  std::unique_ptr<ModelRunner> runner_;
};

TEST_F(Runner, DescribesItsMemory) {
  EXPECT_EQ(runner_->block_count(), 4);  // 19 tokens are 4 whole blocks
  EXPECT_EQ(runner_->max_model_len(), 12);
  EXPECT_EQ(runner_->config().layers, 2);
  EXPECT_THAT(runner_->description(), HasSubstr("LlamaForCausalLM"));
  EXPECT_THAT(runner_->description(), HasSubstr("KV 4 blocks of 4 tokens"));
}

TEST_F(Runner, RefusesImpossibleOptions) {
  EXPECT_THAT(load_error([](RunnerOptions& o) { o.max_model_len = 33; }), HasSubstr("max_model_len 33"));
  EXPECT_THAT(load_error([](RunnerOptions& o) { o.kv_cache_tokens = 3; }), HasSubstr("kv_cache_tokens 3"));
  EXPECT_THAT(load_error([](RunnerOptions& o) { o.kv_cache_tokens = std::numeric_limits<int64_t>::max(); }),
              HasSubstr("kv_cache_tokens 9223372036854775807"));
  EXPECT_THAT(load_error([](RunnerOptions& o) { o.block_size = 0; }), HasSubstr("block_size 0"));
  EXPECT_THAT(load_error([](RunnerOptions& o) { o.max_num_seqs = 0; }), HasSubstr("max_num_seqs 0"));
  EXPECT_THAT(load_error([](RunnerOptions& o) { o.max_batched_tokens = 0; }),
              HasSubstr("max_num_batched_tokens 0"));
  EXPECT_THAT(load_error([](RunnerOptions& o) { o.backend = "abacus"; }), HasSubstr("abacus"));
}

TEST_F(Runner, RefusesBatchesOutOfBounds) {
  const std::vector<TokenId> ids{1, 2, 3, 4, 5, 6, 7};
  const std::vector<BlockId> blocks{0, 1, 2, 3};
  const std::span<const TokenId> some(ids);
  const auto item = [&](std::span<const TokenId> with, int32_t start) {
    return BatchItem{.id = 9, .ids = with, .start = start, .samples = true, .blocks = blocks};
  };
  EXPECT_EQ(run_error({item(some.first(6), 0)}), "ran");
  EXPECT_THAT(run_error({}), HasSubstr("batch of 0 items"));
  EXPECT_THAT(run_error({item(some.first(1), 0), item(some.first(1), 0), item(some.first(1), 0)}),
              HasSubstr("batch of 3 items"));
  EXPECT_THAT(run_error({item(some.first(7), 0)}), HasSubstr("batch of 7 tokens"));
  EXPECT_THAT(run_error({item(some.first(0), 0)}), HasSubstr("request 9: has no ids"));
  EXPECT_THAT(run_error({item(some.first(1), -1)}), HasSubstr("request 9"));
  EXPECT_THAT(run_error({item(some.first(2), 11)}), HasSubstr("13 tokens, but max_model_len is 12"));
  EXPECT_THAT(run_error({item(some.first(1), std::numeric_limits<int32_t>::max())}),
              HasSubstr("max_model_len"));

  BatchItem bad = item(some.first(5), 0);
  bad.blocks = std::span(blocks).first(1);
  EXPECT_THAT(run_error({bad}), HasSubstr("1 blocks, but 2 are needed"));
  for (const BlockId block : {-1, 4}) {
    const std::vector<BlockId> outside{block};
    bad = item(some.first(2), 0);
    bad.blocks = outside;
    EXPECT_THAT(run_error({bad}), HasSubstr("block " + std::to_string(block) + " is not in [0, 4)"));
  }
  for (const TokenId id : {-9, 12}) {
    const std::vector<TokenId> outside{id};
    EXPECT_THAT(run_error({item(outside, 0)}), HasSubstr("token id " + std::to_string(id) + " is not in"));
  }
}

TEST_F(Runner, ReturnsLogitsOnlyOfItemsThatSample) {
  Lane a = make_lane({1, 2, 3, 4}, 0, 4);
  Lane b = make_lane({5, 6, 7}, 1, 4);
  EXPECT_TRUE(run_step(*runner_, {take(a, 3, false)}).empty());
  const std::vector<Logits> rows = run_step(*runner_, {take(a, 1, false), take(b, 3, true)});
  ASSERT_EQ(rows.size(), 1u);
  Lane alone = make_lane({5, 6, 7}, 3, 4);
  EXPECT_EQ(rows.front(), feed(*runner_, alone, 3, 6));
}

TEST_F(Runner, ScatteredBlocksFormTheSameContext) {
  const std::vector<TokenId> ids{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8};
  Lane straight = make_lane(ids, 0, 4);
  const Logits expected = feed(*runner_, straight, 12, 6);
  Lane scattered = make_lane(ids, 0, 4);
  scattered.blocks = {3, 0, 2};
  EXPECT_EQ(feed(*runner_, scattered, 12, 5), expected);
  Lane other = make_lane({3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 6, 8}, 0, 4);
  EXPECT_NE(feed(*runner_, other, 12, 6), expected);
}

TEST_F(Runner, ContinuesInTheCopyOfAPartlyFilledBlock) {
  Lane first = make_lane({3, 1, 4, 1, 5, 9, 2}, 0, 4);  // blocks 0, 1; three tokens in the second
  feed(*runner_, first, 7, 6);
  const std::vector<TokenId> ids{3, 1, 4, 1, 5, 9, 8, 7};  // shares two of the three
  Lane other = make_lane(ids, 2, 4);
  const Logits expected = feed(*runner_, other, 8, 6);
  Lane copied = make_lane(ids, 0, 4);
  copied.blocks = {0, 3};
  copied.computed = 6;
  Batch batch;
  batch.items = {take(copied, 2, true)};
  batch.copies = {{1, 3}};
  EXPECT_EQ(run_step(*runner_, batch).front(), expected);
  for (const KvCopy bad : {KvCopy{0, 4}, KvCopy{-1, 0}, KvCopy{2, 2}}) {
    batch.copies = {bad};
    EXPECT_THAT(run_error(batch, {}), HasSubstr("must be two blocks"));
  }
}

TEST_F(Runner, WarmUpChangesNoAnswer) {
  const std::vector<TokenId> ids{3, 1, 4, 1, 5, 9, 2, 6, 5};
  Lane cold = make_lane(ids, 0, 4);
  const Logits expected = feed(*runner_, cold, 9, 6);
  for (const auto& [kv_cache_tokens, max_num_seqs] : {std::pair(19, 2), std::pair(4, 6), std::pair(400, 1)}) {
    options_.kv_cache_tokens = kv_cache_tokens;
    options_.max_num_seqs = max_num_seqs;
    const auto runner = ModelRunner::load(options_);
    ASSERT_TRUE(runner.ok()) << runner.status();
    const Status warmed = warm_up(**runner, options_);
    ASSERT_TRUE(warmed.ok()) << warmed;
    EXPECT_TRUE((*runner)->save_tuning().ok());
    if (kv_cache_tokens < 12) continue;
    Lane lane = make_lane(ids, 0, 4);
    EXPECT_EQ(feed(**runner, lane, 9, 6), expected);
  }
}

TEST_F(Runner, LogprobsRefusesInputThatDoesNotFit) {
  EXPECT_EQ(runner_->logprobs(std::vector<TokenId>{1}).value().size(), 0u);
  EXPECT_EQ(runner_->logprobs(std::vector<TokenId>(12, 1)).value().size(), 11u);
  EXPECT_THAT(std::string(runner_->logprobs(std::vector<TokenId>(13, 1)).status().message()),
              HasSubstr("13 ids; must be in [1, 12]"));
  EXPECT_FALSE(runner_->logprobs({}).ok());
  EXPECT_FALSE(runner_->logprobs(std::vector<TokenId>{1, 12}).ok());
  EXPECT_FALSE(runner_->logprobs(std::vector<TokenId>{12, 1}).ok());
  // One more than a step: the last id is in no chunk, but it indexes the logits.
  EXPECT_FALSE(runner_->logprobs(std::vector<TokenId>{1, 2, 3, 4, 5, 6, 12}).ok());
}

}  // namespace runner_test
}  // namespace troupe

// Steps launched before the one before is collected: ids and penalties of tokens known only to the device.
// Random weights, so that it also runs on a machine with a GPU and nothing else (tests/gpu/run.sh).

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "tests/common/sanitized.h"
#include "tests/common/temp_dir.h"
#include "tests/worker/model/made_up_model.h"
#include "worker/model/logit_adjuster.h"
#include "worker/model/runner.h"

namespace troupe {
namespace ahead_test {

#ifdef TROUPE_GPU_TEST
const std::vector<std::string> kBackends{"cuda"};
#else
const std::vector<std::string> kBackends{"ref", "cpu", EMULATED_MODULE};
#endif
constexpr int kSteps = 6;
constexpr int kLanes = 4;
constexpr int32_t kBlocksEach = 2;

std::unique_ptr<ModelRunner> load(const std::string& backend, bool graphs = true, bool overlaps = true) {
  const TempDir dir;
  dir.write("config.json", kMadeUpModel);
  RunnerOptions options;
  options.model_dir = dir.path();
  options.load_format = LoadFormat::kDummy;
  options.backend = backend;
  options.dtype = DType::kBFloat16;
  options.kv_cache_tokens = kLanes * kBlocksEach * options.block_size;
  options.cuda.graphs = graphs;
  options.cuda.overlaps = overlaps;
  auto runner = ModelRunner::load(options);
  EXPECT_TRUE(runner.ok()) << runner.status();
  return runner.ok() ? std::move(*runner) : nullptr;
}

// One greedy; one drawn; two drawn under penalties, which change with every token, of which one by a chain of
// samplers.
SamplingParams sampling_of(int lane) {
  if (lane == 0) return {.temperature = 0};
  SamplingParams params{.temperature = 2.0f, .top_p = 0.95f, .seed = 5};
  if (lane == 3) {
    SamplerChain& chain = params.chain.emplace();
    chain.xtc_probability = 0.5f;
    chain.smoothing_factor = 0.2f;
  }
  if (lane >= 2) params.repetition_penalty = 1.5f, params.presence_penalty = 1, params.frequency_penalty = 2;
  return params;
}

class Answers {
 public:
  explicit Answers(ModelRunner& runner) : runner_(runner) {
    for (int lane = 0; lane < kLanes; ++lane) {
      Answer& answer = answers_.emplace_back();
      for (TokenId i = 0; i < 5 + lane; ++i) answer.ids.push_back(300 + 17 * i + lane);
      for (BlockId i = 0; i < kBlocksEach; ++i) answer.blocks.push_back(lane * kBlocksEach + i);
      answer.sampling = sampling_of(lane);
      answer.adjuster = LogitAdjuster::make(answer.sampling, answer.ids);
    }
  }

  std::vector<std::vector<TokenId>> waiting() {
    for (int step = 0; step < kSteps; ++step) {
      launch(step);
      collect();
    }
    return ids();
  }
  std::vector<std::vector<TokenId>> ahead() {
    launch(0);
    for (int step = 1; step < kSteps; ++step) {
      launch(step);
      collect();
    }
    collect();
    return ids();
  }

 private:
  struct Answer {
    std::vector<TokenId> ids;
    std::vector<BlockId> blocks;
    int32_t computed = 0;
    int32_t place = -1;  // row of its token in the last, uncollected step
    SamplingParams sampling;
    std::unique_ptr<LogitAdjuster> adjuster;
  };

  void launch(int step) {
    Batch batch;
    std::vector<SampleRow> draws;
    std::vector<size_t> lanes;
    std::deque<std::vector<TokenId>> unknown;
    for (int i = 0; i < kLanes; ++i) {
      const auto lane = static_cast<size_t>((i + step) % kLanes);  // the rows change from step to step
      Answer& answer = answers_[lane];
      BatchItem& item = batch.items.emplace_back();
      item.blocks = answer.blocks;
      item.start = answer.computed;
      item.samples = true;
      item.ids = std::span<const TokenId>(answer.ids).subspan(static_cast<size_t>(answer.computed));
      if (answer.place >= 0) item.ids = unknown.emplace_back(1, -1 - answer.place);
      item.count = static_cast<int32_t>(item.ids.size());
      answer.computed += item.count;
      SampleRow& row = draws.emplace_back();
      row.draw = draw_params(answer.sampling, static_cast<uint64_t>(step));
      if (answer.sampling.chain) row.chain = &*answer.sampling.chain;
      if (answer.adjuster != nullptr) {
        row.penalties = answer.adjuster->penalties();
        row.edits = answer.adjuster->edits(static_cast<uint64_t>(step));
        row.last_drawn = answer.place;
      }
      lanes.push_back(lane);
    }
    const Status status = runner_.launch(batch, {draws, {}});
    ASSERT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < lanes.size(); ++i) answers_[lanes[i]].place = static_cast<int32_t>(i);
    under_way_.push_back(std::move(lanes));
  }

  void collect() {
    const StepOutput output = runner_.collect();
    const std::vector<size_t> lanes = std::move(under_way_.front());
    under_way_.pop_front();
    ASSERT_EQ(output.tokens.size(), lanes.size());
    for (size_t i = 0; i < lanes.size(); ++i) {
      Answer& answer = answers_[lanes[i]];
      answer.ids.push_back(output.tokens[i]);
      if (answer.adjuster != nullptr) answer.adjuster->add_emitted(output.tokens[i]);
      if (under_way_.empty()) answer.place = -1;
    }
  }

  std::vector<std::vector<TokenId>> ids() const {
    std::vector<std::vector<TokenId>> all;
    for (const Answer& answer : answers_) all.push_back(answer.ids);
    return all;
  }

  ModelRunner& runner_;
  std::vector<Answer> answers_;
  std::deque<std::vector<size_t>> under_way_;
};

TEST(RunnerAhead, DrawsTheSameTokens) {
  for (const std::string& backend : kBackends) {
    const auto runner = load(backend);
    ASSERT_NE(runner, nullptr);
    EXPECT_EQ(runner->runs_ahead(), backend != "ref" && backend != "cpu");
    const auto waiting = Answers(*runner).waiting();
    EXPECT_EQ(Answers(*runner).ahead(), waiting) << backend;
    if (!runner->runs_ahead() || kSanitized) continue;
    const auto eager = load(backend, /*graphs=*/false);
    ASSERT_NE(eager, nullptr);
    EXPECT_EQ(Answers(*eager).ahead(), waiting) << backend << ", kernels launched one by one";
    const auto apart = load(backend, /*graphs=*/true, /*overlaps=*/false);
    ASSERT_NE(apart, nullptr);
    EXPECT_EQ(Answers(*apart).ahead(), waiting) << backend << ", each when the one before it has ended";
  }
}

TEST(RunnerAhead, RefusesIdOfNoRowAndThirdStep) {
  const auto runner = load(kBackends.back());
  ASSERT_NE(runner, nullptr);
  const std::vector<TokenId> prompt{1, 2, 3}, unknown{-2};
  const std::vector<BlockId> blocks{0};
  const SampleRow draw{.draw = {.temperature = 0}};
  const auto launch = [&](const std::vector<TokenId>& ids, int32_t start) {
    Batch batch;
    BatchItem& item = batch.items.emplace_back();
    item.ids = ids;
    item.start = start;
    item.samples = true;
    item.blocks = blocks;
    return runner->launch(batch, {{&draw, 1}, {}});
  };
  EXPECT_FALSE(launch({-1}, 0).ok()) << "nothing was drawn yet";
  ASSERT_TRUE(launch(prompt, 0).ok());
  const Status beyond = launch(unknown, 3);
  EXPECT_NE(beyond.message().find("token id -2"), std::string::npos) << beyond;
  ASSERT_TRUE(launch({-1}, 3).ok());
  const Status third = launch({-1}, 4);
  EXPECT_NE(third.message().find("two steps are under way"), std::string::npos) << third;
  runner->collect();
  EXPECT_TRUE(launch({-1}, 4).ok());
}

}  // namespace ahead_test
}  // namespace troupe

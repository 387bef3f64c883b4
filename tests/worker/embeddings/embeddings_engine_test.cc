// Vectors of the demo model through the engine: those of its oracle (tests/fixtures/embedding_golden.py), and
// the same whatever was cached, however the prompt was cut into steps, and what else was in them.

#include <gtest/gtest.h>

#include <cmath>
#include <deque>

#include "tests/worker/engine_harness.h"
#include "tests/worker/model/demo_model.h"
#include "worker/model/runner.h"

namespace troupe::embeddings_engine_test {

using testing::Collector;

constexpr double kTolerance = 1e-4;

struct Case {
  std::vector<TokenId> prompt;
  std::vector<double> last, mean;
};

std::vector<Case> read_cases() {
  std::vector<Case> cases;
  const auto json = read_json_file(TROUPE_SOURCE_DIR "/tests/fixtures/embedding_golden.json");
  EXPECT_TRUE(json.ok()) << json.status();
  if (!json.ok()) return cases;
  for (const bj::value& item : json->as_array()) {
    Case& one = cases.emplace_back();
    for (const bj::value& id : item.at("prompt_ids").as_array())
      one.prompt.push_back(id.to_number<TokenId>());
    for (const bj::value& value : item.at("last").as_array()) one.last.push_back(value.to_number<double>());
    for (const bj::value& value : item.at("mean").as_array()) one.mean.push_back(value.to_number<double>());
  }
  EXPECT_EQ(cases.size(), 4u);
  return cases;
}

struct DemoEngine {
  // `step_tokens`: of a step at most, so that prompts are cut.
  explicit DemoEngine(const std::string& backend, int32_t step_tokens = 512) {
    RunnerOptions model = demo_options(backend);
    model.max_num_seqs = 8;
    model.max_batched_tokens = step_tokens;
    auto runner = ModelRunner::load(model);
    EXPECT_TRUE(runner.ok()) << runner.status();
    Engine::Options options;
    options.scheduler.block_count = (*runner)->block_count();
    options.scheduler.max_model_len = (*runner)->max_model_len();
    options.scheduler.max_num_seqs = model.max_num_seqs;
    options.scheduler.max_num_batched_tokens = step_tokens;
    options.model_name = "demo";
    engine = std::make_unique<Engine>(std::make_unique<ModelStepRunner>(*std::move(runner), false),
                                      tokenizer.get(), options, metrics, log);
    engine->start();
  }

  void submit(const std::vector<TokenId>& prompt, PoolingParams params, Collector& out) const {
    EngineRequest request;
    request.prompt = prompt;
    request.prompt_only = true;
    request.pooling = params;
    ASSERT_TRUE(engine->submit(std::move(request), out.sink()).ok());
  }
  EngineOutput ask(const std::vector<TokenId>& prompt, PoolingParams params) const {
    Collector out;
    submit(prompt, params, out);
    EXPECT_TRUE(out.wait_end());
    EXPECT_TRUE(out.last().error.ok()) << out.last().error;
    return out.last();
  }

  std::unique_ptr<Tokenizer> tokenizer = testing::EngineHarness::load_tokenizer();
  Metrics metrics;
  Logger log{LogLevel::kError, -1};
  std::unique_ptr<Engine> engine;
};

void expect_near(const std::vector<float>& ours, const std::vector<double>& theirs, const std::string& what) {
  ASSERT_EQ(ours.size(), theirs.size()) << what;
  double worst = 0;
  for (size_t i = 0; i < ours.size(); ++i) worst = std::max(worst, std::fabs(ours[i] - theirs[i]));
  EXPECT_LE(worst, kTolerance) << what;
}

TEST(Embeddings, AreTheOraclesHiddenStates) {
  const std::vector<Case> cases = read_cases();
  for (const auto& [backend, count] : {std::pair<std::string, size_t>{"cpu", 4}, {"ref", 1}}) {
    const DemoEngine demo(backend);
    for (size_t c = 0; c < std::min(count, cases.size()); ++c) {
      const std::string what = backend + ", case " + std::to_string(c);
      expect_near(demo.ask(cases[c].prompt, {Pooling::kLast, false}).pooled, cases[c].last, what);
      expect_near(demo.ask(cases[c].prompt, {Pooling::kMean, false}).pooled, cases[c].mean, what);
    }
  }
}

TEST(Embeddings, AreTheSameColdCachedCutAndInABatch) {
  const std::vector<Case> cases = read_cases();
  const DemoEngine whole("cpu"), cut("cpu", /*step_tokens=*/24);
  for (const Pooling pooling : {Pooling::kLast, Pooling::kMean}) {
    const PoolingParams params{pooling, true};
    std::vector<std::vector<float>> cold;
    for (const Case& one : cases) cold.push_back(whole.ask(one.prompt, params).pooled);
    std::deque<Collector> outs;
    for (const Case& one : cases) cut.submit(one.prompt, params, outs.emplace_back());
    for (size_t c = 0; c < cases.size(); ++c) {
      const EngineOutput hit = whole.ask(cases[c].prompt, params);
      EXPECT_EQ(hit.usage.cached_tokens > 0, pooling == Pooling::kLast) << "the mean needs every row";
      EXPECT_EQ(hit.usage.prompt_tokens, static_cast<int64_t>(cases[c].prompt.size()));
      EXPECT_EQ(hit.usage.completion_tokens, 0);
      ASSERT_TRUE(outs[c].wait_end());
      const std::vector<float> batched = outs[c].last().pooled;
      ASSERT_EQ(hit.pooled.size(), cold[c].size());
      ASSERT_EQ(batched.size(), cold[c].size());
      double length = 0;
      for (size_t i = 0; i < cold[c].size(); ++i) {
        EXPECT_NEAR(hit.pooled[i], cold[c][i], 1e-5) << c << " " << i;
        EXPECT_NEAR(batched[i], cold[c][i], 1e-5) << c << " " << i;
        length += double{cold[c][i]} * double{cold[c][i]};
      }
      EXPECT_NEAR(length, 1, 1e-5);
    }
  }
}

// Rows are pooled beside answers whose log-probabilities are told, and neither changes the other.
TEST(Embeddings, StandBesideScoredAnswers) {
  const std::vector<Case> cases = read_cases();
  const DemoEngine demo("cpu", /*step_tokens=*/48);
  Collector answer, mean, last;
  EngineRequest request;
  request.prompt = cases[2].prompt;
  request.max_new_count = 8;
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  request.logprobs = 0;
  request.prompt_logprobs = true;
  ASSERT_TRUE(demo.engine->submit(std::move(request), answer.sink()).ok());
  demo.submit(cases[0].prompt, {Pooling::kMean, false}, mean);
  demo.submit(cases[1].prompt, {Pooling::kLast, false}, last);
  ASSERT_TRUE(answer.wait_end() && mean.wait_end() && last.wait_end());
  expect_near(mean.last().pooled, cases[0].mean, "mean");
  expect_near(last.last().pooled, cases[1].last, "last");
  EXPECT_EQ(answer.ids().size(), 8u);
  EXPECT_EQ(answer.prompt_logprobs().size(), cases[2].prompt.size());
  EXPECT_TRUE(answer.last().pooled.empty());
}

}  // namespace troupe::embeddings_engine_test

// The whole worker short of HTTP on the demo model: prompts in, Transformers' greedy tokens out,
// whatever else is in the batch, cold or from the prefix cache, and with a KV memory so small that
// requests are preempted.

#include <gtest/gtest.h>

#include <deque>

#include "tests/common/sanitized.h"
#include "tests/worker/engine_harness.h"
#include "tests/worker/model/demo_model.h"

namespace troupe {
namespace engine_golden_test {

using testing::Collector;

// Closer than this, rounding may choose the other token (and all after it).
constexpr double kNearTie = 0.1;
// Sanitizers make this up to a hundred times slower and check other things than numbers: the shortest
// prompts suffice, and few tokens: threads meet in them as in many, and memory is used alike.
constexpr size_t kGoldenCases = kSanitized ? 12 : 60, kPreemptedCases = kSanitized ? 8 : 24;
// Where there is time, longer than the golden answers, so that generation continues past their end: more
// blocks, more preemption.
constexpr int32_t kNewCount = kSanitized ? 32 : 48;
// (72 blocks of 16: six of the eight prompts take 67, and their answers 12 more.)
constexpr int32_t kTinyCacheTokens = kSanitized ? 1152 : 1536;

struct DemoEngine {
  DemoEngine(int64_t kv_cache_tokens, bool runs_ahead) {
    RunnerOptions model_options = demo_options("cpu", kv_cache_tokens);
    model_options.max_num_seqs = 32;
    auto runner = ModelRunner::load(model_options);
    EXPECT_TRUE(runner.ok()) << runner.status();
    if (!runner.ok()) return;
    Engine::Options options;
    options.scheduler.block_count = (*runner)->block_count();
    options.scheduler.max_model_len = (*runner)->max_model_len();
    options.scheduler.max_num_seqs = 32;
    options.scheduler.max_num_batched_tokens = model_options.max_batched_tokens;
    options.scheduler.output_reserve = OutputReserve::kNone;  // so that few blocks run out
    options.model_name = "demo";
    options.eos_token_ids = (*runner)->config().eos_token_ids;
    engine = std::make_unique<Engine>(std::make_unique<ModelStepRunner>(*std::move(runner), runs_ahead),
                                      tokenizer.get(), options, metrics, log);
    engine->start();
  }

  // Submits all of [first, end) at once and returns their answers.
  struct Answer {
    std::vector<TokenId> ids;
    std::string text;
    int64_t cached_tokens = 0;
  };
  std::vector<Answer> ask(size_t first, size_t end) {
    std::deque<Collector> outs;
    for (size_t c = first; c < end; ++c) {
      EngineRequest request;
      request.prompt = golden_cases()[c].prompt;
      request.max_new_count = kNewCount;
      request.sampling.temperature = 0;
      request.ignore_eos = true;
      const auto id = engine->submit(request, outs.emplace_back().sink());
      EXPECT_TRUE(id.ok()) << id.status();
    }
    std::vector<Answer> answers;
    for (Collector& out : outs) {
      EXPECT_TRUE(out.wait_end() && out.last().error.ok()) << out.last().error;
      answers.push_back({out.ids(), out.text(), out.last().usage.cached_tokens});
    }
    return answers;
  }

  // Declared before the engine: they outlive it.
  std::unique_ptr<Tokenizer> tokenizer = testing::EngineHarness::load_tokenizer();
  Metrics metrics;
  Logger log{LogLevel::kError};
  std::unique_ptr<Engine> engine;
};

// Number of steps that can be compared exactly: those before the first near-tie.
size_t comparable_count(const GoldenCase& golden) {
  size_t count = 0;
  while (count < golden.output.size() && golden.gaps[count] >= kNearTie) ++count;
  return count;
}

void expect_golden(const GoldenCase& golden, const std::vector<TokenId>& ids, size_t case_index) {
  ASSERT_EQ(ids.size(), static_cast<size_t>(kNewCount)) << "case " << case_index;
  for (size_t i = 0; i < std::min(comparable_count(golden), ids.size()); ++i) {
    ASSERT_EQ(ids[i], golden.output[i]) << "case " << case_index << ", token " << i;
  }
}

// Counts all but the last token, whose logits are needed, and a rest of a block too short to copy.
int64_t cached_when_asked_again(size_t prompt_count) {
  constexpr size_t kBlockSize = 16;
  const size_t rest = (prompt_count - 1) % kBlockSize;
  return static_cast<int64_t>(prompt_count - 1 - (rest < kBlockSize / 4 ? rest : 0));
}

TEST(EngineGolden, ConcurrentColdAndCachedAnswersEqualTransformers) {
  ASSERT_EQ(golden_cases().size(), 60u);
  DemoEngine demo(24 * 1024, /*runs_ahead=*/false);
  ASSERT_NE(demo.engine, nullptr);
  size_t compared = 0;
  constexpr size_t kGroup = 12;  // as many as the KV memory keeps until they are sent again
  for (size_t first = 0; first < kGoldenCases; first += kGroup) {
    const auto cold = demo.ask(first, first + kGroup);
    const auto hit = demo.ask(first, first + kGroup);
    for (size_t i = 0; i < kGroup; ++i) {
      const GoldenCase& golden = golden_cases()[first + i];
      expect_golden(golden, cold[i].ids, first + i);
      EXPECT_EQ(hit[i].ids, cold[i].ids) << "case " << first + i << ": a hit differs from cold";
      EXPECT_EQ(hit[i].text, demo.tokenizer->decode(hit[i].ids, true));
      EXPECT_EQ(hit[i].cached_tokens, cached_when_asked_again(golden.prompt.size()));
      compared += comparable_count(golden);
    }
  }
  EXPECT_GT(compared, 3 * kGoldenCases);  // enough steps are compared despite near-ties
}

TEST(EngineGolden, PreemptionBatchingAndRunningAheadDoNotChangeAToken) {
  constexpr size_t kCases = kPreemptedCases;
  DemoEngine roomy(16 * 1024, /*runs_ahead=*/false);
  DemoEngine tiny(kTinyCacheTokens, /*runs_ahead=*/true);
  ASSERT_TRUE(roomy.engine != nullptr && tiny.engine != nullptr);
  std::vector<std::vector<TokenId>> alone;
  for (size_t c = 0; c < kCases; ++c) alone.push_back(roomy.ask(c, c + 1).front().ids);
  const auto together = tiny.ask(0, kCases);
  for (size_t c = 0; c < kCases; ++c) {
    expect_golden(golden_cases()[c], together[c].ids, c);
    EXPECT_EQ(together[c].ids, alone[c]) << "case " << c;
  }
  const std::string text = tiny.metrics.text();
  EXPECT_EQ(text.find("vllm:num_preemptions_total{engine=\"0\",model_name=\"demo\"} 0\n"), std::string::npos)
      << "nothing was preempted: the test shows less than it says";
}

}  // namespace engine_golden_test
}  // namespace troupe

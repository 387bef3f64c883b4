// Compares the demo model with Transformers (float32, CPU), and with itself: an answer must not depend on
// what was cached, how the prompt was cut, or what else is in the batch.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/common/sanitized.h"
#include "tests/common/temp_dir.h"
#include "tests/worker/model/demo_model.h"
#include "worker/model/load/safetensors.h"
#include "worker/model/log_softmax.h"
#include "worker/model/sampler.h"

namespace troupe {
namespace golden_test {

// float32 against float32 of another library over 8 layers: differences of 1e-5 occur, 1e-3 is the limit.
constexpr double kLogprobTolerance = 1e-3;
// Limit between runs of the same library on the same inputs, cut differently.
constexpr double kOwnTolerance = 1e-4;
// Closer than this, rounding may choose the other token.
constexpr double kNearTie = 0.1;

struct Setup {
  std::string backend;
  size_t case_count;  // ref takes a second for each of the shortest
};

// Results of each case alone: cold, and again with the first part of its blocks kept.
struct Answers {
  std::vector<std::vector<Logits>> cold;
  std::vector<std::vector<Logits>> hit;
};

std::unique_ptr<ModelRunner> load(const RunnerOptions& options) {
  auto runner = ModelRunner::load(options);
  EXPECT_TRUE(runner.ok()) << runner.status();
  return runner.ok() ? std::move(*runner) : nullptr;
}

Answers compute_answers(const Setup& setup) {
  Answers answers;
  const auto runner = load(demo_options(setup.backend));
  if (runner == nullptr) return answers;
  for (size_t c = 0; c < setup.case_count; ++c) {
    const GoldenCase& golden = golden_cases()[c];
    Lane cold = make_lane(golden.all_ids(), 0);
    answers.cold.push_back(answer(*runner, cold, golden, 512));
    // A hit as the prefix cache makes it: full blocks of the prompt are shared, the rest is new. The shared
    // part differs for each case, up to all but the last token.
    const auto full = static_cast<int32_t>((golden.prompt.size() - 1) / 16);
    const int32_t shared = c % 2 == 0 ? full : std::max<int32_t>(1, full - static_cast<int32_t>(c % 9));
    Lane hit = make_lane(golden.all_ids(), 128);
    std::copy_n(cold.blocks.begin(), shared, hit.blocks.begin());
    hit.computed = shared * 16;
    answers.hit.push_back(answer(*runner, hit, golden, 512));
  }
  return answers;
}

// Computed once for a backend, for all tests of it.
const Answers& answers_of(const Setup& setup) {
  static std::map<std::string, Answers> computed;
  const auto [found, added] = computed.try_emplace(setup.backend);
  if (added) found->second = compute_answers(setup);
  return found->second;
}

double worst_difference(const GoldenCase& golden, const std::vector<Logits>& steps) {
  double worst = 0;
  for (size_t i = 0; i < golden.output.size(); ++i) {
    const double ours = log_probability(steps[i], golden.output[i]);
    worst = std::max(worst, std::fabs(ours - golden.logprobs[i]));
  }
  return worst;
}

void expect_golden(const GoldenCase& golden, const std::vector<Logits>& steps) {
  ASSERT_EQ(steps.size(), golden.output.size());
  for (size_t i = 0; i < golden.output.size() && golden.gaps[i] >= kNearTie; ++i) {
    EXPECT_EQ(sample_token(steps[i], {.temperature = 0}, 0), golden.output[i]) << "step " << i;
  }
  EXPECT_LT(worst_difference(golden, steps), kLogprobTolerance);
}

// Counts logits that differ in any bit, and fails on those that differ by more than the tolerance.
size_t differing_logits(const std::vector<Logits>& a, const std::vector<Logits>& b) {
  size_t count = 0;
  EXPECT_EQ(a.size(), b.size());
  for (size_t step = 0; step < std::min(a.size(), b.size()); ++step) {
    for (size_t i = 0; i < a[step].size(); ++i) {
      if (a[step][i] != b[step][i]) ++count;
      EXPECT_NEAR(a[step][i], b[step][i], kOwnTolerance);
    }
  }
  return count;
}

class Golden : public testing::TestWithParam<Setup> {};

TEST_P(Golden, AnswersEqualTransformers) {
  const Answers& answers = answers_of(GetParam());
  ASSERT_EQ(answers.cold.size(), GetParam().case_count);
  double worst = 0;
  for (size_t c = 0; c < answers.cold.size(); ++c) {
    SCOPED_TRACE("case " + std::to_string(c));
    expect_golden(golden_cases()[c], answers.cold[c]);
    worst = std::max(worst, worst_difference(golden_cases()[c], answers.cold[c]));
  }
  std::printf("%s: worst difference of a log-probability %.2g\n", GetParam().backend.c_str(), worst);
}

TEST_P(Golden, PrefixHitChangesNothing) {
  const Answers& answers = answers_of(GetParam());
  ASSERT_EQ(answers.hit.size(), GetParam().case_count);
  for (size_t c = 0; c < answers.hit.size(); ++c) {
    SCOPED_TRACE("case " + std::to_string(c));
    expect_golden(golden_cases()[c], answers.hit[c]);
    EXPECT_EQ(differing_logits(answers.cold[c], answers.hit[c]), 0u) << "not bitwise equal";
  }
}

// Ten prompts at a time in merged steps of 512 tokens, each starting while others already decode. (Of many
// cases, which are in the order of their length, every second ten.)
TEST_P(Golden, OtherRequestsInTheBatchChangeNothing) {
  constexpr size_t kLanes = 10;
  constexpr int32_t kStepTokens = 512;
  constexpr int32_t kChunk = 190;  // not a multiple of a block
  const Answers& answers = answers_of(GetParam());
  ASSERT_EQ(answers.cold.size(), GetParam().case_count);
  const auto runner = load(demo_options(GetParam().backend, int64_t{kLanes} * 2048));
  ASSERT_NE(runner, nullptr);
  const bool many = GetParam().case_count > 4 * kLanes;
  for (size_t first = many ? kLanes : 0; first < GetParam().case_count; first += (many ? 2 : 1) * kLanes) {
    const size_t count = std::min(kLanes, GetParam().case_count - first);
    std::vector<Lane> lanes;
    std::vector<std::vector<Logits>> steps(count);
    for (size_t i = 0; i < count; ++i) {
      lanes.push_back(make_lane(golden_cases()[first + i].all_ids(), static_cast<BlockId>(i) * 128));
    }
    while (true) {
      std::vector<BatchItem> items;
      std::vector<size_t> sampling;
      int32_t budget = kStepTokens;
      for (size_t i = 0; i < count; ++i) {
        const GoldenCase& golden = golden_cases()[first + i];
        const auto prompt_count = static_cast<int32_t>(golden.prompt.size());
        if (steps[i].size() == golden.output.size() || budget == 0) continue;
        const int32_t wanted = std::max(1, std::min(kChunk, prompt_count - lanes[i].computed));
        const int32_t given = std::min(wanted, budget);
        const bool samples = lanes[i].computed + given >= prompt_count;
        items.push_back(take(lanes[i], given, samples));
        if (samples) sampling.push_back(i);
        budget -= given;
      }
      if (items.empty()) break;
      std::vector<Logits> rows = run_step(*runner, std::move(items));
      ASSERT_EQ(rows.size(), sampling.size());
      for (size_t row = 0; row < rows.size(); ++row) steps[sampling[row]].push_back(std::move(rows[row]));
    }
    for (size_t i = 0; i < count; ++i) {
      SCOPED_TRACE("case " + std::to_string(first + i));
      expect_golden(golden_cases()[first + i], steps[i]);
      EXPECT_EQ(differing_logits(answers.cold[first + i], steps[i]), 0u) << "not bitwise equal";
    }
  }
}

// The shortest prompt; and one of 900 and one of 1500 tokens, if there are such and the chunks are large
// enough to be fast.
std::vector<size_t> chunk_cases(size_t case_count, int32_t chunk) {
  std::vector<size_t> cases{0};
  for (const size_t wanted : {size_t{900}, size_t{1500}}) {
    size_t c = 0;
    while (c < case_count && golden_cases()[c].prompt.size() < wanted) ++c;
    if (c < case_count && chunk >= 7) cases.push_back(c);
  }
  return cases;
}

TEST_P(Golden, ChunkSizeChangesNothing) {
  const Answers& answers = answers_of(GetParam());
  const auto runner = load(demo_options(GetParam().backend));
  ASSERT_NE(runner, nullptr);
  const std::vector<int32_t> chunks =
      GetParam().backend == "ref" ? std::vector<int32_t>{7, 16} : std::vector<int32_t>{1, 7, 16, 64, 512};
  for (const int32_t chunk : chunks) {
    SCOPED_TRACE("chunks of " + std::to_string(chunk));
    for (const size_t c : chunk_cases(GetParam().case_count, chunk)) {
      const GoldenCase& golden = golden_cases()[c];
      SCOPED_TRACE("case " + std::to_string(c) + " of " + std::to_string(golden.prompt.size()) + " tokens");
      Lane lane = make_lane(golden.all_ids(), 0);
      const std::vector<Logits> steps = answer(*runner, lane, golden, chunk);
      EXPECT_EQ(differing_logits(answers.cold[c], steps), 0u) << "not bitwise equal";
    }
  }
}

TEST_P(Golden, ThreadCountChangesNothing) {
  if (GetParam().backend == "ref") GTEST_SKIP() << "ref has one thread";
  const Answers& answers = answers_of(GetParam());
  RunnerOptions options = demo_options(GetParam().backend);
  options.threads = 3;
  const auto runner = load(options);
  ASSERT_NE(runner, nullptr);
  for (const size_t c : {size_t{0}, GetParam().case_count - 1}) {
    Lane lane = make_lane(golden_cases()[c].all_ids(), 0);
    const std::vector<Logits> steps = answer(*runner, lane, golden_cases()[c], 512);
    EXPECT_EQ(differing_logits(answers.cold[c], steps), 0u) << "not bitwise equal, case " << c;
  }
}

TEST_P(Golden, LogprobsScoresEveryIdLikeTheSteps) {
  const GoldenCase& golden = golden_cases()[0];
  const std::vector<TokenId> ids = golden.all_ids();
  std::vector<std::vector<float>> scores;
  for (const int32_t step_tokens : {512, 50}) {
    RunnerOptions options = demo_options(GetParam().backend);
    options.max_batched_tokens = step_tokens;
    const auto runner = load(options);
    ASSERT_NE(runner, nullptr);
    scores.push_back(runner->logprobs(ids).value());
    ASSERT_EQ(scores.back().size(), ids.size() - 1);
  }
  EXPECT_EQ(scores[0], scores[1]);
  for (size_t i = 0; i < golden.output.size(); ++i) {
    EXPECT_NEAR(scores[0][golden.prompt.size() - 1 + i], golden.logprobs[i], kLogprobTolerance);
  }
}

// A model with one tensor changed must fail the comparison, or the comparison proves nothing.
TEST_P(Golden, OneNegatedTensorFailsTheComparison) {
  namespace fs = std::filesystem;
  const TempDir dir;
  fs::copy(kDemoModelDir, dir.path(), fs::copy_options::recursive);
  fs::permissions(dir.path() + "/model.safetensors", fs::perms::owner_all);
  const auto file = SafetensorsFile::open(dir.path() + "/model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  std::string bytes(file->file.bytes());
  for (const SafetensorsEntry& entry : file->header.entries) {
    if (entry.name != "model.layers.5.self_attn.v_proj.weight") continue;
    // bfloat16, little endian: the sign is the top bit of each second byte.
    for (uint64_t i = entry.begin + 1; i < entry.end; i += 2) bytes[file->header.data_start + i] ^= '\x80';
  }
  dir.write("model.safetensors", bytes);
  RunnerOptions options = demo_options(GetParam().backend);
  options.model_dir = dir.path();
  const auto runner = load(options);
  ASSERT_NE(runner, nullptr);
  Lane lane = make_lane(golden_cases()[0].all_ids(), 0);
  const std::vector<Logits> steps = answer(*runner, lane, golden_cases()[0], 512);
  EXPECT_GT(worst_difference(golden_cases()[0], steps), 100 * kLogprobTolerance);
}

// bfloat16 rounds activations to 8 bits: close on average, not token for token.
TEST_P(Golden, Bfloat16StaysClose) {
  RunnerOptions options = demo_options(GetParam().backend);
  options.dtype = DType::kBFloat16;
  const auto runner = load(options);
  ASSERT_NE(runner, nullptr);
  double sum = 0;
  double worst = 0;
  size_t count = 0;
  const size_t stride = GetParam().case_count > 20 ? 5 : 1;
  for (size_t c = 0; c < GetParam().case_count; c += stride) {
    const GoldenCase& golden = golden_cases()[c];
    const std::vector<float> scores = runner->logprobs(golden.all_ids()).value();
    for (size_t i = 0; i < golden.output.size(); ++i, ++count) {
      const double difference = std::fabs(scores[golden.prompt.size() - 1 + i] - golden.logprobs[i]);
      sum += difference;
      worst = std::max(worst, difference);
    }
  }
  const double mean = sum / static_cast<double>(count);
  std::printf("%s bfloat16: mean |difference| of a log-probability %.3g, worst %.3g\n",
              GetParam().backend.c_str(), mean, worst);
  EXPECT_LT(mean, 0.02);
  EXPECT_GT(mean, 1e-6) << "did it compute in float32?";
}

std::string setup_name(const testing::TestParamInfo<Setup>& info) {
  return info.param.backend;
}
// Sanitizers make this ten times slower and check other things than numbers: the shortest prompts suffice.
constexpr size_t kRefCases = kSanitized ? 1 : 3;
constexpr size_t kCpuCases = kSanitized ? 12 : 60;
INSTANTIATE_TEST_SUITE_P(Backends, Golden, testing::Values(Setup{"ref", kRefCases}, Setup{"cpu", kCpuCases}),
                         setup_name);

}  // namespace golden_test
}  // namespace troupe

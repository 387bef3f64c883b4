// Guided answers of the demo model: what Transformers' generate() says (tests/fixtures/guidance_golden.py),
// and what an oracle in double precision makes of the model's own logits, each prompt computed by itself.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>

#include "tests/common/sanitized.h"
#include "tests/worker/engine_harness.h"
#include "tests/worker/model/demo_model.h"

namespace troupe::guided_golden_test {

using testing::Collector;

constexpr double kNearTie = 0.1;
constexpr double kTolerance = 1e-4;  // of log-probabilities

struct Case {
  std::vector<TokenId> prompt;
  Guidance guidance;
  std::vector<TokenId> output;
  std::vector<double> gaps, logprobs;
};

std::vector<Case> read_cases() {
  std::vector<Case> cases;
  const auto json = read_json_file(TROUPE_SOURCE_DIR "/tests/fixtures/guidance_golden.json");
  EXPECT_TRUE(json.ok()) << json.status();
  if (!json.ok()) return cases;
  const auto ids_of = [](const bj::value& list) {
    std::vector<TokenId> ids;
    for (const bj::value& id : list.as_array()) ids.push_back(id.to_number<TokenId>());
    return ids;
  };
  for (const bj::value& item : json->as_array()) {
    Case& one = cases.emplace_back();
    one.prompt = ids_of(item.at("prompt_ids"));
    one.guidance = {item.at("scale").to_number<double>(), ids_of(item.at("negative_ids"))};
    one.output = ids_of(item.at("output_ids"));
    for (const bj::value& gap : item.at("gaps").as_array()) one.gaps.push_back(gap.to_number<double>());
    for (const bj::value& lp : item.at("logprobs").as_array()) one.logprobs.push_back(lp.to_number<double>());
  }
  EXPECT_EQ(cases.size(), 8u);
  if (kSanitized) cases.resize(3);
  return cases;
}

class GuidedGolden : public ::testing::Test {
 protected:
  GuidedGolden() {
    RunnerOptions model_options = demo_options("cpu", /*kv_cache_tokens=*/16384);
    model_options.max_num_seqs = 32;
    auto runner = ModelRunner::load(model_options);
    EXPECT_TRUE(runner.ok()) << runner.status();
    if (!runner.ok()) return;
    Engine::Options options;
    options.scheduler.block_count = (*runner)->block_count();
    options.scheduler.max_model_len = (*runner)->max_model_len();
    options.scheduler.max_num_seqs = 32;
    options.scheduler.max_num_batched_tokens = model_options.max_batched_tokens;
    options.model_name = "demo";
    options.eos_token_ids = (*runner)->config().eos_token_ids;
    engine =
        std::make_unique<Engine>(std::make_unique<ModelStepRunner>(*std::move(runner), /*runs_ahead=*/false),
                                 tokenizer.get(), options, metrics, log);
    engine->start();
  }
  void ask(const std::vector<Case>& cases, std::deque<Collector>& outs) {
    for (const Case& one : cases) {
      EngineRequest request;
      request.prompt = one.prompt;
      request.guidance = one.guidance;
      request.max_new_count = static_cast<int32_t>(one.output.size());
      request.sampling.temperature = 0;
      request.ignore_eos = true;
      request.logprobs = 0;
      ASSERT_TRUE(engine->submit(std::move(request), outs.emplace_back().sink()).ok());
    }
    for (Collector& out : outs) ASSERT_TRUE(out.wait_end());
  }

  std::unique_ptr<Tokenizer> tokenizer = testing::EngineHarness::load_tokenizer();
  Metrics metrics;
  Logger log{LogLevel::kError, -1};
  std::unique_ptr<Engine> engine;
};

TEST_F(GuidedGolden, AnswersAreTransformers) {
  const std::vector<Case> cases = read_cases();
  for (const bool cached : {false, true}) {
    std::deque<Collector> outs;
    ask(cases, outs);
    size_t compared = 0;
    for (size_t c = 0; c < cases.size() && !HasFailure(); ++c) {
      const std::vector<TokenId> ids = outs[c].ids();
      const std::vector<TokenLogprob> logprobs = outs[c].logprobs();
      ASSERT_EQ(ids.size(), cases[c].output.size());
      ASSERT_EQ(logprobs.size(), ids.size());
      for (size_t i = 0; i < ids.size() && cases[c].gaps[i] >= kNearTie; ++i, ++compared) {
        EXPECT_EQ(ids[i], cases[c].output[i]) << "case " << c << ", token " << i << ", cached " << cached;
        EXPECT_NEAR(*logprobs[i].logprob, cases[c].logprobs[i], kTolerance) << c << " " << i;
      }
    }
    EXPECT_GT(compared, cases.size() * 8);
  }
}

// Log-probability of a token among the guided scores.
double oracle(const Logits& logits, const Logits& negative, double scale, TokenId token) {
  const auto total = [](const auto& row) {
    double sum = 0;
    const double most = *std::max_element(row.begin(), row.end());
    for (const double logit : row) sum += std::exp(logit - most);
    return most + std::log(sum);
  };
  const double p = total(logits), n = total(negative);
  std::vector<double> scores;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double unconditional = double{negative[i]} - n;
    scores.push_back(scale * (double{logits[i]} - p - unconditional) + unconditional);
  }
  EXPECT_EQ(std::max_element(scores.begin(), scores.end()) - scores.begin(), token);
  return scores[static_cast<size_t>(token)] - total(scores);
}

// In chunks of its own, in a runner of its own.
std::vector<Logits> logits_behind(ModelRunner& runner, std::vector<TokenId> ids, size_t prompt_count) {
  const size_t count = ids.size();
  Lane lane = make_lane(std::move(ids), /*first_block=*/0);
  std::vector<Logits> rows;
  for (size_t end = prompt_count; end <= count; ++end)
    rows.push_back(run_step(runner, {take(lane, static_cast<int32_t>(end) - lane.computed, true)}).front());
  return rows;
}

// Prompts of the plain goldens: led away from one token, from another prompt, from a half of it, and towards
// it.
std::vector<Case> oracle_cases() {
  std::vector<Case> made;
  for (size_t i = 0; i < 4; ++i) {
    Case& one = made.emplace_back();
    one.prompt = golden_cases()[i].prompt;
    one.output.resize(kSanitized ? 6 : 20);
    const std::vector<TokenId>& other = i == 1 ? golden_cases()[5].prompt : one.prompt;
    one.guidance.negative_prompt.assign(other.begin(), i == 1 ? other.end() : other.begin() + 100);
    if (i == 0) one.guidance.negative_prompt = {one.prompt.back()};
    one.guidance.scale = i == 3 ? 0.5 : 1.25 + 0.5 * static_cast<double>(i);
  }
  return made;
}

TEST_F(GuidedGolden, AnswersAreWhatAnOracleMakesOfTheModelsLogits) {
  const std::vector<Case> cases = oracle_cases();
  std::deque<Collector> outs;
  ask(cases, outs);
  const auto runner = ModelRunner::load(demo_options("cpu"));
  ASSERT_TRUE(runner.ok()) << runner.status();
  for (size_t c = 0; c < cases.size(); ++c) {
    std::vector<TokenId> answer = outs[c].ids();
    answer.pop_back();
    const auto behind = [&](std::vector<TokenId> ids) {
      const size_t prompt_count = ids.size();
      ids.insert(ids.end(), answer.begin(), answer.end());
      return logits_behind(**runner, std::move(ids), prompt_count);
    };
    const auto rows = behind(cases[c].prompt), negative = behind(cases[c].guidance.negative_prompt);
    const std::vector<TokenLogprob> scores = outs[c].logprobs();
    for (size_t i = 0; i < rows.size(); ++i) {
      const double expected = oracle(rows[i], negative[i], cases[c].guidance.scale, outs[c].ids()[i]);
      EXPECT_NEAR(*scores[i].logprob, expected, kTolerance) << c << " " << i;
    }
  }
}

}  // namespace troupe::guided_golden_test

// Guided rows of a step, on backends whose logits are the host's and on one with memory of its own: the rows
// shown and drawn from are guided, and their neighbours stay as they are.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/common/temp_dir.h"
#include "tests/worker/model/made_up_model.h"
#include "worker/model/runner.h"

namespace troupe {
namespace guided_rows_test {

#ifdef TROUPE_GPU_TEST
const std::vector<std::string> kBackends{"cuda"};
#else
const std::vector<std::string> kBackends{"ref", "cpu", EMULATED_MODULE};
#endif

std::unique_ptr<ModelRunner> load(const std::string& backend) {
  const TempDir dir;
  dir.write("config.json", kMadeUpModel);
  RunnerOptions options;
  options.model_dir = dir.path();
  options.load_format = LoadFormat::kDummy;
  options.backend = backend;
  options.dtype = DType::kBFloat16;
  options.kv_cache_tokens = 4 * options.block_size;
  auto runner = ModelRunner::load(options);
  EXPECT_TRUE(runner.ok()) << runner.status();
  return runner.ok() ? std::move(*runner) : nullptr;
}

struct Drawn {
  std::vector<std::vector<float>> logits;  // of the rows that are shown
  std::vector<TokenId> tokens;
};

// Four prompts from their beginning, one step; each row is shown.
Drawn run(ModelRunner& runner, const std::vector<SampleRow>& rows, const std::vector<GuidedRow>& guided) {
  const std::vector<std::vector<TokenId>> prompts = {{301, 77, 5}, {402, 5}, {77, 78, 79, 80}, {9}};
  const std::vector<BlockId> blocks = {0, 1, 2, 3};
  Batch batch;
  for (size_t i = 0; i < prompts.size(); ++i) {
    BatchItem& item = batch.items.emplace_back();
    item.ids = prompts[i];
    item.count = static_cast<int32_t>(prompts[i].size());
    item.samples = true;
    item.blocks = std::span(blocks).subspan(i, 1);
  }
  const std::vector<int32_t> shown = {0, 1, 2, 3};
  StepDraws draws{rows, shown};
  draws.guided = guided;
  const auto output = runner.run(batch, draws);
  EXPECT_TRUE(output.ok()) << output.status();
  Drawn drawn;
  if (!output.ok()) return drawn;
  drawn.tokens.assign(output->tokens.begin(), output->tokens.end());
  const auto vocab = static_cast<size_t>(output->logits.shape[1]);
  for (size_t i = 0; i < shown.size(); ++i) {
    const float* const row = output->logits.as<float>() + i * vocab;
    drawn.logits.emplace_back(row, row + vocab);
  }
  return drawn;
}

TEST(GuidedRows, AreShownAndDrawnFrom) {
  for (const std::string& backend : kBackends) {
    SCOPED_TRACE(backend);
    const auto runner = load(backend);
    ASSERT_NE(runner, nullptr);
    std::vector<SampleRow> rows;
    for (uint64_t i = 0; i < 4; ++i)
      rows.push_back({.draw = {.temperature = 1.5f, .seed = 7, .position = i}});
    const Drawn free = run(*runner, rows, {}), led = run(*runner, rows, {{0, 1, 6.0}, {3, 2, 0.5}});
    std::vector<std::vector<float>> expected = free.logits;
    ASSERT_EQ(expected.size(), 4u);
    guide_logits(expected[0], free.logits[1], 6.0);
    guide_logits(expected[3], free.logits[2], 0.5);
    EXPECT_EQ(led.logits, expected) << "to the bit";
    EXPECT_NE(expected[0], free.logits[0]);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(led.tokens[i], draw_token(expected[i], rows[i].draw)) << i;
  }
}

}  // namespace guided_rows_test
}  // namespace troupe

// Steps of decodes as graphs that are kept: most are launched just as they were captured, and draw what the
// same steps draw kernel by kernel.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "tests/common/figure.h"
#include "tests/common/sanitized.h"
#include "tests/common/temp_dir.h"
#include "worker/model/runner.h"

namespace troupe {
namespace decode_graphs_test {

// Heads of 64 dims, in a group of two; as little else as there may be.
constexpr const char* kModel = R"({
  "architectures": ["LlamaForCausalLM"], "vocab_size": 300, "hidden_size": 128, "intermediate_size": 128,
  "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 512,
  "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "hidden_act": "silu",
  "bos_token_id": 1, "eos_token_id": 2})";
constexpr int kVocabulary = 300;
constexpr int kLanesMax = kSanitized ? 33 : 65;
// Numbers of rows that take other kernels, and one that comes again.
const std::vector<int> kCounts =
    kSanitized ? std::vector<int>{1, 16, 33, 1} : std::vector<int>{1, 16, 33, 64, 65, 1};
constexpr BlockId kSharedBlocks = 17;  // of 272 tokens: enough for a cascade
constexpr BlockId kBlocksEach = 25;

std::unique_ptr<ModelRunner> load(const CudaOptions& cuda, int layers = 1, int lanes = kLanesMax) {
  std::string model = kModel;
  const std::string key = "\"num_hidden_layers\": ";
  model.replace(model.find(key) + key.size(), 1, std::to_string(layers));
  const TempDir dir;
  dir.write("config.json", model);
  RunnerOptions options;
  options.model_dir = dir.path();
  options.load_format = LoadFormat::kDummy;
  options.backend = EMULATED_MODULE;
  options.dtype = DType::kBFloat16;
  options.max_num_seqs = lanes;
  options.kv_cache_tokens = (kSharedBlocks + lanes * kBlocksEach) * options.block_size;
  options.cuda = cuda;
  auto runner = ModelRunner::load(options);
  EXPECT_TRUE(runner.ok()) << runner.status();
  return runner.ok() ? std::move(*runner) : nullptr;
}

// Requests that decode, each behind some keys; those that share have the first of them in the same blocks.
class Lanes {
 public:
  explicit Lanes(ModelRunner& runner) : runner_(runner) {
    for (BlockId lane = 0; lane < kLanesMax; ++lane) {
      std::vector<BlockId>& table = tables_.emplace_back(static_cast<size_t>(kSharedBlocks + kBlocksEach));
      std::iota(table.begin(), table.end(), kSharedBlocks + lane * kBlocksEach - kSharedBlocks);
      std::iota(table.begin() + kSharedBlocks, table.end(), kSharedBlocks + lane * kBlocksEach);
    }
    lengths_.assign(kLanesMax, 0);
  }
  void share(int lane) {
    auto& table = tables_[static_cast<size_t>(lane)];
    std::iota(table.begin(), table.begin() + kSharedBlocks, 0);
    lengths_[static_cast<size_t>(lane)] = kSharedBlocks * 16;
  }
  void start(int lane, int32_t length) {
    auto& table = tables_[static_cast<size_t>(lane)];
    std::iota(table.begin(), table.end(), kSharedBlocks + lane * kBlocksEach);
    table.resize(static_cast<size_t>(kBlocksEach));
    lengths_[static_cast<size_t>(lane)] = length;
  }
  // The keys that are shared.
  void prefill() {
    std::vector<TokenId> ids(kSharedBlocks * 16);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(i * 31 % kVocabulary);
    std::vector<BlockId> table(kSharedBlocks);
    std::iota(table.begin(), table.end(), 0);
    Batch batch;
    BatchItem& item = batch.items.emplace_back();
    item.ids = ids;
    item.count = static_cast<int32_t>(ids.size());
    item.blocks = table;
    const auto output = runner_.run(batch, {});
    ASSERT_TRUE(output.ok()) << output.status();
  }
  // A step of the first `count` of them, launched before the one before is collected where that had as many.
  void decode(int count, const std::vector<SampleRow>& draws) {
    const bool known = under_way_ != count;
    if (known) collect();
    std::vector<TokenId> ids(static_cast<size_t>(count));
    Batch batch;
    for (int lane = 0; lane < count; ++lane) {
      const auto i = static_cast<size_t>(lane);
      ids[i] = known ? (lane * 7 + lengths_[i]) % kVocabulary : -1 - lane;
      BatchItem& item = batch.items.emplace_back();
      item.ids = {&ids[i], 1};
      item.count = 1;
      item.start = lengths_[i]++;
      item.samples = true;
      item.blocks = tables_[i];
    }
    const Status status = runner_.launch(batch, {draws, {}});
    ASSERT_TRUE(status.ok()) << status;
    if (!known) collect();
    under_way_ = count;
  }
  void collect() {
    if (under_way_ == 0) return;
    const StepOutput output = runner_.collect();
    drawn_.insert(drawn_.end(), output.tokens.begin(), output.tokens.end());
    under_way_ = 0;
  }
  // All tokens so far, and the bits of the last step's logits.
  std::vector<TokenId> drawn(int count) {
    collect();
    runner_.visit_rows(0, count, [&](int32_t, std::span<const float> logits) {
      for (const float logit : logits) {
        TokenId bits = 0;
        std::memcpy(&bits, &logit, sizeof(bits));
        drawn_.push_back(bits);
      }
    });
    return drawn_;
  }

 private:
  ModelRunner& runner_;
  std::vector<std::vector<BlockId>> tables_;
  std::vector<int32_t> lengths_;
  std::vector<TokenId> drawn_;
  int under_way_ = 0;
};

const SamplerChain& typical_chain() {
  static const SamplerChain chain{.typical_p = 0.8f};
  return chain;
}

TEST(DecodeGraphs, MostStepsOfOneBatchAreLaunchedAsTheyWere) {
  constexpr int kSteps = kSanitized ? 10 : 30;
  const auto runner = load({});
  ASSERT_NE(runner, nullptr);
  for (const int count : {1, kSanitized ? 9 : 16, kSanitized ? 9 : 34}) {
    Lanes lanes(*runner);
    for (int lane = 0; lane < count; ++lane) lanes.start(lane, 40 + 83 * lane % 300);
    const GraphCounts before = runner->graphs();
    std::vector<SampleRow> draws(static_cast<size_t>(count), {.draw = {.temperature = 0}});
    if (count > 1) draws.back() = {.draw = {.temperature = 2}, .chain = &typical_chain()};
    for (int step = 0; step < kSteps; ++step) {
      draws.back().draw.position = static_cast<uint64_t>(step);
      lanes.decode(count, draws);
    }
    lanes.collect();
    const GraphCounts after = runner->graphs();
    EXPECT_EQ(after.launched - before.launched, kSteps);
    const int64_t unchanged = after.unchanged - before.unchanged;
    figure("decode_graphs", "steps of " + std::to_string(count) + " without a capture",
           std::to_string(unchanged) + " of " + std::to_string(kSteps), ">= " + std::to_string(kSteps - 3));
    EXPECT_GE(unchanged, kSteps - 3) << count;
  }
}

constexpr int kStepsOfSize = 3;

// How the n-th step's row r is drawn: in some steps all alike, in some none as in the step before; of three
// rows one always by a chain of samplers.
SampleRow draw_of(int step, int row, std::span<const LogitEdit> edits) {
  const auto seed = static_cast<uint64_t>(100 * step + row);
  if (row % 3 == 1) return {.draw = {.temperature = 2, .seed = seed}, .chain = &typical_chain()};
  switch ((step / 2 + (step % 5 == 0 ? row : 0)) % 4) {
    case 0:
      return {.draw = {.temperature = 0}};
    case 1:
      return {.draw = {.temperature = 2, .top_k = 40, .seed = seed}};
    case 2:
      return {.draw = {.temperature = 2, .top_p = 0.9f, .min_p = 0.01f, .seed = seed}};
    default:
      return {.draw = {.temperature = 2, .seed = seed},
              .penalties = {.repetition = 1.5f, .presence = 1, .frequency = 1},
              .edits = edits.first(static_cast<size_t>(1 + (step + row) % 3))};
  }
}

std::vector<TokenId> draws_of(const CudaOptions& cuda, GraphCounts& counts) {
  const auto runner = load(cuda);
  if (runner == nullptr) return {};
  Lanes lanes(*runner);
  lanes.prefill();
  for (int lane = 0; lane < kLanesMax; ++lane) {
    if (lane % 3 == 0) {
      lanes.start(lane, lane % 40);
    } else {
      lanes.share(lane);
    }
  }
  const std::vector<LogitEdit> edits{
      {.token = 5, .bias = 3}, {.token = 9, .bias = -2}, {.token = 11, .bias = 1}};
  std::vector<TokenId> drawn;
  int step = 0;
  for (const int count : kCounts) {
    for (int i = 0; i < kStepsOfSize; ++i, ++step) {
      std::vector<SampleRow> draws;
      for (int row = 0; row < count; ++row) draws.push_back(draw_of(step, row, edits));
      lanes.decode(count, draws);
    }
    drawn = lanes.drawn(std::min(count, 8));
  }
  counts = runner->graphs();
  return drawn;
}

TEST(DecodeGraphs, DrawWhatStepsDrawKernelByKernel) {
  for (const bool cascade : {true, false}) {
    GraphCounts eager, kept;
    const auto truth = draws_of({.cascade = cascade, .graphs = false}, eager);
    EXPECT_GT(truth.size(), 1000u);
    EXPECT_EQ(eager.launched, 0);
    EXPECT_EQ(draws_of({.cascade = cascade}, kept), truth) << (cascade ? "with" : "without") << " cascades";
    EXPECT_EQ(kept.launched, std::ssize(kCounts) * kStepsOfSize);
    EXPECT_GE(kept.unchanged, std::ssize(kCounts))
        << "of a size's steps the first is another, and perhaps one more";
  }
}

// The calls of the driver's and the library's for one step of all layers.
TEST(DecodeGraphs, AStepThatIsKeptIsOneCall) {
  constexpr int kLayers = kSanitized ? 4 : 32;
  const auto runner = load({}, kLayers, 33);
  ASSERT_NE(runner, nullptr);
  void* const module = dlopen(EMULATED_MODULE, RTLD_NOW | RTLD_NOLOAD);
  const auto calls = reinterpret_cast<uint64_t (*)()>(dlsym(module, "troupe_emulated_driver_calls"));
  ASSERT_NE(calls, nullptr);
  for (const int count : {1, 33}) {  // by the own kernels, and by the library's
    Lanes lanes(*runner);
    for (int lane = 0; lane < count; ++lane) lanes.start(lane, 20);
    const std::vector<SampleRow> draws(static_cast<size_t>(count), {.draw = {.temperature = 0}});
    const auto calls_of_step = [&] {
      const uint64_t before = calls();
      lanes.decode(count, draws);
      return calls() - before;
    };
    calls_of_step();                                                  // what is made once
    for (int lane = 0; lane < count; ++lane) lanes.start(lane, 150);  // tables of another width
    lanes.collect();
    const uint64_t captured = calls_of_step(), unchanged = calls_of_step();
    figure("decode_graphs",
           "calls of the driver for a step of " + std::to_string(count) + ", " + std::to_string(kLayers) +
               " layers",
           std::to_string(captured) + " captured, " + std::to_string(unchanged) + " unchanged", "1");
    EXPECT_GT(captured, uint64_t{kLayers} * 6 * 3) << "launched, looked at twice";
    EXPECT_EQ(unchanged, 1u);
    lanes.collect();
  }
}

}  // namespace decode_graphs_test
}  // namespace troupe

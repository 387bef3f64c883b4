// Compares every model family with Transformers (or, for Baichuan, with the oracle in
// make_model_goldens.py), on every backend and instruction set of this machine, in float32 and bfloat16; and
// with itself, cut into chunks.

#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <memory>

#include "kernels/cpu/isa.h"
#include "tests/common/sanitized.h"
#include "tests/worker/model/family_checkpoint.h"
#include "worker/model/runner.h"

namespace troupe {
namespace family_golden_test {

constexpr double kTolerance = 1e-3;
// Limit against Transformers' own bfloat16: both round, but differently.
constexpr double kBf16Share = 1.5;
// Limit of int8 weights against Transformers' float32, in multiples of its bfloat16's difference: 2.7 at most
// when this was written.
constexpr double kInt8Share = 4;
// The minimum effect of a broken tensor.
constexpr double kNoticed = 3e-3;
constexpr int64_t kLargeVocabulary = 100000;
constexpr size_t kLongest = 333;
// (cuda_test has emulated kernels over longer contexts.)
constexpr size_t kLongestEmulated = 130;

struct Device {
  std::string backend = "cpu";
  CpuIsa isa = CpuIsa::kAuto;
  size_t longest = kLongest;
};

// The plainest and the best backend, and if time allows all in between, with the GPU's kernels run on the CPU
// (kernels/emulated; cuda_test has them under sanitizers). TROUPE_TEST_CUDA=1: the GPU itself.
std::vector<Device> devices(bool only_two) {
  std::vector<Device> all{{"ref", CpuIsa::kAuto}, {"cpu", CpuIsa::kAuto}};
  if (std::getenv("TROUPE_TEST_CUDA") != nullptr) return {{"cuda", CpuIsa::kAuto}};
  if (!only_two && !kSanitized) all.push_back({EMULATED_MODULE, CpuIsa::kAuto, kLongestEmulated});
  for (const CpuIsa isa : {CpuIsa::kSse, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16}) {
    if (!only_two && !kSanitized && cpu::isa_includes(cpu::detect_isa(), isa)) all.push_back({"cpu", isa});
  }
  return all;
}

std::unique_ptr<ModelRunner> load(const FamilyCheckpoint& checkpoint, const TempDir& dir,
                                  const std::function<void(RunnerOptions&)>& edit = nullptr) {
  RunnerOptions options;
  options.model_dir = dir.path();
  options.kv_cache_tokens = 352;
  options.max_model_len = checkpoint.max_model_len;
  options.threads = 2;
  if (edit) edit(options);
  auto runner = ModelRunner::load(options);
  EXPECT_TRUE(runner.ok()) << runner.status();
  return runner.ok() ? std::move(*runner) : nullptr;
}

struct Difference {
  double worst = 0;
  double sum = 0;
  size_t count = 0;
  double mean() const { return sum / static_cast<double>(count); }
};

// Compares the sequences of up to `length` ids.
Difference difference(ModelRunner& runner, const FamilyCheckpoint& checkpoint, size_t length = kLongest) {
  Difference result;
  for (size_t i = 0; i < checkpoint.ids.size(); ++i) {
    if (checkpoint.ids[i].size() > length) continue;
    const auto scores = runner.logprobs(checkpoint.ids[i]);
    EXPECT_TRUE(scores.ok()) << scores.status();
    if (!scores.ok()) continue;
    EXPECT_EQ(scores->size(), checkpoint.logprobs[i].size());
    for (size_t j = 0; j < scores->size(); ++j, ++result.count) {
      const double off = std::fabs((*scores)[j] - checkpoint.logprobs[i][j]);
      result.worst = std::isnan(off) ? INFINITY : std::max(result.worst, off);
      result.sum += off;
    }
  }
  EXPECT_GT(result.count, 0u);
  return result;
}

class Family : public testing::TestWithParam<size_t> {
 protected:
  const FamilyCheckpoint& checkpoint() const { return family_checkpoints()[GetParam()]; }
  bool large() const { return checkpoint().config.at("vocab_size").to_number<int64_t>() > kLargeVocabulary; }
};

TEST_P(Family, ScoresEqualTransformersInFloat32) {
  const TempDir dir;
  checkpoint().write(dir);
  double worst = 0;
  for (const Device& device : devices(large())) {
    const auto runner = load(checkpoint(), dir, [&](RunnerOptions& o) {
      o.backend = device.backend;
      o.isa = device.isa;
    });
    ASSERT_NE(runner, nullptr);
    const Difference off = difference(*runner, checkpoint(), device.longest);
    EXPECT_LE(off.worst, kTolerance) << runner->description();
    worst = std::max(worst, off.worst);
  }
  std::printf("%s float32: worst difference of a log-probability %.2g\n", checkpoint().name.c_str(), worst);
}

TEST_P(Family, Bfloat16ErrorStaysNearTransformersOwn) {
  const TempDir dir;
  checkpoint().write(dir);
  double worst = 0;
  for (const Device& device : devices(large())) {
    const auto runner = load(checkpoint(), dir, [&](RunnerOptions& o) {
      o.backend = device.backend;
      o.isa = device.isa;
      o.dtype = DType::kBFloat16;
    });
    ASSERT_NE(runner, nullptr);
    const double mean = difference(*runner, checkpoint(), device.longest).mean();
    EXPECT_LE(mean, kBf16Share * checkpoint().bf16_error) << runner->description();
    EXPECT_GT(mean, 1e-4) << "did it compute in float32? " << runner->description();
    worst = std::max(worst, mean);
  }
  std::printf("%s bfloat16: mean difference %.3g, Transformers' own %.3g\n", checkpoint().name.c_str(), worst,
              checkpoint().bf16_error);
}

// If the model normalises its head, the published length of a head's row has no meaning: rows are made longer
// and shorter here, so that rounding without the division shows.
TEST_P(Family, Int8ScoresStayNear) {
  const TempDir dir;
  const bool normalizes_head =
      large() && checkpoint().config.at("architectures").at(0) == "BaichuanForCausalLM";
  checkpoint().write(dir, [&](const std::string& tensor, float* values, int64_t count) {
    if (!normalizes_head || tensor != "lm_head.weight") return;
    const auto columns = checkpoint().config.at("hidden_size").to_number<int64_t>();
    for (int64_t i = 0; i < count; ++i) values[i] *= static_cast<float>(1 << (i / columns % 4));
  });
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const auto runner = load(checkpoint(), dir, [&](RunnerOptions& o) {
      o.dtype = dtype;
      o.weight_format = WeightFormat::kInt8;
    });
    ASSERT_NE(runner, nullptr);
    const double mean = difference(*runner, checkpoint()).mean();
    EXPECT_LE(mean, kInt8Share * checkpoint().bf16_error) << runner->description();
    EXPECT_GT(mean, 1e-4) << "nothing was rounded: " << runner->description();
    std::printf("%s int8, %s: mean difference %.3g\n", checkpoint().name.c_str(),
                std::string(dtype_name(dtype)).c_str(), mean);
  }
}

TEST_P(Family, ChunksAndSingleTokensGiveTheBitsOfTheWhole) {
  const TempDir dir;
  checkpoint().write(dir);
  const std::vector<TokenId>& longest = checkpoint().ids.back();
  const std::span<const TokenId> ids(longest.data(),
                                     std::min<size_t>(longest.size(), kSanitized ? 40 : kLongest));
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    std::vector<std::vector<float>> scores;
    for (const int32_t step : {512, 50, 7, 1}) {
      if (step == 1 && large()) continue;
      const auto runner = load(checkpoint(), dir, [&](RunnerOptions& o) {
        o.dtype = dtype;
        o.max_batched_tokens = step;
      });
      ASSERT_NE(runner, nullptr);
      scores.push_back(runner->logprobs(ids).value());
      EXPECT_EQ(scores.back(), scores.front()) << "in chunks of " << step;
    }
  }
}

// The broken tensor, in the last layer or outside of all layers: every one must matter, or the
// comparison proves nothing.
TEST_P(Family, EveryBrokenTensorChangesTheScores) {
  const auto layers = checkpoint().config.at("num_hidden_layers").to_number<int64_t>();
  const std::string last = "model.layers." + std::to_string(layers - 1) + ".";
  size_t tried = 0;
  for (const auto& [name, shape] : checkpoint().tensors) {
    if (name.starts_with("model.layers.") && !name.starts_with(last)) continue;
    // A model of a large vocabulary takes a second, so only its own tensors are broken.
    if ((large() || kSanitized) && name != "lm_head.weight" && name != last + "self_attn.W_pack.weight") {
      continue;
    }
    const TempDir dir;
    checkpoint().write(dir, [&broken = name](const std::string& tensor, float* values, int64_t count) {
      if (tensor != broken) return;
      for (int64_t i = 0; i < count; ++i) values[i] = -values[i];
    });
    const auto runner = load(checkpoint(), dir);
    ASSERT_NE(runner, nullptr);
    EXPECT_GT(difference(*runner, checkpoint()).worst, kNoticed) << name;
    ++tried;
  }
  EXPECT_GE(tried, kSanitized ? 0u : 2u);
}

// The dummy weights equal the checkpoint's (the script makes them by the same rule), so the scores must be
// the same without any file but config.json.
TEST_P(Family, DummyWeightsNeedOnlyTheConfig) {
  const TempDir dir;
  bj::object config = checkpoint().config;
  config["dtype"] = checkpoint().dtype;
  dir.write("config.json", bj::serialize(config));
  const auto runner = load(checkpoint(), dir, [](RunnerOptions& o) { o.load_format = LoadFormat::kDummy; });
  ASSERT_NE(runner, nullptr);
  EXPECT_LE(difference(*runner, checkpoint(), std::max<size_t>(64, checkpoint().ids.front().size())).worst,
            kTolerance);
}

std::vector<size_t> all_indices() {
  std::vector<size_t> indices(family_checkpoints().size());
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = i;
  return indices;
}

std::string checkpoint_name(const testing::TestParamInfo<size_t>& param) {
  return family_checkpoints()[param.param].name;
}
INSTANTIATE_TEST_SUITE_P(Checkpoints, Family, testing::ValuesIn(all_indices()), checkpoint_name);

TEST(FamilyLimits, WindowIsTheDefaultAndMaximumLength) {
  const TempDir dir;
  TinyModel model;
  model.config["architectures"] = bj::array({"MistralForCausalLM"});
  model.config["sliding_window"] = 31;
  model.write(dir);
  RunnerOptions options;
  options.model_dir = dir.path();
  options.kv_cache_tokens = 64;
  const auto by_default = ModelRunner::load(options);
  ASSERT_TRUE(by_default.ok()) << by_default.status();
  EXPECT_EQ((*by_default)->max_model_len(), 31);
  options.max_model_len = 32;
  EXPECT_THAT(
      std::string(ModelRunner::load(options).status().message()),
      testing::HasSubstr("/config.json: key 'sliding_window': 31 is not supported where it matters; set "
                         "max_model_len (now 32) to at most that"));
  options.max_model_len = 31;
  EXPECT_TRUE(ModelRunner::load(options).ok());
}

TEST(FamilyLimits, RopeScalingExtendsTheMaximumLength) {
  const TempDir dir;
  TinyModel model;
  model.config["rope_scaling"] = bj::object{{"type", "dynamic"}, {"factor", 2.0}};
  model.write(dir);
  RunnerOptions options;
  options.model_dir = dir.path();
  options.kv_cache_tokens = 64;
  options.max_model_len = 64;
  EXPECT_TRUE(ModelRunner::load(options).ok());
  options.max_model_len = 65;
  EXPECT_THAT(std::string(ModelRunner::load(options).status().message()),
              testing::HasSubstr("max_model_len 65 is not supported; must be at most 64"));
  options.max_model_len = 0;
  EXPECT_EQ((*ModelRunner::load(options))->max_model_len(), 32);
}

}  // namespace family_golden_test
}  // namespace troupe

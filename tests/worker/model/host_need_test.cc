// The memory of the host that a model takes is known before it is loaded.

#include "worker/model/host_need.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "tests/common/temp_dir.h"
#include "tests/worker/model/made_up_model.h"
#include "worker/model/families/registry.h"
#include "worker/model/runner.h"

namespace troupe::host_need_test {

using testing::HasSubstr;

RunnerOptions options_in(const TempDir& dir) {
  RunnerOptions options;
  options.model_dir = dir.path();
  options.load_format = LoadFormat::kDummy;
  options.backend = "cpu";
  options.kv_cache_tokens = 4096;
  options.max_batched_tokens = 512;
  options.max_num_seqs = 16;
  return options;
}

// The message of a refusal; empty: it is loaded.
std::string refusal(RunnerOptions options, int64_t host_bytes_max) {
  options.host_bytes_max = host_bytes_max;
  const auto runner = ModelRunner::load(options);
  return runner.ok() ? "" : std::string(runner.status().message());
}

std::string with(std::string config, const std::string& from, const std::string& to) {
  const size_t at = config.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? config : config.replace(at, from.size(), to);
}

TEST(HostNeed, IsWithinAFewPercentOfThatOfTheLoadedModel) {
  const std::string of_llama = "LlamaForCausalLM", own_head = "\"tie_word_embeddings\": false";
  for (const std::string_view architecture : model_architectures()) {
    std::string config = with(kMadeUpModel, of_llama, std::string(architecture));
    config = with(config, own_head, own_head + ", \"head_dim\": 64");
    if (architecture.starts_with("Bai")) config = with(config, "\"num_key_value_heads\": 2,", "");
    for (const WeightFormat format : {WeightFormat::kActivation, WeightFormat::kInt8}) {
      const TempDir dir;
      dir.write("config.json", config);
      RunnerOptions options = options_in(dir);
      options.weight_format = format;
      const auto runner = ModelRunner::load(options);
      ASSERT_TRUE(runner.ok()) << runner.status();
      const RunnerMemory memory = (*runner)->memory();
      const int64_t taken = memory.weight_bytes + memory.activation_bytes + memory.kv_bytes;
      EXPECT_EQ(refusal(options, taken + taken / 50), "") << architecture;
      EXPECT_THAT(refusal(options, taken - taken / 50), HasSubstr("no room in memory")) << architecture;
    }
  }
}

TEST(HostNeed, RefusalNamesThePartThatIsTooLargeAndTheOption) {
  const TempDir dir;
  dir.write("config.json", kMadeUpModel);
  RunnerOptions options = options_in(dir);
  constexpr int64_t kMib = int64_t{1} << 20;
  EXPECT_THAT(refusal(options, kMib), HasSubstr("dtype bfloat16 takes half, quantization int8 a quarter"));
  options.weight_format = WeightFormat::kInt8;
  EXPECT_THAT(refusal(options, kMib), HasSubstr("it takes a smaller model"));
  options.weight_format = WeightFormat::kActivation;
  options.max_batched_tokens = 1 << 20;
  EXPECT_THAT(refusal(options, 64 * kMib), HasSubstr("Lower max_num_batched_tokens or max_num_seqs"));
  options.max_batched_tokens = 512;
  options.kv_cache_tokens = 40'000'000;  // of 2 KiB each
  const std::string message = refusal(options, 512 * kMib);
  EXPECT_THAT(message, HasSubstr("KV 76.29 GiB (kv_cache_tokens 40000000): 76.30 GiB in all"));
  EXPECT_THAT(message,
              HasSubstr("and 0.50 GiB are free (host_bytes_max). Lower kv_cache_tokens to at most "));
  options.kv_cache_tokens = std::atoll(message.substr(message.rfind(' ')).c_str());
  EXPECT_GT(options.kv_cache_tokens, 200'000);
  EXPECT_EQ(refusal(options, 512 * kMib), "");
}

TEST(HostNeed, ModelOfAnySizeIsRefusedAtOnce) {
  std::string config = with(kMadeUpModel, "\"hidden_size\": 256", "\"hidden_size\": 16384");
  config = with(config, "\"intermediate_size\": 320", "\"intermediate_size\": 1048576");
  config = with(config, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1024");
  config = with(config, "\"num_attention_heads\": 4", "\"num_attention_heads\": 128");
  const TempDir dir;
  dir.write("config.json", config);
  const auto begin = std::chrono::steady_clock::now();
  const auto runner = ModelRunner::load(options_in(dir));
  EXPECT_EQ(runner.status().code(), absl::StatusCode::kResourceExhausted) << runner.status();
  EXPECT_THAT(std::string(runner.status().message()), HasSubstr("The weights alone are too large"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

}  // namespace troupe::host_need_test

// The files a model directory needs to be served.

#include "worker/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/core/metrics.h"
#include "tests/worker/model/tiny_model.h"

namespace troupe {
namespace load_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Copies only these files of the demo model's directory.
void copy_demo_files(const TempDir& dir, const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    fs::copy(TROUPE_SOURCE_DIR "/configs/demo-model/" + file, dir.path() + "/" + file);
  }
}

StatusOr<LoadedModel> load(const TempDir& dir, LoadFormat load_format) {
  WorkerSettings settings;
  settings.runner.model_dir = dir.path();
  settings.runner.load_format = load_format;
  settings.runner.threads = 1;
  EXPECT_TRUE(resolve_worker_settings(settings).ok());
  Metrics metrics;
  const Logger log(LogLevel::kError);
  return load_model(settings, metrics, log);
}

TEST(LoadModel, DummyNeedsNoWeights) {
  const TempDir dir;
  copy_demo_files(dir, {"config.json", "tokenizer.json"});
  const auto dummy = load(dir, LoadFormat::kDummy);
  ASSERT_TRUE(dummy.ok()) << dummy.status();
  EXPECT_EQ(dummy->served.config.vocab_size, 4096);
  EXPECT_THAT(std::string(load(dir, LoadFormat::kAuto).status().message()),
              HasSubstr("has neither model.safetensors"));
}

TEST(LoadModel, DummyNeedsNoTokenizer) {
  const TempDir dir;
  TinyModel model;
  model.config["vocab_size"] = 16384;
  dir.write("config.json", boost::json::serialize(model.config));
  const auto dummy = load(dir, LoadFormat::kDummy);
  ASSERT_TRUE(dummy.ok()) << dummy.status();
  EXPECT_NE(dummy->chat_template, nullptr);
  EXPECT_LE(dummy->tokenizer->vocab_size(), 16384);
  EXPECT_THAT(std::string(load(dir, LoadFormat::kAuto).status().message()), HasSubstr("tokenizer.json"));
}

TEST(LoadModel, DummyRefusesVocabularySmallerThanItsWords) {
  const TempDir dir;
  TinyModel().write(dir);
  fs::remove(dir.path() + "/model.safetensors");
  EXPECT_THAT(std::string(load(dir, LoadFormat::kDummy).status().message()),
              HasSubstr("/config.json: key 'vocab_size': 12 is less than the"));
}

}  // namespace load_test
}  // namespace troupe

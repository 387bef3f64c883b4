// A worker must not start on an invalid model directory: each case breaks one thing of a valid one, and the
// error must name the file, the item and the reason.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/worker/model/tiny_model.h"
#include "worker/model/runner.h"

namespace troupe {
namespace bad_model_dir_test {

using testing::HasSubstr;
namespace fs = std::filesystem;

const char* const kDown = "model.layers.1.mlp.down_proj.weight";

std::string load_error(const TempDir& dir) {
  RunnerOptions options;
  options.model_dir = dir.path();
  options.backend = "ref";
  options.kv_cache_tokens = 64;
  const auto runner = ModelRunner::load(options);
  return runner.ok() ? "loaded" : std::string(runner.status().message());
}

// The tiny model as two shards and an index, which a test edits before write().
struct Shards {
  TinyTensors a, b;
  boost::json::object map;  // tensor → "a.safetensors" or "b.safetensors"

  Shards() {
    const TinyModel model;
    for (const auto& [name, tensor] : model.tensors) {
      const bool in_a = a.size() < model.tensors.size() / 2;
      (in_a ? a : b)[name] = tensor;
      map[name] = in_a ? "a.safetensors" : "b.safetensors";
    }
  }
  void write(const TempDir& dir) const {
    fs::remove(dir.path() + "/model.safetensors");
    dir.write("a.safetensors", safetensors_of(a));
    dir.write("b.safetensors", safetensors_of(b));
    dir.write("model.safetensors.index.json",
              boost::json::serialize(boost::json::object{{"weight_map", map}}));
  }
};

struct Case {
  std::string name;
  std::function<void(TinyModel&)> edit_model;      // before it is written, and
  std::function<void(const TempDir&)> edit_files;  // after; either may be null
  std::vector<std::string> error;                  // all are contained in the message
};

class BadModelDir : public testing::TestWithParam<Case> {};

TEST_P(BadModelDir, IsRefusedWithFileItemAndReason) {
  const TempDir dir;
  TinyModel model;
  if (GetParam().edit_model) GetParam().edit_model(model);
  model.write(dir);
  if (GetParam().edit_files) GetParam().edit_files(dir);
  const std::string message = load_error(dir);
  EXPECT_THAT(message, HasSubstr(dir.path()));
  for (const std::string& part : GetParam().error) EXPECT_THAT(message, HasSubstr(part));
}

std::vector<Case> file_cases() {
  return {
      {"NoConfig",
       nullptr,
       [](const TempDir& dir) { fs::remove(dir.path() + "/config.json"); },
       {"/config.json"}},
      {"ConfigCutShort",
       nullptr,
       [](const TempDir& dir) { dir.write("config.json", "{\"vocab_size\":"); },
       {"/config.json"}},
      {"ConfigKeyTwice",
       nullptr,
       [](const TempDir& dir) { dir.write("config.json", R"({"vocab_size":1,"vocab_size":2})"); },
       {"/config.json", "vocab_size"}},
      {"BadGenerationConfig",
       nullptr,
       [](const TempDir& dir) { dir.write("generation_config.json", R"({"top_p":7})"); },
       {"/generation_config.json: key 'top_p': 7 is not supported"}},
      {"UnknownArchitecture",
       [](TinyModel& m) { m.config["architectures"] = boost::json::array({"GPT2LMHeadModel"}); },
       nullptr,
       {"/config.json: key 'architectures'", "LlamaForCausalLM"}},
      {"NoWeights",
       nullptr,
       [](const TempDir& dir) { fs::remove(dir.path() + "/model.safetensors"); },
       {"has neither model.safetensors nor model.safetensors.index.json"}},
      {"EmptyFile",
       nullptr,
       [](const TempDir& dir) { dir.write("model.safetensors", ""); },
       {"/model.safetensors: is empty"}},
      {"FolderForAFile",
       nullptr,
       [](const TempDir& dir) {
         fs::remove(dir.path() + "/model.safetensors");
         fs::create_directory(dir.path() + "/model.safetensors");
       },
       {"/model.safetensors: is a directory; a regular file is needed"}},
      {"PipeForAConfig",
       nullptr,
       [](const TempDir& dir) {
         fs::remove(dir.path() + "/config.json");
         ASSERT_EQ(::mkfifo((dir.path() + "/config.json").c_str(), 0600), 0);
       },
       {"/config.json: is a pipe; a regular file is needed"}},
      {"FewerThanEightBytes",
       nullptr,
       [](const TempDir& dir) { dir.write("model.safetensors", "abc"); },
       {"/model.safetensors: only 3 bytes"}},
      {"HeaderLongerThanTheFile",
       nullptr,
       [](const TempDir& dir) { dir.write("model.safetensors", std::string(8, '\x01')); },
       {"/model.safetensors: header length 72340172838076673"}},
      {"TruncatedByOneByte",
       nullptr,
       [](const TempDir& dir) {
         const std::string path = dir.path() + "/model.safetensors";
         fs::resize_file(path, fs::file_size(path) - 1);
       },
       {"/model.safetensors: tensor '", "reach beyond the file's"}},
      {"TrailingByte",
       nullptr,
       [](const TempDir& dir) { dir.write("model.safetensors", safetensors_of(TinyModel().tensors) + "x"); },
       {"/model.safetensors: the last 1 of"}},
      {"HeaderIsNotJson",
       nullptr,
       [](const TempDir& dir) { dir.write("model.safetensors", safetensors_bytes("{nonsense}", "")); },
       {"/model.safetensors: header"}},
  };
}

std::vector<Case> tensor_cases() {
  const std::string at = std::string("/model.safetensors: tensor '") + kDown + "': ";
  return {
      {"TensorMissing",
       [](TinyModel& m) { m.tensors.erase(kDown); },
       nullptr,
       {std::string("tensor '") + kDown + "' ([8, 10]) is missing"}},
      {"TensorTransposed",
       [](TinyModel& m) {
         m.tensors[kDown].shape = {10, 8};
       },
       nullptr,
       {at + "shape [10, 8], but config.json makes it [8, 10]"}},
      {"TensorOfAnotherRank",
       [](TinyModel& m) { m.tensors[kDown].shape = {80}; },
       nullptr,
       {at + "shape [80], but config.json makes it [8, 10]"}},
      {"DTypeThatCannotBeLoaded",
       [](TinyModel& m) { m.tensors[kDown].dtype = "I32"; },
       nullptr,
       {at + "dtype I32 is not supported; F32, BF16 and F16 are"}},
      {"DTypeThatLies",
       [](TinyModel& m) { m.tensors[kDown].dtype = "BF16"; },
       nullptr,
       {at, "hold 320 bytes, but its shape and dtype BF16 need 160"}},
      {"DTypeUnknown",
       [](TinyModel& m) { m.tensors[kDown].dtype = "Q4_K"; },
       nullptr,
       {at + "dtype 'Q4_K' is unknown", "; F32, BF16 and F16 are supported"}},
      {"ShapeThatLies",
       [](TinyModel& m) {
         m.tensors[kDown].shape = {8, 1000};
       },
       nullptr,
       {at, "need 32000"}},
      {"BiasNobodyApplies",
       [](TinyModel& m) { m.add("model.layers.0.self_attn.q_proj.bias", {8}); },
       nullptr,
       {"tensor 'model.layers.0.self_attn.q_proj.bias': is not part of this architecture"}},
      {"MoreLayersInTheConfig",
       [](TinyModel& m) { m.config["num_hidden_layers"] = 3; },
       nullptr,
       {"tensor 'model.layers.2.input_layernorm.weight' ([8]) is missing"}},
      {"FewerLayersInTheConfig",
       [](TinyModel& m) { m.config["num_hidden_layers"] = 1; },
       nullptr,
       {"tensor 'model.layers.1.", "is not part of this architecture"}},
      {"AnotherVocabulary",
       [](TinyModel& m) { m.config["vocab_size"] = 13; },
       nullptr,
       {"tensor 'model.embed_tokens.weight': shape [12, 8], but config.json makes it [13, 8]"}},
      {"UntiedHeadMissing",
       [](TinyModel& m) { m.tensors.erase("lm_head.weight"); },
       nullptr,
       {"tensor 'lm_head.weight' ([12, 8]) is missing"}},
  };
}

// Valid shards but for one edit.
Case shard_case(const std::string& name, void (*edit)(Shards&), std::vector<std::string> error) {
  return {name, nullptr,
          [edit](const TempDir& dir) {
            Shards shards;
            edit(shards);
            shards.write(dir);
          },
          std::move(error)};
}

std::vector<Case> shard_cases() {
  const std::string index = "/model.safetensors.index.json: ";
  const std::string norm = "model.norm.weight";  // in b
  return {
      shard_case("ShardMissing", [](Shards& s) { s.map["model.norm.weight"] = "c.safetensors"; },
                 {index, "/c.safetensors: cannot open"}),
      shard_case("ShardInAnotherFolder", [](Shards& s) { s.map["model.norm.weight"] = "../b.safetensors"; },
                 {index + "tensor '" + norm + "': \"../b.safetensors\" is not the name"}),
      shard_case("ShardWithAnAbsolutePath", [](Shards& s) { s.map["model.norm.weight"] = "/b.safetensors"; },
                 {index + "tensor '" + norm + "'"}),
      shard_case("ShardOfAnotherKind", [](Shards& s) { s.map["model.norm.weight"] = "config.json"; },
                 {index + "tensor '" + norm + "'"}),
      shard_case("ShardThatIsANumber", [](Shards& s) { s.map["model.norm.weight"] = 7; },
                 {index + "tensor '" + norm + "': 7 is not the name"}),
      shard_case("IndexNamesTheWrongShard", [](Shards& s) { s.map["model.norm.weight"] = "a.safetensors"; },
                 {index + "tensor '" + norm + "' is not in a.safetensors"}),
      shard_case("IndexLeavesATensorOut", [](Shards& s) { s.map.erase("model.norm.weight"); },
                 {"tensor '" + norm + "' ([8]) is missing in the safetensors"}),
      shard_case("IndexOfNothing", [](Shards& s) { s.map.clear(); },
                 {index + "key 'weight_map' must be an object"}),
  };
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Files, BadModelDir, testing::ValuesIn(file_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Tensors, BadModelDir, testing::ValuesIn(tensor_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Shards, BadModelDir, testing::ValuesIn(shard_cases()), case_name);

TEST(GoodModelDir, LoadsAndIgnoresLeftoversOfOldExports) {
  const TempDir dir;
  TinyModel model;
  model.add("model.layers.0.self_attn.rotary_emb.inv_freq", {2});
  model.write(dir);
  EXPECT_EQ(load_error(dir), "loaded");
}

TEST(GoodModelDir, LoadsShards) {
  const TempDir dir;
  TinyModel().write(dir);
  Shards().write(dir);
  EXPECT_EQ(load_error(dir), "loaded");
}

std::vector<float> scores_of(const TempDir& dir) {
  RunnerOptions options;
  options.model_dir = dir.path();
  options.backend = "ref";
  options.kv_cache_tokens = 64;
  const auto runner = ModelRunner::load(options);
  EXPECT_TRUE(runner.ok()) << runner.status();
  if (!runner.ok()) return {};
  return (*runner)->logprobs(std::vector<TokenId>{1, 5, 3, 11, 0, 7}).value();
}

bool is_tied(const TempDir& dir) {
  RunnerOptions options;
  options.model_dir = dir.path();
  options.backend = "ref";
  options.kv_cache_tokens = 64;
  const auto runner = ModelRunner::load(options);
  EXPECT_TRUE(runner.ok()) << runner.status();
  return runner.ok() && (*runner)->config().tie_word_embeddings;
}

// Shards may hold a copy that the index does not name, and buffers of old exports.
TEST(GoodModelDir, IndexSaysWhichTensorsCount) {
  const TempDir dir, bare_dir;
  TinyModel().write(dir);
  TinyModel().write(bare_dir);
  Shards shards;
  shards.write(bare_dir);
  const std::string name = shards.b.begin()->first;
  shards.a[name] = shards.b[name];
  shards.a[name].bytes.assign(shards.a[name].bytes.size(), '\0');
  shards.a["model.layers.0.self_attn.rotary_emb.inv_freq"] = shards.a[name];
  shards.write(dir);
  const std::vector<float> scores = scores_of(dir);
  EXPECT_FALSE(scores.empty());
  EXPECT_EQ(scores, scores_of(bare_dir));
}

// Stores the tensor's numbers, rounded to eighths in [-1/2, 1/2], which every type holds exactly, as `dtype`.
void store_as(TinyTensor& tensor, const std::string& dtype) {
  std::string bytes;
  for (size_t at = 0; at < tensor.bytes.size(); at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, tensor.bytes.data() + at, sizeof(value));
    value = std::round(value * 8) / 8;
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t exponent = bits >> 23 & 0xff;
    const uint32_t half =
        value == 0 ? 0 : (bits >> 16 & 0x8000) | (exponent - 112) << 10 | (bits >> 13 & 0x3ff);
    const uint32_t stored = dtype == "F32" ? bits : dtype == "BF16" ? bits >> 16 : half;
    bytes.append(reinterpret_cast<const char*>(&stored), dtype == "F32" ? 4 : 2);
  }
  tensor.dtype = dtype;
  tensor.bytes = std::move(bytes);
}

TEST(GoodModelDir, SameNumbersInAnyTypeGiveTheSameScores) {
  std::vector<std::vector<float>> scores;
  for (const std::vector<std::string>& dtypes :
       {std::vector<std::string>{"F32"}, {"BF16"}, {"F16"}, {"F16", "F32", "BF16", "F32"}}) {
    const TempDir dir;
    TinyModel model;
    size_t next = 0;
    for (auto& [name, tensor] : model.tensors) store_as(tensor, dtypes[next++ % dtypes.size()]);
    model.write(dir);
    scores.push_back(scores_of(dir));
  }
  ASSERT_EQ(scores[0].size(), 5u);
  for (const std::vector<float>& other : scores) EXPECT_EQ(other, scores[0]);
}

TEST(GoodModelDir, TiedHeadIsTheEmbedding) {
  const TempDir untied_dir;
  TinyModel untied;
  untied.tensors["lm_head.weight"] = untied.tensors["model.embed_tokens.weight"];
  untied.write(untied_dir);
  const TempDir tied_dir;
  TinyModel tied;
  tied.config["tie_word_embeddings"] = true;
  tied.tensors.erase("lm_head.weight");
  tied.write(tied_dir);
  EXPECT_EQ(scores_of(tied_dir), scores_of(untied_dir));
}

// As Transformers: a head that is not the embedding is no copy of it, whatever config.json says.
TEST(GoodModelDir, HeadOfItsOwnIsUsedUnderATiedConfig) {
  const TempDir untied_dir, dir;
  TinyModel model;
  model.write(untied_dir);
  model.config["tie_word_embeddings"] = true;
  model.write(dir);
  EXPECT_EQ(scores_of(dir), scores_of(untied_dir));
  EXPECT_FALSE(is_tied(dir));
}

TEST(GoodModelDir, CopyOfTheEmbeddingInAnyTypeStaysTied) {
  const TempDir tied_dir;
  TinyModel model;
  model.config["tie_word_embeddings"] = true;
  TinyTensor& embedding = model.tensors["model.embed_tokens.weight"];
  store_as(embedding, "F32");
  model.tensors.erase("lm_head.weight");
  model.write(tied_dir);
  const std::vector<float> scores = scores_of(tied_dir);
  for (const char* dtype : {"F32", "BF16"}) {
    const TempDir dir;
    TinyTensor copy = embedding;
    store_as(copy, dtype);
    model.tensors["lm_head.weight"] = copy;
    model.write(dir);
    EXPECT_EQ(scores_of(dir), scores);
    EXPECT_TRUE(is_tied(dir)) << dtype;
    // One other number, and it is a head of its own.
    std::string& bytes = model.tensors["lm_head.weight"].bytes;
    bytes[bytes.size() - 1] ^= '\x40';
    model.write(dir);
    EXPECT_FALSE(is_tied(dir)) << dtype;
  }
}

// Not of the vocabulary's size, it cannot be the model's head.
TEST(GoodModelDir, HeadOfAnotherShapeIsIgnoredUnderATiedConfig) {
  const TempDir dir;
  TinyModel model;
  model.config["tie_word_embeddings"] = true;
  model.add("lm_head.weight", {10, 8});
  model.write(dir);
  EXPECT_TRUE(is_tied(dir));
}

// The reference writer pads the header; others may not, and then no tensor is aligned to its type.
TEST(GoodModelDir, MisalignedTensorsGiveTheSameNumbers) {
  std::vector<std::vector<float>> scores;
  for (const size_t spaces : {0, 1, 2, 3}) {
    const TempDir dir;
    const TinyModel model;
    model.write(dir);
    const std::string file = safetensors_of(model.tensors);
    const size_t header_bytes =
        static_cast<unsigned char>(file[0]) + 256u * static_cast<unsigned char>(file[1]);
    dir.write("model.safetensors", safetensors_bytes(file.substr(8, header_bytes) + std::string(spaces, ' '),
                                                     file.substr(8 + header_bytes)));
    scores.push_back(scores_of(dir));
  }
  ASSERT_EQ(scores[0].size(), 5u);
  for (const std::vector<float>& other : scores) EXPECT_EQ(other, scores[0]);
}

}  // namespace bad_model_dir_test
}  // namespace troupe

#pragma once

// The small random checkpoints of tests/fixtures/make_model_goldens.py, written again from the same numbers
// (dummy_weights.h), with Transformers' results for them.

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/json/json.h"
#include "tests/common/temp_dir.h"
#include "tests/worker/model/tiny_model.h"
#include "worker/model/load/dummy_weights.h"
#include "worker/model/sampler.h"

namespace troupe {

struct FamilyCheckpoint {
  std::string name;
  bj::object config;
  std::string dtype;  // of the stored tensors
  int64_t shards = 1;
  int32_t max_model_len = 0;
  std::vector<std::pair<std::string, std::vector<int64_t>>> tensors;
  double bf16_error = 0;  // mean |difference| of Transformers' bfloat16 from its float32
  std::vector<std::vector<TokenId>> ids;
  std::vector<std::vector<double>> logprobs;  // log-probabilities of a sequence's ids after the first

  // Changes a tensor's float32 numbers before they are stored.
  using Edit = std::function<void(const std::string& name, float* values, int64_t count)>;
  void write(const TempDir& dir, const Edit& edit = nullptr) const;
};

// Makes the numbers of the script's random_ids(): the weights' generator does not expose SplitMix64 as
// integers, so it is spelled out.
inline std::vector<TokenId> family_ids(const std::string& name, size_t length, uint64_t vocab_size) {
  uint64_t state = 0xcbf29ce484222325;
  for (const char c : name + "." + std::to_string(length)) {
    state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  std::vector<TokenId> ids;
  while (ids.size() < length) {
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    ids.push_back(static_cast<TokenId>((z ^ (z >> 31)) % vocab_size));
  }
  return ids;
}

inline TinyTensor family_tensor(const std::string& name, const std::vector<int64_t>& shape,
                                const std::string& dtype, const FamilyCheckpoint::Edit& edit) {
  Tensor tensor;
  tensor.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), tensor.shape.begin());
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  tensor.data = values.data();
  fill_random_weight(name, tensor, 1);
  if (edit) edit(name, values.data(), tensor.elements());
  TinyTensor stored{dtype == "bfloat16" ? "BF16" : "F32", shape, {}};
  if (dtype == "bfloat16") {
    stored.bytes.resize(values.size() * sizeof(BFloat16));
    for (size_t i = 0; i < values.size(); ++i) {
      const BFloat16 value = to_bfloat16(values[i]);
      std::memcpy(stored.bytes.data() + i * sizeof(value), &value, sizeof(value));
    }
  } else {
    stored.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  return stored;
}

inline void FamilyCheckpoint::write(const TempDir& dir, const Edit& edit) const {
  dir.write("config.json", bj::serialize(config));
  std::vector<TinyTensors> files(static_cast<size_t>(shards));
  bj::object map;
  const auto file_name = [this](size_t shard) {
    return shards == 1 ? std::string("model.safetensors") : "part-" + std::to_string(shard) + ".safetensors";
  };
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [tensor, shape] = tensors[i];
    const size_t shard = i % files.size();
    files[shard][tensor] = family_tensor(tensor, shape, dtype, edit);
    map[tensor] = file_name(shard);
  }
  for (size_t i = 0; i < files.size(); ++i) dir.write(file_name(i), safetensors_of(files[i]));
  if (shards > 1) dir.write("model.safetensors.index.json", bj::serialize(bj::object{{"weight_map", map}}));
}

inline std::vector<FamilyCheckpoint> read_family_checkpoints() {
  std::vector<FamilyCheckpoint> checkpoints;
  const auto json = read_json_file(TROUPE_SOURCE_DIR "/tests/fixtures/model_goldens.json");
  EXPECT_TRUE(json.ok()) << json.status();
  if (!json.ok()) return checkpoints;
  for (const bj::value& item : json->as_array()) {
    FamilyCheckpoint one;
    one.name = std::string(item.at("name").as_string());
    one.config = item.at("config").as_object();
    one.dtype = std::string(item.at("dtype").as_string());
    one.shards = item.at("shards").to_number<int64_t>();
    one.max_model_len = item.at("max_model_len").to_number<int32_t>();
    one.bf16_error = item.at("bf16_error").to_number<double>();
    for (const auto& [name, shape] : item.at("tensors").as_object()) {
      std::vector<int64_t> sizes;
      for (const bj::value& size : shape.as_array()) sizes.push_back(size.to_number<int64_t>());
      one.tensors.emplace_back(std::string(name), std::move(sizes));
    }
    const auto vocab = item.at("config").at("vocab_size").to_number<uint64_t>();
    for (const bj::value& length : item.at("lengths").as_array()) {
      one.ids.push_back(family_ids(one.name, length.to_number<size_t>(), vocab));
    }
    for (const bj::value& scores : item.at("logprobs").as_array()) {
      one.logprobs.emplace_back();
      for (const bj::value& score : scores.as_array()) {
        one.logprobs.back().push_back(score.to_number<double>());
      }
    }
    checkpoints.push_back(std::move(one));
  }
  return checkpoints;
}

// Read once; never changed.
inline const std::vector<FamilyCheckpoint>& family_checkpoints() {
  static const std::vector<FamilyCheckpoint> checkpoints = read_family_checkpoints();
  return checkpoints;
}

}  // namespace troupe

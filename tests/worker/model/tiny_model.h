#pragma once

// A generated Llama of a few hundred weights, every part of which can be broken: config as JSON, tensors as
// bytes, and the safetensors around them.

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/common/temp_dir.h"
#include "worker/model/sampler.h"

namespace troupe {

// Concatenates 8 bytes of length, the header, the data.
inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return file.append(header).append(data);
}

struct TinyTensor {
  std::string dtype = "F32";
  std::vector<int64_t> shape;
  std::string bytes;
};
using TinyTensors = std::map<std::string, TinyTensor>;

// A valid file of these tensors.
inline std::string safetensors_of(const TinyTensors& tensors) {
  boost::json::object header;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    boost::json::object entry;
    entry["dtype"] = tensor.dtype;
    entry["shape"] = boost::json::array(tensor.shape.begin(), tensor.shape.end());
    const size_t begin = data.size();
    data += tensor.bytes;
    entry["data_offsets"] = boost::json::array{begin, data.size()};
    header[name] = entry;
  }
  return safetensors_bytes(boost::json::serialize(header), data);
}

struct TinyModel {
  boost::json::object config{{"architectures", {"LlamaForCausalLM"}},
                             {"vocab_size", 12},
                             {"hidden_size", 8},
                             {"intermediate_size", 10},
                             {"num_hidden_layers", 2},
                             {"num_attention_heads", 2},
                             {"num_key_value_heads", 1},
                             {"rms_norm_eps", 1e-5},
                             {"max_position_embeddings", 32},
                             {"rope_theta", 10000.0},
                             {"torch_dtype", "float32"}};
  TinyTensors tensors;

  TinyModel() {
    add("model.embed_tokens.weight", {12, 8});
    for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
      const std::string at = layer;
      add(at + "input_layernorm.weight", {8});
      add(at + "self_attn.q_proj.weight", {8, 8});
      add(at + "self_attn.k_proj.weight", {4, 8});
      add(at + "self_attn.v_proj.weight", {4, 8});
      add(at + "self_attn.o_proj.weight", {8, 8});
      add(at + "post_attention_layernorm.weight", {8});
      add(at + "mlp.gate_proj.weight", {10, 8});
      add(at + "mlp.up_proj.weight", {10, 8});
      add(at + "mlp.down_proj.weight", {8, 10});
    }
    add("model.norm.weight", {8});
    add("lm_head.weight", {12, 8});
  }

  void add(const std::string& name, std::vector<int64_t> shape) {
    size_t count = 1;
    for (const int64_t size : shape) count *= static_cast<size_t>(size);
    std::string bytes(count * sizeof(float), '\0');
    for (size_t i = 0; i < count; ++i) {
      const float value = static_cast<float>(counter_uniform(tensors.size() + 1, i) - 0.5);
      std::memcpy(bytes.data() + i * sizeof(float), &value, sizeof(value));
    }
    tensors[name] = {"F32", std::move(shape), std::move(bytes)};
  }

  void write(const TempDir& dir) const {
    dir.write("config.json", boost::json::serialize(config));
    dir.write("model.safetensors", safetensors_of(tensors));
  }
};

}  // namespace troupe

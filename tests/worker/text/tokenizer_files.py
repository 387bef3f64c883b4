"""Parts of tokenizer.json, and whole files out of the vocabularies of TROUPE_DATA/tokenizer_vectors: for
tokenizer_oracle.py and tests/fixtures/make_tokenizers.py."""

import gzip
import json
import struct

QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+")
LLAMA3 = QWEN.replace(r"|\p{N}| ", r"|\p{N}{1,3}| ")


def byte_level(**fields):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False, **fields}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def metaspace(scheme="always", **fields):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True, **fields}


def replace(pattern, content, kind="String"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def strip(start, stop=0, content=" "):
    return {"type": "Strip", "content": content, "start": start, "stop": stop}


def sequence(*stages):
    return {"type": "Sequence", "pretokenizers": list(stages)}


def normalizers(*steps):
    return {"type": "Sequence", "normalizers": list(steps)}


def decoders(*steps):
    return {"type": "Sequence", "decoders": list(steps)}


def surround(before, after=()):
    """A TemplateProcessing; `before` and `after`: [(token, id)]."""
    return {"type": "TemplateProcessing",
            "single": [*({"SpecialToken": {"id": token, "type_id": 0}} for token, _ in before),
                       {"Sequence": {"id": "A", "type_id": 0}},
                       *({"SpecialToken": {"id": token, "type_id": 0}} for token, _ in after)],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {token: {"id": token, "ids": [i], "tokens": [token]} for token, i in [*before, *after]}}


def added(token_id, content, **flags):
    token = {"id": token_id, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": False}
    return {**token, **flags}


# Llama's way, as its tokenizer.json writes it.
SPACES_TO_METASPACE = normalizers({"type": "Prepend", "prepend": "▁"}, replace(" ", "▁"))
LLAMA_DECODER = decoders(replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"}, strip(1))


def tokenizer_json(model, **parts):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": None, "post_processor": None, "decoder": None,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      **model}, **parts}


def changed(base, changes):
    """A tokenizer.json with other parts; those of "model" are put into the model's."""
    return {**base, **changes, "model": {**base["model"], **changes.get("model", {})}}


def load_vocabulary(folder, name):
    with gzip.open(folder / f"vocab/{name}.vocab.json.gz", "rt", encoding="utf-8") as file:
        return json.load(file)


# Letters with case; a digit at a time; Chinese characters apart from the rest.
DEEPSEEK = sequence(split("[\r\n]"), split(r"\s?[\p{Lu}\p{Ll}\p{Lt}]+"), split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"), split(r"\s+$"),
                    split("[一-龥ࠀ-一가-\ud7ff]+".encode("utf-8", "surrogatepass").decode("utf-8")),
                    {"type": "Digits", "individual_digits": True}, byte_level())
BYTE_PRE_TOKENIZERS = {"gpt-2": byte_level(use_regex=True), "mpt": byte_level(use_regex=True), "deepseek-llm": DEEPSEEK}


def byte_json(source):
    """tokenizer.json of a byte-level vocabulary (gpt-2, mpt, deepseek-llm)."""
    kinds, tokens = source["token_type"], source["tokens"]
    own = [added(i, tokens[i], special=kinds[i] == 3, normalized=kinds[i] == 4)
           for i in range(len(tokens)) if kinds[i] in (3, 4)]
    # The package numbers added tokens that the vocabulary lacks by itself, from its end on.
    vocab = {token: i for i, token in enumerate(tokens) if kinds[i] in (1, 3)}
    return tokenizer_json({"vocab": vocab, "merges": source["merges"]}, added_tokens=own,
                          normalizer={"type": "NFC"} if source["pre"] == "mpt" else None,
                          pre_tokenizer=BYTE_PRE_TOKENIZERS[source["pre"]], decoder=byte_level(use_regex=True))


def piece_json(source):
    """tokenizer.json of a SentencePiece vocabulary, its merges found as transformers finds them."""
    kinds, tokens = source["token_type"], source["tokens"]
    vocab = {token: i for i, token in enumerate(tokens)}
    merges = []
    for token, score, kind in zip(tokens, source["scores"], kinds):
        if kind == 1:
            pairs = [(token[:i], token[i:]) for i in range(1, len(token))]
            merges += [(score, len(left), len(right), vocab[left], vocab[right], left, right)
                       for left, right in pairs if left in vocab and right in vocab]
    merges.sort(key=lambda m: (-m[0], -m[1], -m[2], m[3], m[4]))
    own = [added(i, token, special=True) for i, token in enumerate(tokens) if kinds[i] in (2, 3, 4)]
    return tokenizer_json({"vocab": vocab, "merges": [[m[5], m[6]] for m in merges], "unk_token": "<unk>",
                           "fuse_unk": True, "byte_fallback": True},
                          added_tokens=own, normalizer=SPACES_TO_METASPACE, decoder=LLAMA_DECODER)


def varint(value):
    out = b""
    while value > 0x7f:
        out += bytes([value & 0x7f | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, content):
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def piece_model(source):
    """tokenizer.model of a SentencePiece vocabulary: the protocol buffer, written by hand."""
    model, unknown_seen = b"", False
    for token, score, kind in zip(source["tokens"], source["scores"], source["token_type"]):
        # The library takes one unknown piece; further ones of a vocabulary are padding.
        kind = 2 if token == "<unk>" else 5 if kind == 2 else kind
        model += field(1, field(1, token.encode()) + varint(2 << 3 | 5) + struct.pack("<f", score) + field(3, kind))
        unknown_seen |= kind == 2
    assert unknown_seen
    model += field(2, field(3, 2) + field(35, 1))  # BPE, byte_fallback
    return model + field(3, field(3, 1) + field(4, 0))  # add_dummy_prefix, not remove_extra_whitespaces

#!/usr/bin/env python3
"""Holds `troupe-worker tokenize` against the `tokenizers` and `sentencepiece` packages, id for id.

    tokenizer_oracle.py [--cases N] [--seed S] [--vectors DIR] [--only NAME] -- build/bin/troupe-worker tokenize

The vocabularies: the demo model's, those of tests/fixtures/tokenizers, and, of TROUPE_DATA/tokenizer_vectors, every
published one (SentencePiece's both as tokenizer.json and as tokenizer.model). For each, both programs encode N random
strings, and decode N/4 lists of random ids. Variants of the demo tokenizer get a fifth of the strings. Every code point
is encoded where components classify characters. Needs PyPI's `tokenizers` and `sentencepiece`.
Exit 0: no difference. Exit 77: a package is missing.
"""

import argparse
import copy
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import sentencepiece
    import tokenizers
except ImportError as error:
    print(f"SKIPPED: {error}")
    sys.exit(77)

from tokenizer_files import (LLAMA3, QWEN, added, byte_json, byte_level, changed, load_vocabulary, piece_json,
                             piece_model, sequence, split)

ROOT = pathlib.Path(__file__).resolve().parents[3]
FIXTURES = ROOT / "tests/fixtures/tokenizers"
DEMO = ROOT / "configs/demo-model/tokenizer.json"

WORDS = ["'s", "'LL", "'ſ", "don't", "Newton", "宋江", "梁山泊", "Café", "e\u0301", "ﬁ", "1234567", "٣٤٥", "½",
         "\u200d", "👩‍🎨", "\u180e", "\u3000", "\u00a0", "\u0085", "\r\n", "\n\n", "\t", "   ", " ", "<|im_start|>",
         "<|im_end|>", "<|endoftext|>", "<|im_", "|>", "<tool>", "<word>", "<norm\u00e9>", "<norme\u0301>", "한국어",
         "\u1112\u1161\u11ab", "अनुच्छेद", "ǅ", "_", "a_b", "\x00", "\x7f", "．", "—", "…", "\U0001f600"]


def variants(demo):
    """Name, tokenizer.json: the demo tokenizer with one thing or another changed."""
    end = max(demo["model"]["vocab"].values()) + 1

    def variant(**changes):
        result = copy.deepcopy(demo)
        for key, value in changes.items():
            if key in result["model"]:
                result["model"][key] = value
            else:
                result[key] = value
        return result

    yield "demo", demo
    yield "prefix-space", variant(pre_tokenizer=byte_level(add_prefix_space=True, use_regex=True))
    yield "no-regex", variant(pre_tokenizer=byte_level())
    yield "qwen", variant(pre_tokenizer=sequence(split(QWEN), byte_level()), normalizer={"type": "NFC"},
                          ignore_merges=True)
    yield "llama3", variant(
        pre_tokenizer=sequence(split(LLAMA3), byte_level()), ignore_merges=True,
        post_processor={"type": "Sequence", "processors": [
            byte_level(use_regex=True),
            {"type": "TemplateProcessing",
             "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                        {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}],
             "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
             "special_tokens": {
                 "<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]},
                 "<|im_end|>": {"id": "<|im_end|>", "ids": [2], "tokens": ["<|im_end|>"]}}}]})
    for individual in (True, False):
        yield f"digits-{individual}", variant(
            pre_tokenizer=sequence({"type": "Digits", "individual_digits": individual}, byte_level(use_regex=True)))
    for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            yield f"word-{behavior}-{invert}", variant(
                pre_tokenizer=sequence(split(r"\w+", behavior, invert), byte_level()))
            yield f"char-{behavior}-{invert}", variant(
                pre_tokenizer=sequence(split(r"\d|\s|[^\S]", behavior, invert), byte_level()))
        yield f"string-{behavior}", variant(
            pre_tokenizer=sequence(split(" ", behavior, kind="String"), split("'", behavior, True, "String"),
                                   byte_level(use_regex=True)))
    yield "han", variant(pre_tokenizer=sequence(split(r"\p{Han}+|[^\p{Han}\s]\p{M}*"), byte_level()))
    yield "not-space-classes", variant(pre_tokenizer=sequence(split(r"[\S]+|\W|\D"), byte_level()))
    yield "empty-matches", variant(pre_tokenizer=sequence(split(r"\p{Lu}*"), byte_level()))
    yield "bytes-first", variant(pre_tokenizer=sequence(byte_level(), split("Ġ", "MergedWithNext", kind="String")))
    yield "added", variant(added_tokens=demo["added_tokens"] + [
        added(end, "<tool>", lstrip=True, rstrip=True), added(end + 1, "<word>", single_word=True),
        added(end + 2, "<|im_"), added(end + 3, "宋江", normalized=True, rstrip=True),
        added(end + 4, "<norm\u00e9>", normalized=True, lstrip=True), added(end + 5, "a b", special=True)],
        normalizer={"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "NFC"}]})
    yield "nfkc", variant(normalizer={"type": "NFKC"})


# A character or two of every script, and ranges where combining marks and signs live.
SCRIPTS = [(0x20, 0x7f), (0x80, 0x250), (0x300, 0x370), (0x370, 0x530), (0x530, 0x700), (0x900, 0xe00), (0xe00, 0x1100),
           (0x1100, 0x1200), (0x1780, 0x1c00), (0x1d00, 0x2000), (0x2000, 0x2070), (0x2070, 0x2c00), (0x2e00, 0x3400),
           (0xa000, 0xac00), (0xac00, 0xd7a4), (0xf900, 0x10000), (0x10000, 0x11000), (0x11000, 0x12000),
           (0x1d000, 0x1f000), (0x1f000, 0x1fb00), (0x20000, 0x20100), (0, 0x20)]


def random_text(rng, own):
    """`own`: strings that mean something to the tokenizer at hand."""
    parts = []
    for _ in range(rng.randrange(1, 12)):
        kind = rng.random()
        if kind < 0.35:
            parts.append(rng.choice(WORDS))
        elif kind < 0.45:
            word = rng.choice(own)
            begin = rng.randrange(len(word)) if rng.random() < 0.2 else 0
            parts.append(word[begin:])
        elif kind < 0.6:
            parts.append("".join(chr(rng.randrange(0x20, 0x7f)) for _ in range(rng.randrange(1, 12))))
        elif kind < 0.7:
            parts.append("".join(chr(rng.randrange(0x4e00, 0x9fa6)) for _ in range(rng.randrange(1, 6))))
        elif kind < 0.8:
            parts.append(rng.choice("ab \n'1é▁l") * rng.randrange(1, 60))
        elif kind < 0.95:
            parts.append("".join(chr(rng.randrange(*rng.choice(SCRIPTS))) for _ in range(rng.randrange(1, 8))))
        else:
            # Assigned to anybody or not, but no surrogates: those are no text.
            points = (rng.randrange(0x110000) for _ in range(rng.randrange(1, 4)))
            parts.append("".join(chr(p) for p in points if not 0xd800 <= p < 0xe000))
    return "".join(parts)


def run(command, directory, lines, *flags):
    result = subprocess.run([*command, "--model", directory, *flags], input="\n".join(lines) + "\n",
                            capture_output=True, text=True, encoding="utf-8")
    if result.returncode != 0:
        sys.exit(f"{command} ended with {result.returncode}: {result.stderr}")
    return [json.loads(line) for line in result.stdout.split("\n")[:-1]]


def differences(name, what, inputs, ours, theirs):
    assert len(ours) == len(theirs) == len(inputs), (name, what, len(ours), len(theirs))
    wrong = [(i, o, t) for i, o, t in zip(inputs, ours, theirs) if o != t]
    for text, our, their in wrong[:4]:
        print(f"  {name} {what} {text!r}\n    ours   {our}\n    theirs {their}")
    return len(wrong)


class JsonVocabulary:
    def __init__(self, content):
        self.files = {"tokenizer.json": json.dumps(content).encode()}
        self.oracle = tokenizers.Tokenizer.from_str(json.dumps(content))
        self.size = max(max(content["model"]["vocab"].values()), *(t["id"] for t in content["added_tokens"]), 0) + 1
        self.own = [t["content"] for t in content["added_tokens"]] + sorted(content["model"]["vocab"])[:200]

    def encode(self, texts):
        return [encoding.ids for encoding in self.oracle.encode_batch_fast(texts)]

    def decode(self, ids):
        """None where the original's Strip falls over a token that is too short for it."""
        try:
            return self.oracle.decode(ids, skip_special_tokens=False)
        except BaseException as error:  # a Rust panic is no Exception
            if type(error).__name__ != "PanicException":
                raise
            return None


class ModelVocabulary:
    """A bare tokenizer.model."""
    def __init__(self, model):
        self.files = {"tokenizer.model": model}
        self.oracle = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.size = self.oracle.get_piece_size()
        self.own = [self.oracle.id_to_piece(i) for i in range(min(self.size, 500))]

    def encode(self, texts):
        return self.oracle.encode(texts)

    def decode(self, ids):
        return self.oracle.decode(ids)


def check(command, name, vocabulary, texts, rng):
    with tempfile.TemporaryDirectory() as directory:
        for file_name, content in vocabulary.files.items():
            pathlib.Path(directory, file_name).write_bytes(content)
        ours = run(command, directory, [json.dumps(text) for text in texts])
        wrong = differences(name, "encode", texts, ours, vocabulary.encode(texts))
        ids = [[rng.randrange(vocabulary.size if rng.random() < 0.5 else min(vocabulary.size, 270))
                for _ in range(rng.randrange(30))] for _ in range(len(texts) // 4)]
        theirs = [vocabulary.decode(line) for line in ids]
        ids = [line for line, their in zip(ids, theirs) if their is not None]
        ours = run(command, directory, [json.dumps(line) for line in ids], "--decode")
        wrong += differences(name, "decode", ids, ours, [their for their in theirs if their is not None])
    print(f"{name}: {len(texts)} texts and {len(ids)} decodes, {wrong} differences", flush=True)
    return wrong


def fixtures():
    bases = {name: json.loads((FIXTURES / f"{name}.json").read_text(encoding="utf-8")) for name in ("bytes", "pieces")}
    for path in sorted(FIXTURES.glob("*.golden.json")):
        golden = json.loads(path.read_text(encoding="utf-8"))
        content = changed(bases[golden["base"]], golden["changes"])
        yield path.name.removesuffix(".golden.json"), lambda content=content: JsonVocabulary(content)
    for path in sorted(FIXTURES.glob("*.model")):
        yield path.name, lambda path=path: ModelVocabulary(path.read_bytes())


def published(folder):
    for path in sorted((folder / "vocab").glob("*.vocab.json.gz")):
        name = path.name.removesuffix(".vocab.json.gz")
        kind = load_vocabulary(folder, name)["model"]
        if kind == "gpt2":
            yield name, lambda name=name: JsonVocabulary(byte_json(load_vocabulary(folder, name)))
        else:
            yield name + ".json", lambda name=name: JsonVocabulary(piece_json(load_vocabulary(folder, name)))
            yield name + ".model", lambda name=name: ModelVocabulary(piece_model(load_vocabulary(folder, name)))
    for path in sorted((folder / "mistral").glob("*.model.*")):
        yield "mistral/" + path.name, lambda path=path: ModelVocabulary(path.read_bytes())


def vocabularies(vectors):
    """Name, how to load it, its share of the strings, and whether it gets every code point."""
    demo = json.loads(DEMO.read_text(encoding="utf-8"))
    yield "demo", lambda: JsonVocabulary(demo), 1, True
    for name, load in [*fixtures(), *(published(vectors) if vectors.is_dir() else [])]:
        yield name, load, 1, name in ("words", "plain_words", "metaspace_first", "qwen")
    for name, content in variants(demo):
        if name != "demo":
            yield name, lambda content=content: JsonVocabulary(content), 0.2, name == "word-Isolated-False"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--only", help="one vocabulary, by its name")
    parser.add_argument("--vectors", default=os.environ.get("TROUPE_DATA", str(ROOT / "../shared/data")) + "/tokenizer_vectors")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    print(f"seed {args.seed}, tokenizers {tokenizers.__version__}, sentencepiece {sentencepiece.__version__}")
    vectors = pathlib.Path(args.vectors)
    if not vectors.is_dir():
        print(f"SKIPPED: no published vocabularies at {vectors}")
    every = [f"{chr(p)}a{chr(p)}1 {chr(p)}{chr(p)} '{chr(p)}e\u0301" for p in range(0x110000) if not 0xd800 <= p < 0xe000]
    wrong = 0
    for name, load, share, whole in vocabularies(vectors):
        if args.only not in (None, name):
            continue
        rng = random.Random(f"{args.seed} {name}")
        vocabulary = load()
        texts = [random_text(rng, vocabulary.own) for _ in range(int(args.cases * share))]
        # A million lines take a minute.
        texts += every if whole and args.cases >= 100_000 else rng.sample(every, min(args.cases // 10, 2000))
        wrong += check(args.command, name, vocabulary, texts + [""], rng)
    print(f"{wrong} differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

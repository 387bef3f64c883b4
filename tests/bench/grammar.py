#!/usr/bin/env python3
"""The time of token masks under JSON Schema, as an engine asks for them: the mask before every token of answers to schemas of role-play
products, at a vocabulary of 128,256 tokens. The first answer of a schema finds nothing kept, the second all of it."""
import gzip
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

from common import BIN, ROOT, save

SIZE = 128_256
ROUNDS = 7
STRING = {"type": "string"}
CASES = {
    "character state": (
        {"type": "object", "properties": {"name": {"type": "string", "maxLength": 60}, "mood": {"enum": ["happy", "sad", "angry", "neutral"]},
                                          "hp": {"type": "integer", "minimum": 0, "maximum": 100}, "notes": STRING,
                                          "inventory": {"type": "array", "items": {
                                              "type": "object", "properties": {"item": {"type": "string", "pattern": "^[a-z ]+$"}, "count": {"type": "integer"}},
                                              "required": ["item", "count"], "additionalProperties": False}}},
         "required": ["name", "mood", "hp", "notes", "inventory"], "additionalProperties": False},
        {"name": "Song Jiang, the Timely Rain", "mood": "angry", "hp": 73,
         "notes": "He said \"no\" and left the hall.\nThe others followed him, one by one, into the night; 宋江 was silent.",
         "inventory": [{"item": "short sword", "count": 1}, {"item": "wine", "count": 12}, {"item": "old map", "count": 1}]}),
    "free object": ({"type": "object"}, {"scene": {"place": "the marsh", "hour": 23}, "present": ["Wu Yong", "Li Kui"], "rain": True,
                                         "summary": "They agree to wait until the boats have gone, and nobody sleeps that night."}),
    "list of lines": ({"type": "array", "items": {"type": "object", "properties": {"speaker": {"type": "string", "minLength": 1}, "line": STRING},
                                                  "required": ["speaker", "line"]}, "maxItems": 20},
                      [{"speaker": "Lin Chong", "line": "The snow will cover our tracks."}, {"speaker": "Lu Zhishen", "line": "And the wine?"}]),
}


def vocabulary():
    """A published one of 102,400 tokens, and words made of its own until there are enough."""
    path = pathlib.Path(os.environ.get("TROUPE_DATA", ROOT.parent / "shared/data")) / "tokenizer_vectors/vocab/deepseek-llm.vocab.json.gz"
    vocab = json.load(gzip.open(path))
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet |= {chr(256 + place): byte for place, byte in enumerate(byte for byte in range(256) if byte not in printable)}
    tokens = [b""]
    for text, kind in zip(vocab["tokens"], vocab["token_type"]):
        tokens.append(bytes(alphabet[c] for c in text) if kind == 1 and all(c in alphabet for c in text) else b"")
    words = [token for token in tokens if token.isalpha() and len(token) > 3]
    known, place = set(tokens), 0
    while len(tokens) < SIZE:
        word, tail = words[place % len(words)], words[(place * 7 + place // len(words)) % len(words)][:3]
        token, place = b" " + word[:1].upper() + word[1:] + tail, place + 1
        if token not in known:
            known.add(token)
            tokens.append(token)
    return tokens


def encode(text, ids):
    """Longest tokens first."""
    found, at = [], 0
    while at < len(text):
        size = next(size for size in range(min(32, len(text) - at), 0, -1) if text[at:at + size] in ids)
        found.append(ids[text[at:at + size]])
        at += size
    return found


def main():
    tokens = vocabulary()
    ids = {token: place for place, token in enumerate(tokens) if token}
    with tempfile.NamedTemporaryFile("w", suffix=".hex") as file:
        file.write("".join((token.hex() or "-") + "\n" for token in tokens))
        file.flush()
        probe = subprocess.Popen([BIN / "grammar_probe", file.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def ask(question):
            probe.stdin.write(question + "\n")
            probe.stdin.flush()
            return probe.stdout.readline().split()

        rows, firsts, repeats = [], [], []
        for name, (schema, value) in CASES.items():
            answer = encode(json.dumps(value, ensure_ascii=False, indent=1).encode(), ids)
            rounds = []
            for _ in range(ROUNDS):
                compiled = ask(f"compile schema {json.dumps(json.dumps(schema))}")
                rounds.append([[float(word) for word in ask("times " + " ".join(map(str, answer)))] for _ in ("first", "second")])
            for place, (times, into) in enumerate(((firsts, "first"), (repeats, "second"))):
                found = [min(of_mask) for of_mask in zip(*(both[place] for both in rounds))]
                times += found
                found.sort()
                rows.append([name, into, str(len(found)), f"{float(compiled[1]) / 1e3:.1f}", f"{statistics.mean(found):.1f}",
                             f"{found[len(found) // 2]:.1f}", f"{found[len(found) * 99 // 100]:.0f}", f"{found[-1]:.0f}"])
        for times, into in ((firsts, "first"), (repeats, "second")):
            times.sort()
            rows.append(["all", into, str(len(times)), "", f"**{statistics.mean(times):.1f}**", f"{times[len(times) // 2]:.1f}",
                         f"**{times[len(times) * 99 // 100]:.0f}**", f"{times[-1]:.0f}"])
        probe.stdin.close()
        probe.wait()
    save("grammar", f"Token masks under JSON Schema, {SIZE:,} tokens", "tests/bench/grammar.py",
         ["schema", "answer", "masks", "compile ms", "mean µs", "p50 µs", "p99 µs", "max µs"], rows,
         [f"one thread; processor time of each mask before a token of the answer, the least of {ROUNDS} first and second answers, each under a grammar "
          "compiled anew; indented JSON, free whitespace.",
          "vocabulary: deepseek-llm's 102,400 tokens and words made of its own.",
          "goals: mean ≤ 50 µs, p99 ≤ 400 µs, first mask ≤ 1 ms."])


if __name__ == "__main__":
    main()

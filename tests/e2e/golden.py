"""The demo model's goldens: prompts with Transformers' float32 greedy output, and how much of it is beyond doubt."""
import json

from fleet import MODEL_DIR, ROOT

NEAR_TIE = 0.1  # logits closer than this: rounding may decide, and everything after may differ


def byte_of_char():
    """GPT-2's table of the characters that stand for bytes in a byte-level vocabulary."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(b): b for b in plain}
    table.update({chr(0x100 + i): b for i, b in enumerate(b for b in range(256) if b not in plain)})
    return table


class Golden:
    def __init__(self, entry, token_bytes):
        self.messages, self.expect = entry["messages"], entry["expect"]
        self.prompt_count = len(entry["prompt_ids"])
        ids = entry["output_ids"]
        exact = next((i for i, gap in enumerate(entry["gaps"]) if gap < NEAR_TIE), len(ids))
        self.whole = exact == len(ids)
        self.text = b"".join(token_bytes.get(i, b"") for i in ids[:exact]).decode("utf-8", "ignore")

    def check(self, answer):
        if self.whole:
            assert answer == self.text
        else:
            assert answer.startswith(self.text), f"{answer!r} does not begin with {self.text!r}"


def load_goldens():
    tokenizer = json.loads((MODEL_DIR / "tokenizer.json").read_text("utf-8"))
    special = {token["id"] for token in tokenizer["added_tokens"]}
    table = byte_of_char()
    token_bytes = {i: bytes(table[c] for c in token) for token, i in tokenizer["model"]["vocab"].items() if i not in special}
    entries = json.loads((ROOT / "tests/fixtures/demo_golden.json").read_text("utf-8"))
    assert len(entries) == 60
    return [Golden(entry, token_bytes) for entry in entries]

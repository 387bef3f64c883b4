#!/usr/bin/env python3
"""Writes prompts.txt: prompts and answers of tests/fixtures/demo_golden.json as ids, a JSON array a line, for run.sh."""
import json
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
goldens = json.loads((HERE.parent / "fixtures/demo_golden.json").read_text())
# Within a block, over one tile of keys, over several pieces of a decode.
LENGTHS = [2, 40, 130, None]
lines = []
for golden, length in zip(goldens, LENGTHS):
    ids = golden["prompt_ids"] + golden["output_ids"]
    lines.append(json.dumps(ids[:length]))
(HERE / "prompts.txt").write_text("\n".join(lines) + "\n")

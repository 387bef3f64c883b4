#!/usr/bin/env python3
"""What a JSON schema costs a batch: 32 streams at a worker under one, beside 32 free ones of as many tokens. The arms take turns; a rate is
tokens by the worker's CPU seconds, which a busy machine leaves alone, and a ratio the median over rounds of the two's own. Two models: the
demo's, whose steps are so short that whatever else a step does shows, and one of SmolLM2-135M's shape with made-up weights."""
import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import statistics
import tempfile
import time

import httpx

from common import BIN, ROOT, free_ports, running, save
from samplers import CONFIG

STREAMS, TOKENS = 32, 128
SCHEMA = {"type": "array", "minItems": 60, "items": {
    "type": "object", "properties": {"name": {"type": "string", "maxLength": 24}, "mood": {"enum": ["calm", "angry", "sad"]},
                                     "level": {"type": "integer", "minimum": 0, "maximum": 99}, "notes": {"type": "string"}},
    "required": ["name", "mood", "level", "notes"], "additionalProperties": False}}
FORMAT = {"response_format": {"type": "json_schema", "json_schema": {"name": "trackers", "schema": SCHEMA}}}
ARMS = {"free": {}, "one schema": FORMAT}


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(pool, client, url, more, seed):
    def one(index):
        body = {"messages": [{"role": "user", "content": f"Tell me of fox {index}."}], "max_tokens": TOKENS, "ignore_eos": True, "temperature": 0.8,
                "seed": seed * STREAMS + index, "stream": True, "stream_options": {"include_usage": True}, **more}
        with client.stream("POST", f"{url}/v1/chat/completions", json=body) as response:
            assert response.status_code == 200, response.read()
            usage = [line for line in response.iter_lines() if '"completion_tokens"' in line][-1]
        return json.loads(usage[len("data: "):])["usage"]["completion_tokens"]
    return sum(pool.map(one, range(STREAMS)))


def measure(model, flags, rounds):
    (port,) = free_ports(1)
    rates, walls = {arm: [] for arm in ARMS}, {arm: [] for arm in ARMS}
    with running([BIN / "troupe-worker", "--model", model, "--port", port, "--max-num-seqs", STREAMS, *flags]) as worker, \
            httpx.Client(timeout=300, limits=httpx.Limits(max_connections=STREAMS)) as client, concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
        url = f"http://127.0.0.1:{port}"
        for _ in range(300):
            try:
                if client.get(f"{url}/readyz").status_code == 200:
                    break
            except httpx.HTTPError:
                pass
            time.sleep(0.1)
        for index in range(rounds + 1):
            for arm in list(ARMS) if index % 2 else list(reversed(ARMS)):
                began, used = time.monotonic(), cpu_seconds(worker.pid)
                tokens = run(pool, client, url, ARMS[arm], index)
                if index > 0:  # the first finds no grammar and nothing cached
                    rates[arm].append(tokens / (cpu_seconds(worker.pid) - used))
                    walls[arm].append(tokens / (time.monotonic() - began))
    return rates, walls


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    rows = []
    demo = ROOT / "configs/demo-model"
    with tempfile.TemporaryDirectory() as folder:
        for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
            if (demo / name).exists():
                shutil.copy(demo / name, folder)
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(CONFIG))
        for label, model, flags in (("demo", demo, ["--threads", 1]), ("SmolLM2-135M's shape", folder, ["--threads", 2, "--load-format", "dummy"])):
            rates, walls = measure(model, flags, options.rounds)
            ratio = statistics.median(b / a for a, b in zip(rates["free"], rates["one schema"]))
            wall = statistics.median(b / a for a, b in zip(walls["free"], walls["one schema"]))
            rows.append([label, *(f"{statistics.median(rates[arm]):.0f}" for arm in ARMS), f"**{ratio:.3f}**", f"{wall:.3f}"])
    save("structured", f"Structured answers: {STREAMS} streams under a JSON schema", "tests/bench/structured.py",
         ["model", "free: tokens a CPU s", "one schema: tokens a CPU s", "ratio", "ratio of wall time"], rows,
         [f"median of {options.rounds} rounds of {TOKENS} tokens a stream, in turns; goal of the ratio: .95; the demo's vocabulary of 4,096 tokens, in the larger model of 49,152 rows."])


if __name__ == "__main__":
    main()

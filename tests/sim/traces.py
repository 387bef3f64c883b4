"""Traces of TROUPE_DATA as troupe-sim reads them, for gates.py and study.py. Each is written into a folder; what comes back is what
replay needs besides. Mooncake's is one already."""
import csv
import datetime
import gzip
import json
import os
import pathlib
import random

DATA = pathlib.Path(os.environ.get("TROUPE_DATA", pathlib.Path(__file__).resolve().parents[3] / "shared/data"))
MOONCAKE = DATA / "mooncake/conversation_first30min.jsonl.gz"
SAMPLES_1024 = DATA / "ppl_llm_serving/samples_1024_token_lengths.csv"


def exponential(draw, mean):
    return draw.expovariate(1 / mean)


def samples_1024(folder, seed=1):
    """The control: one-shot prompts that share nothing, twenty rounds of the list at 300/s (Poisson, drawn by `seed`). Nobody can
    gain; nobody may lose."""
    lengths = [tuple(map(int, row.split(",")[1:3])) for row in SAMPLES_1024.read_text().splitlines()[1:]]
    draw, at, next_id = random.Random(seed), 0.0, 1
    with gzip.open(folder / "samples.jsonl.gz", "wt", compresslevel=1) as out:
        for prompt, answer in lengths * 20:
            blocks = -(-max(prompt, 1) // 16)
            out.write(json.dumps({"timestamp": round(at, 3), "input_length": max(prompt, 1), "output_length": answer,
                                  "block_size": 16, "hash_ids": list(range(next_id, next_id + blocks))}) + "\n")
            next_id += blocks
            at += exponential(draw, 1000 / 300)
    return {"trace": folder / "samples.jsonl.gz", "spread-ms": 0, "warmup-s": 10}


def agent_sessions(folder):
    """Real coding-agent sessions: 100 of them begin within three minutes (Poisson), the first 25 requests of each, think times
    as recorded but at most 30 s; prompts over 100,000 tokens end a session. Heads of one (tool, system) length are one head."""
    draw, requests, heads = random.Random(1), [], {}
    with gzip.open(DATA / "kv_cache_tester/sessions_even.jsonl.gz", "rt") as lines:
        sessions = [json.loads(line) for _, line in zip(range(100), lines)]
    start = 0.0
    for number, session in enumerate(sessions):
        start += exponential(draw, 180 / len(sessions))
        head = session["tool_tokens"] + session["system_tokens"]
        shared = heads.setdefault((session["tool_tokens"], session["system_tokens"]), len(heads) + 1)
        at, last = start, None
        for request in [r for r in session["requests"] if r["type"] in "ns"][:25]:
            if request["in"] > 100_000:
                break
            at += 0 if last is None else min(request["t"] - last, 30)
            last = request["t"]
            ids = [i for begin, count in zip(request["runs"][::2], request["runs"][1::2]) for i in range(begin, begin + count)]
            ids = [(shared << 24) + i if i * 64 <= head else ((number + 1) << 32) + i for i in ids]
            requests.append((at, {"input_length": request["in"], "output_length": max(request["out"], 1), "block_size": 64,
                                  "session": f"s{number}", "hash_ids": ids}))
    requests.sort(key=lambda pair: pair[0])
    with gzip.open(folder / "agents.jsonl.gz", "wt", compresslevel=1) as out:
        for at, request in requests:
            out.write(json.dumps({"timestamp": round((at - requests[0][0]) * 1000, 3), **request}) + "\n")
    return {"trace": folder / "agents.jsonl.gz", "spread-ms": 0, "warmup-s": 60, "slo-ttft-ms": 5000, "slo-tpot-ms": 50}


def azure_2023(folder):
    """Half an hour of a production chat service: arrivals and lengths as recorded, thirty times as fast. It tells of no prefixes, so
    none are shared: like samples_1024 a control, with real arrivals."""
    with gzip.open(DATA / "azure_llm_2023/conv_first30min.csv.gz", "rt") as lines:
        rows = list(csv.DictReader(lines))
    begin, next_id = None, 1
    with gzip.open(folder / "azure.jsonl.gz", "wt", compresslevel=1) as out:
        for row in rows:
            at = datetime.datetime.fromisoformat(row["TIMESTAMP"][:26])
            begin = begin or at
            prompt = max(int(row["ContextTokens"]), 1)
            blocks = -(-prompt // 16)
            out.write(json.dumps({"timestamp": round((at - begin).total_seconds() * 1000, 3), "input_length": prompt, "block_size": 16,
                                  "output_length": max(int(row["GeneratedTokens"]), 1),
                                  "hash_ids": list(range(next_id, next_id + blocks))}) + "\n")
            next_id += blocks
    return {"trace": folder / "azure.jsonl.gz", "spread-ms": 0, "rate-scale": 30, "warmup-s": 10}

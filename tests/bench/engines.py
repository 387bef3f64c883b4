#!/usr/bin/env python3
"""A whole 0.5 B model in bfloat16 on this CPU: decode against a loop that reads as many bytes, prefill against oneDNN's own large
product, both against Transformers and llama.cpp on the same weights, steps of 1 to 32 requests, int8 weights, and a hit's first token
against its floor. Every engine is a process that answers one short question at a time while the others wait; ratios are medians over rounds.

The other engines run where TROUPE_BENCH_PYTHON (a list of Pythons, separated by colons) has them. Whoever is missing is left out, and the
table says so. To have both:
  python3 -m venv peers && peers/bin/pip install torch transformers numpy llama-cpp-python gguf
  TROUPE_BENCH_PYTHON=peers/bin/python tests/bench/engines.py --threads 1 2"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from common import BIN, ROOT, save

CONFIG = dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=896, intermediate_size=4864, num_hidden_layers=24,
              num_attention_heads=14, num_key_value_heads=2, vocab_size=151936, max_position_embeddings=4096, rms_norm_eps=1e-6, rope_theta=1e6,
              tie_word_embeddings=True, torch_dtype="bfloat16", hidden_act="silu", attention_bias=False, bos_token_id=1, eos_token_id=2)
PROMPT, KEYS, STEPS = 512, 64, 8
BATCHES = [1, 2, 4, 8, 16, 32]
FEW_ROUNDS = 5


def products():
    """Parameters that a step multiplies by: of the layers, and of the head."""
    c = CONFIG
    head_dim = c["hidden_size"] // c["num_attention_heads"]
    attention = c["hidden_size"] * head_dim * (2 * c["num_attention_heads"] + 2 * c["num_key_value_heads"])
    return c["num_hidden_layers"] * (attention + 3 * c["hidden_size"] * c["intermediate_size"]), c["vocab_size"] * c["hidden_size"]


def prefill_flops(tokens):
    layers, head = products()
    attention = 4 * CONFIG["num_hidden_layers"] * CONFIG["hidden_size"] * tokens * (tokens + 1) / 2
    return 2 * layers * tokens + 2 * head + attention


class Engine:
    """A process that answers questions; `name` is the first line it prints."""

    def __init__(self, command):
        self.process = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.name = self.process.stdout.readline().strip()

    def ask(self, question):
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"error: {self.name} ended at {question!r}")
        return float(answer)

    def end(self):
        self.process.stdin.close()
        self.process.wait(30)


def start_peer(kind, model_dir, threads):
    for python in os.environ.get("TROUPE_BENCH_PYTHON", sys.executable).split(":"):
        engine = Engine([python, ROOT / "tests/bench/peers.py", kind, model_dir, threads])
        if engine.name:
            return engine
        if engine.process.wait(30) != 3:
            print(f"engines.py: {kind} failed in {python}", file=sys.stderr)
    print(f"engines.py: SKIPPED {kind}: no Python of TROUPE_BENCH_PYTHON has it", file=sys.stderr)
    return None


def interleaved(rounds, questions):
    """questions: key → (engine, question); answers: key → one a round, asked in turns. The first round warms up."""
    answers = {key: [] for key in questions}
    for number in range(rounds + 1):
        for key, (engine, question) in questions.items():
            seconds = engine.ask(question)
            if number > 0:
                answers[key].append(seconds)
    return answers


def ratio(over, under):
    return statistics.median(a / b for a, b in zip(over, under))


def ms(seconds):
    return f"{statistics.median(seconds) * 1e3:.1f} ms"


def one_request(rounds, ours, peers, more=None, label=""):
    """Decode against reading, prefill against oneDNN's product, both against the peers, all with as many threads. `more`: key → engine, asked
    the same in the same turns. Returns rows, and the answers of decode and of prefill."""
    layers, head = products()
    weight_bytes = 2 * (layers + head)
    engines = {"ours": ours, **(more or {}), **{kind: engine for kind, engine in peers.items() if engine}}
    decode = interleaved(rounds, {"read": (ours, f"read {weight_bytes}"), **{key: (engine, f"decode 1 {KEYS} {STEPS}") for key, engine in engines.items()}})
    prefill = interleaved(rounds, {"product": (ours, "product"), **{key: (engine, f"prefill {PROMPT}") for key, engine in engines.items()}})
    share = statistics.median(prefill_flops(PROMPT) / s / p for s, p in zip(prefill["ours"], prefill["product"]))
    steps = ((f"decode, 1 request{label}", decode), (f"prefill, {PROMPT} tokens{label}", prefill))
    rows = [[steps[0][0], ms(decode["ours"]), f"reading {weight_bytes >> 20} MiB: {ms(decode['read'])}", f"**{ratio(decode['read'], decode['ours']):.2f}**"],
            [steps[1][0], ms(prefill["ours"]), f"oneDNN's product: {statistics.median(prefill['product']) / 1e9:.0f} GFLOP/s", f"**{share:.2f}**"]]
    for kind, engine in peers.items():
        for what, answers in steps:
            if engine is None:
                rows.append([what, ms(answers["ours"]), f"{kind}: not found, not measured", ""])
            else:
                rows.append([what, ms(answers["ours"]), f"{engine.name}: {ms(answers[kind])}", f"**{ratio(answers[kind], answers['ours']):.2f}**"])
    return rows, decode, prefill


def measure(args, ours, int8, peers):
    rows, decode, prefill = one_request(args.rounds, ours, peers, {"int8": int8})
    rows.append(["decode, 1 request, int8", ms(decode["int8"]), f"bfloat16: {ms(decode['ours'])}", f"**{ratio(decode['ours'], decode['int8']):.2f}**"])
    rows.append([f"prefill, {PROMPT} tokens, int8", ms(prefill["int8"]), f"bfloat16: {ms(prefill['ours'])}", f"**{ratio(prefill['ours'], prefill['int8']):.2f}**"])

    batches = interleaved(args.rounds, {n: (ours, f"decode {n} {KEYS} {max(1, STEPS // 2)}") for n in BATCHES})
    for n in BATCHES[1:]:
        rows.append([f"decode, {n} requests", ms(batches[n]), f"tokens/s, × those of 1 request ({ms(batches[1])})", f"**{n * ratio(batches[1], batches[n]):.1f}**"])
    hit = interleaved(args.rounds, {"hit": (ours, "hit 1536 64"), "new": (ours, "prefill 64"), "step": (ours, "decode 1 1536 1")})
    floor = [a + b for a, b in zip(hit["new"], hit["step"])]
    rows.append(["hit: 1536 tokens cached, 64 new", ms(hit["hit"]), f"floor: 64 tokens alone + one step: {ms(floor)}", f"**{ratio(hit['hit'], floor):.2f}**"])
    return rows


def run(args, model_dir, threads, is_first):
    """Rows and our engine's name with so many threads: everything, or (not the first) one request in a few rounds."""
    ours = Engine([BIN / "model_bench", model_dir, threads])
    int8 = Engine([BIN / "model_bench", model_dir, threads, "int8"]) if is_first else None
    peers = {kind: start_peer(kind, model_dir, threads) for kind in ("transformers", "llama.cpp")}
    if is_first:
        rows = measure(args, ours, int8, peers)
    else:
        rows = one_request(min(args.rounds, FEW_ROUNDS), ours, peers, label=f", {threads} threads")[0]
    for engine in [ours, int8, *peers.values()]:
        if engine:
            engine.end()
    return rows, ours.name


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[os.cpu_count()], metavar="N",
                        help="of every engine and of what it is held against; with more than one number, the others for one request alone")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--model-dir", help="where the 1 GB of weights is kept for the next time (default: a temporary folder)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        model_dir = pathlib.Path(args.model_dir or scratch)
        model_dir.mkdir(parents=True, exist_ok=True)
        (model_dir / "config.json").write_text(json.dumps(CONFIG))
        if not (model_dir / "model.safetensors").exists():
            subprocess.run([BIN / "model_bench", model_dir, "write"], check=True)
        runs = [run(args, model_dir, threads, is_first=i == 0) for i, threads in enumerate(args.threads)]
    save("engines", "A whole 0.5 B model, bfloat16, on the CPU", f"TROUPE_BENCH_PYTHON=… tests/bench/engines.py --threads {' '.join(map(str, args.threads))}", ["step", "ours", "beside it in the same run", "ratio"],
         [row for rows, _ in runs for row in rows],
         [f"{runs[0][1]}. Medians of {args.rounds} rounds in turns ({min(args.rounds, FEW_ROUNDS)} with other numbers of threads); greedy sampling included.",
          f"Ratios are how many times faster than what stands beside it, but of a hit its time over its floor. A Llama of Qwen2.5-0.5B's shape, "
          f"random weights, the same in every engine; decode behind {KEYS} tokens.",
          "Goals: decode ≥ 0.90 of reading, prefill ≥ 0.70 of the product, ahead of both engines, a hit ≤ 1.7 × its floor (uncached tokens and one step)."])


if __name__ == "__main__":
    main()

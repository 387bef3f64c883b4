#!/usr/bin/env python3
"""Fits a node profile (configs/sim/*.yaml) to a real worker: measures its steps through HTTP and prints the figures.

    tests/bench/calibrate_profile.py                          the demo model on one core, as in deploy/local/run.sh
    tests/bench/calibrate_profile.py --write configs/sim/cpu-demo.yaml

A decode step's time is the mean time between two tokens while `batch` requests decode and nothing else; a prefill's is the time
to the first token of a prompt that nobody has sent before. Both are the worker's own (vllm:inter_token_latency_seconds and
vllm:time_to_first_token_seconds), so neither HTTP nor a tokenizer nor a busy client is in the figures. The fit is of least
absolute relative errors with no figure below 0. On a busy machine the figures are too large: the profile says the load. There
`chrt -r 1 tests/bench/calibrate_profile.py` (as root) measures before everybody else's work; it takes half a minute of a core.
"""
import argparse
import concurrent.futures
import datetime
import itertools
import os
import pathlib
import random
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e")]

import httpx  # noqa: E402

from fleet import MODEL_DIR, Worker  # noqa: E402

# What a sample's time is made of: the profile's keys, and what a worker that rested takes longer for its first step.
TERMS = ["weights_us", "decode_token_us", "decode_context_ns", "prefill_context_ns", "prefill_token_us", "prefill_pair_ns", "rest_us"]
VOCAB_SIZE, CHUNK, KV_TOKENS = 4096, 512, 65536


class CalibratedWorker(Worker):
    OWN_FLAGS = ("--model", MODEL_DIR, "--threads", 1, "--kv-cache-tokens", KV_TOKENS, "--max-num-batched-tokens", CHUNK)


def complete(client, url, prompt, max_tokens):
    body = {"model": "demo-model", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
    response = client.post(f"{url}/v1/completions", json=body)
    assert response.status_code == 200, response.text


def latency(client, url, name):
    """Sum in seconds and count of one of the worker's histograms."""
    text = client.get(f"{url}/metrics").text
    values = [next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name + kind + "{"))
              for kind in ("_sum", "_count")]
    return values


class Measurement:
    def __init__(self, url, rounds, rest_s):
        self.url, self.rounds, self.rest_s = url, rounds, rest_s
        self.random = random.Random(1)  # prompts that share nothing with each other
        self.samples = []  # (coefficients of TERMS, microseconds, what)

    def prompt(self, count):
        return [self.random.randrange(300, VOCAB_SIZE) for _ in range(count)]

    def add(self, coefficients, seconds, what):
        self.samples.append((coefficients, seconds * 1e6, what))
        print(f"{what:24} {seconds * 1e3:9.3f} ms", file=sys.stderr, flush=True)

    def prefill(self, client, count, context=0):
        """Of `count` tokens behind a context that is cached, as a conversation's next turn is."""
        times = []
        for _ in range(2 * self.rounds):
            shared = self.prompt(context)
            if context:
                complete(client, self.url, shared + self.prompt(17), 1)
            before = latency(client, self.url, "vllm:time_to_first_token_seconds")
            time.sleep(self.rest_s)
            complete(client, self.url, shared + self.prompt(count), 1)
            times.append(latency(client, self.url, "vllm:time_to_first_token_seconds")[0] - before[0])
        chunks = range(context, context + count, CHUNK)
        pairs = count * context + count * (count + 1) / 2
        # A core that rested is fast one time and half as slow again another: requests meet the mix.
        typical = statistics.mean if self.rest_s else statistics.median
        self.add([len(chunks), 0, 0, sum(chunks) / 1000, count, pairs / 1000, 1 if self.rest_s else 0], typical(times),
                 f"prefill of {count} behind {context}")

    def decode(self, client, batch, context):
        """A window in which all of them decode."""
        tokens, gaps = 160 + 4 * batch, []
        for _ in range(self.rounds):
            with concurrent.futures.ThreadPoolExecutor(batch) as pool:
                requests = [pool.submit(complete, client, self.url, self.prompt(context), tokens) for _ in range(batch)]
                self.wait_until_running(client, batch)
                before = latency(client, self.url, "vllm:inter_token_latency_seconds")
                time.sleep(0.03)
                after = latency(client, self.url, "vllm:inter_token_latency_seconds")
                decoding = not any(request.done() for request in requests)
                for request in requests:
                    request.result()
            if decoding and after[1] > before[1]:
                gaps.append((after[0] - before[0]) / (after[1] - before[1]))
        if gaps:
            self.add([1, batch, batch * (context + tokens / 2) / 1000, 0, 0, 0, 0], statistics.median(gaps),
                     f"decode of {batch} at {context}")
        else:
            print(f"decode of {batch} at {context}: over before it was seen", file=sys.stderr)

    def wait_until_running(self, client, count):
        for _ in range(1000):
            load = client.get(f"{self.url}/v1/load").json()
            if load["running"] >= count and load["pending_prefill_tokens"] == 0:
                return
            time.sleep(0.002)


def solve(matrix, right):
    """Gauss with pivoting; a few unknowns."""
    n = len(right)
    rows = [list(row) + [value] for row, value in zip(matrix, right)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(n):
            if r != i:
                factor = rows[r][i] / rows[i][i]
                rows[r] = [a - factor * b for a, b in zip(rows[r], rows[i])]
    return [rows[i][n] / rows[i][i] for i in range(n)]


def errors(samples, figures):
    return [sum(c * figures[term] for c, term in zip(coefficients, TERMS)) / us - 1 for coefficients, us, _ in samples]


def fit(samples):
    """Least absolute relative errors (a disturbed sample then counts no more than others), by weighted least squares."""
    weights = [1.0] * len(samples)
    for _ in range(40):
        figures = fit_squares(samples, weights)
        weights = [1 / max(0.02, abs(error)) for error in errors(samples, figures)]
    return figures


def fit_squares(samples, weights):
    """Weighted least squares of relative errors, nothing below 0: the best of all choices of figures that are 0."""
    best = None
    for size in range(len(TERMS), 0, -1):
        for kept in itertools.combinations(range(len(TERMS)), size):
            rows = [[coefficients[k] / us * weight**0.5 for k in kept] for (coefficients, us, _), weight in zip(samples, weights)]
            right = [weight**0.5 for weight in weights]
            normal = [[sum(row[i] * row[j] for row in rows) for j in range(size)] for i in range(size)]
            try:
                found = solve(normal, [sum(row[i] * value for row, value in zip(rows, right)) for i in range(size)])
            except ZeroDivisionError:
                continue
            error = sum((sum(a * b for a, b in zip(row, found)) - value) ** 2 for row, value in zip(rows, right))
            if min(found) >= 0 and (best is None or error < best[0]):
                best = (error, dict(zip((TERMS[k] for k in kept), found)))
        if best:
            break
    return {term: best[1].get(term, 0.0) for term in TERMS}


def cpu_name():
    with open("/proc/cpuinfo") as info:
        return next(line.split(":", 1)[1].strip() for line in info if line.startswith("model name"))


def profile_text(figures, misses, loads):
    figures = {term: f"{value:.4g}" for term, value in figures.items()}
    ahead = os.sched_getscheduler(0) in (os.SCHED_RR, os.SCHED_FIFO)
    meaning = ("at real-time priority: others' work waited" if ahead
               else "1 is this worker alone; more makes the figures too large")
    return f"""# troupe-worker on the demo model (configs/demo-model, bfloat16), one compute thread of a CPU. MEASURED by
# tests/bench/calibrate_profile.py on {datetime.date.today()}, {cpu_name()}, load {loads}
# ({meaning}). Error of the fit: {statistics.median(misses):.0%} median, {max(misses):.0%} worst.

# What deploy/local/run.sh gives a worker.
kv_cache_tokens: 32768

# The worker's default.
block_size: 16

# The worker's default.
max_num_seqs: 64

# The worker's default.
max_num_batched_tokens: 512

# The model's own.
max_model_len: 2048

step:
  # One core does one thing after the other.
  overlap: sum
  # Not told apart from weights_us by measuring: in it.
  overhead_us: 0
  # Fitted: what a step takes whatever its batch.
  weights_us: {figures['weights_us']}
  # Fitted on batches of 1 to 16.
  decode_token_us: {figures['decode_token_us']}
  # Fitted on contexts of 64 to 1,024.
  decode_context_ns: {figures['decode_context_ns']}
  # Fitted on 16 to 128 tokens behind up to 1,600 that are cached: once a chunk, however few it has.
  prefill_context_ns: {figures['prefill_context_ns']}
  # Fitted on the same, and on prompts of 1 to 1,900 tokens.
  prefill_token_us: {figures['prefill_token_us']}
  # Fitted on the same.
  prefill_pair_ns: {figures['prefill_pair_ns']}
"""


def measure(rounds, rest_s=0):
    """Samples of a worker of its own; before each prompt it may rest, as one does that has little to do."""
    worker = CalibratedWorker(0, os.environ.get("TMPDIR", "/tmp"))
    try:
        worker.wait_ready()
        with httpx.Client(timeout=120, limits=httpx.Limits(max_connections=None)) as client:
            measurement = Measurement(worker.url, rounds, rest_s)
            complete(client, worker.url, measurement.prompt(64), 16)
            for count in (1, 16, 32, 128, 300, 512, 1024, 1900):
                measurement.prefill(client, count)
            for count, context in itertools.product((16, 32, 64, 128), (320, 640, 960, 1600)):
                measurement.prefill(client, count, context)
            for batch, context in itertools.product((1, 4, 16), (64, 512, 1024)):
                measurement.decode(client, batch, context)
    finally:
        worker.stop()
    return measurement.samples


def fitted_profile(samples):
    figures = fit(samples)
    misses = errors(samples, figures)
    for (_, us, what), miss in zip(samples, misses):
        print(f"{what:24} fitted {us * (1 + miss) / 1000:9.3f} ms  {miss:+.0%}", file=sys.stderr)
    return profile_text(figures, [abs(miss) for miss in misses], "/".join(f"{load:.1f}" for load in os.getloadavg()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="repetitions; the one in the middle counts")
    parser.add_argument("--write", type=pathlib.Path, help="file to write the profile to")
    args = parser.parse_args()
    text = fitted_profile(measure(args.rounds))
    if args.write:
        args.write.write_text(text)
    print(text)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What merging prompts and decodes into one step brings: the rate that one simulated node sustains (`troupe-sim capacity`, TTFT
within 2 s and 50 ms a token for 99 % of the requests) with merged steps, with separate ones and with static batches. The traffic:
conversations with personas, whose cards and turns are found in the cache; and single questions that share nothing, with the
lengths of the 1,024 that ppl.llm.serving measures itself with ($TROUPE_DATA/ppl_llm_serving; skipped where they are absent).
Nothing is timed: the same seeds give the same figures anywhere."""
import dataclasses
import json
import os
import pathlib
import subprocess
import tempfile

from common import BIN, ROOT, save
from question_trace import read_lengths, write_questions

DATA = pathlib.Path(os.environ.get("TROUPE_DATA", ROOT.parent / "shared/data"))
LENGTHS = DATA / "ppl_llm_serving/samples_1024_token_lengths.csv"
PROFILES = ["h200-llama-3.1-8b", "h200-llama-2-13b", "l40s-qwen2.5-7b"]
ARMS = {"merged": ["--batching", "merged"],
        "merged, prompts within 45 ms": ["--batching", "merged", "--tpot-budget-ms", 45],
        "separate": ["--batching", "separate"],
        "static": ["--batching", "static"]}
LIMITS = ["--slo-ttft-ms", 2000, "--slo-tpot-ms", 50]
KEEPS_UP = ["--slo-ttft-ms", 60_000, "--slo-tpot-ms", 1_000_000]  # nobody reads along, but the queue must not grow
SEEDS = [1, 2, 3]
RATE = 16  # of all traffic as it is made; loads are multiples of it
PERSONAS = ["--personas", 50, "--card-tokens-max", 3000, "--context", 4096, "--rate", RATE, "--duration-s", 1000]
PERSONAS_WARMUP_S = 400
RATE_MIN = 0.4  # requests/s; what does not sustain these is not searched further
QUESTIONS, QUESTIONS_WARMUP_S = 12_000, 120

READING = [
    "Merged steps win because a prompt is computed while weights and KV are read for the decodes anyway (the profiles count the slower of "
    "the two), and nobody's answer stands still meanwhile; where it does, answers take longer and keep their places longer. The gain is "
    "largest where a prompt's step is long beside the 50 ms, and least where places or KV memory run out first (questions on an H200: TTFT "
    "breaks while a token takes 13 to 22 ms).",
    "Who asks a static batch waits for its longest answer: with answers of up to 1,051 tokens that is more than 2 s whenever anybody is "
    "there. What such batches can do shows where 60 s are allowed: then little more is asked than that the queue of 1,024 does not overflow.",
    "Each rate of the persona traffic draws its own conversations, and a cache that begins to thrash tips over at once: differences of a "
    "tenth between persona rows say nothing."]


def simulate(command, flags, folder):
    report = folder / "report.json"
    subprocess.run([str(part) for part in [BIN / "troupe-sim", command, "--nodes", 1, *flags, "--report", report]], check=True, cwd=ROOT,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return json.loads(report.read_text())


def replay(traffic, flags, load, folder):
    """The run at so many times the traffic's own rate of 16 requests/s, which is what capacity calls its load."""
    warmup_s = traffic.warmup_s / load if traffic.is_trace else traffic.warmup_s
    return simulate("replay", [*flags, "--warmup-s", warmup_s, "--rate-scale", load], folder)


def p99s(run):
    return f'{run["ttft_ms"]["p99"]:,.0f} ms, {run["tpot_ms"]["p99"]:.0f} ms'


@dataclasses.dataclass
class Traffic:
    name: str
    flags: object  # of a seed
    limits: list
    warmup_s: float
    is_trace: bool


def measure(traffic, profile, arm, folder):
    """(median of the seeds' rates, the row's other cells); None: less than RATE_MIN, for one seed at least."""
    runs = []
    for seed in SEEDS:
        flags = [*traffic.flags(seed), *traffic.limits, "--profile", profile, "--seed", seed, *ARMS[arm]]
        least = replay(traffic, flags, RATE_MIN / RATE, folder)
        if least["goodput"] < 0.99:
            return None, ["", "", p99s(least), ""]
        found = simulate("capacity", [*flags, "--warmup-s", traffic.warmup_s, "--steps", 6], folder)
        runs.append((found["sustainable_rate"], found, flags))
    runs.sort(key=lambda run: run[0])
    rate, found, flags = runs[len(runs) // 2]
    above = replay(traffic, flags, found["load"] * 1.1, folder)
    return rate, [f"{runs[0][0]:.1f} to {runs[-1][0]:.1f}", p99s(found), p99s(above), f'{found["hit_tokens"]:.2f}']


def traffics(folder):
    yield Traffic("personas", lambda seed: PERSONAS, LIMITS, PERSONAS_WARMUP_S, False)
    if not LENGTHS.exists():
        print(f"SKIPPED questions: {LENGTHS} is not there (TROUPE_DATA names its folder)", flush=True)
        return
    for seed in SEEDS:
        write_questions(folder / f"questions{seed}.jsonl", read_lengths(LENGTHS), QUESTIONS, RATE, seed)

    def of_seed(seed):
        return ["--trace", folder / f"questions{seed}.jsonl", "--spread-ms", 0]

    yield Traffic("questions", of_seed, LIMITS, QUESTIONS_WARMUP_S, True)
    yield Traffic("questions, TTFT within 60 s", of_seed, KEEPS_UP, QUESTIONS_WARMUP_S, True)


def main():
    rows, ratios = [], {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for traffic in traffics(folder):
            for profile in PROFILES:
                rates = {}
                for arm in ARMS:
                    rate, cells = measure(traffic, profile, arm, folder)
                    rates[arm] = rate
                    shown = [f"{rate:.1f}", f'{rate / rates["merged"]:.2f}'] if rate else [f"< {RATE_MIN}", ""]
                    rows.append([traffic.name, profile, arm, *shown, *cells])
                    print(*rows[-1], sep="\t", flush=True)
                ratios.setdefault(traffic.name, []).append(f'{rates["merged"] / rates["separate"]:.2f}')
    save("batching", "Merged steps, separate ones, static batches: what one node sustains, simulated", "tests/bench/batching.py",
         ["traffic", "node", "steps", "requests/s", "of merged", "of the seeds", "p99 of TTFT, a token", "p99 a tenth above", "hit"], rows,
         [f"The highest rate at which 99 % of the requests have TTFT within 2 s and 50 ms a token (a request's mean), median of {len(SEEDS)} "
          f"seeds; where {RATE_MIN} requests/s are too many for one of them, the p99 are those of that rate. Batches of at most 256, as all.",
          "Merged over separate: " + "; ".join(f"{name}: {', '.join(values)}" for name, values in ratios.items()) + ".",
          "\"Prompts within 45 ms\": merged steps whose prompt chunks are cut to that time (tpot_budget), the limit of 50 ms being known; "
          "steps of one kind have no such setting.",
          *READING])


if __name__ == "__main__":
    main()

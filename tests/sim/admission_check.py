#!/usr/bin/env python3
"""Is the simulated queue right? One trace with a viral persona through real processes and through the simulator, with one
configuration of admission.*.

    tests/sim/admission_check.py [--seeds 3]    writes tests/bench/results/admission_check.json
    tests/sim/admission_check.py --seeds 1 --no-save

Workers with --device sim, a gateway whose workers are full with a few requests, and four times the traffic that they can bear for some
seconds, three quarters of it for one persona. `troupe-sim drive` sends the trace; `troupe-sim replay` simulates the same trace. Goals:
as many 429s and 503s, and waits in the queue, mean and p90, within 5 %. (The live gateway's waits are its access log's. Their median is
no goal: it lies between the short waits of most personas and the long ones of the viral one, where a few requests move it far.) A
machine busy with something else makes live answers later, and with them waits and refusals.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE.parent / "bench")]

import common  # noqa: E402
from fleet import BIN, Fleet, SimWorker  # noqa: E402

WORKERS = 2
ADMISSION = ("--admission.worker-requests", 4, "--admission.queue", 24, "--admission.queue-timeout-ms", 2500)
# An answer takes half a second, so eight places bear 16 requests a second; the viral persona comes with 24 more.
WORKLOAD = dict(personas=20, rate=8, turns=1, think_s=1, card_tokens=60, card_tokens_max=100, system_tokens=0, user_tokens=20,
                output_tokens=110, turn_sigma=0.2, duration_s=24, flash="0.75:4:12")
TOLERANCE = 0.05
QUEUE_MS = re.compile(r"\bqueue_ms=([0-9.]+)")


def sim(*arguments):
    done = subprocess.run([str(BIN / "troupe-sim"), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"troupe-sim {' '.join(map(str, arguments))}: {done.stderr}")
    return done.stdout


def made_trace(folder, seed):
    trace = pathlib.Path(folder) / "viral.jsonl"
    flags = [part for key, value in WORKLOAD.items() for part in (f"--{key.replace('_', '-')}", value)]
    sim("synth", "persona", *flags, "--seed", seed, "--out", trace)
    return trace


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def figures(lines, waits):
    """Of --requests' lines, and of the waits in ms of those that waited."""
    status = [line.get("status") for line in lines]
    waits = sorted(waits)
    return {"requests": len(lines), "429": status.count(429), "503": status.count(503),
            "lost otherwise": sum("lost" in line and "status" not in line for line in lines), "waited": len(waits),
            "wait mean ms": sum(waits) / max(len(waits), 1), "wait p90 ms": waits[len(waits) * 9 // 10] if waits else 0}


def check(folder, seed=1):
    """live and simulated, as figures() has them"""
    folder = pathlib.Path(folder)
    trace = made_trace(folder, seed)
    log = folder / "access.log"
    with Fleet(folder, workers=WORKERS, worker_class=SimWorker, gateway_flags=(*ADMISSION, "--access-log", log)) as fleet:
        sim("drive", "--url", fleet.url, "--trace", trace, "--spread-ms", 0, "--report", folder / "live.json",
            "--requests", folder / "live.jsonl")
    live = figures(lines_of(folder / "live.jsonl"), [float(ms) for ms in QUEUE_MS.findall(log.read_text())])
    sim("replay", "--trace", trace, "--spread-ms", 0, "--profile", "study", "--nodes", WORKERS, *ADMISSION, "--seed", seed,
        "--report", folder / "simulated.json", "--requests", folder / "simulated.jsonl")
    lines = lines_of(folder / "simulated.jsonl")
    return live, figures(lines, [line["queue_ms"] for line in lines if "queue_ms" in line])


def apart(live, simulated, tolerance=TOLERANCE):
    """Each figure further apart than that, as a sentence. Counts are shares of all requests, so that one of three is not a third."""
    found = []
    for name, value in live.items():
        other = simulated[name]
        whole = live["requests"] if not name.startswith("wait ") else max(value, other)
        if abs(value - other) > tolerance * max(whole, 1e-9):
            found.append(f"{name}: live {value:.5g}, simulated {other:.5g}: more than {tolerance:.0%} apart")
    return found


def mean_figures(runs):
    """Over the seeds: who comes while the queue is full is chance."""
    return {name: statistics.mean(run[name] for run in runs) for name in runs[0]}


def save_table(live, simulated, args):
    rows = [[name, f"{value:.0f}", f"{simulated[name]:.0f}"] for name, value in live.items()]
    table = dict(title="The queue in front of the workers, with a viral persona: live and simulated", rows=rows,
                 columns=["mean over the seeds", "live", "simulated"], command=f"tests/sim/admission_check.py --seeds {args.seeds}",
                 notes=[f"{WORKERS} workers without a model, a gateway with `{' '.join(map(str, ADMISSION))}`, four times the traffic that "
                        "they can bear for some seconds, three quarters of it for one persona. Goals: as many 429s and 503s, and waits, "
                        "within 5 %."])
    if args.no_save:
        print(common.as_markdown(dict(date="not saved", machine=common.machine(), **table)))
    else:
        common.save("admission_check", **table)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--no-save", action="store_true", help="print only")
    args = parser.parse_args()
    runs = []
    for seed in range(1, args.seeds + 1):
        with tempfile.TemporaryDirectory() as folder:
            runs.append(check(folder, seed))
    live, simulated = (mean_figures([run[side] for run in runs]) for side in range(2))
    save_table(live, simulated, args)
    missed = apart(live, simulated)
    for what in missed:
        print(f"MISSED {what}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""How fast troupe-sim simulates: requests a CPU second with 64 nodes near the rate that they sustain, and memory a node with
1,000 of them. CPU time is the process's own, generation of the traffic included; the machine may be busy with other things,
so the better of the rounds counts. `--sim` names another binary, to compare with. `--large` simulates ten million requests on
1,000 nodes instead, some minutes long: the table keeps what came of it, with its date, whenever the rest is measured anew."""
import argparse
import json
import os
import pathlib
import subprocess
import tempfile
import time

from common import BIN, RESULTS, ROOT, machine, save

STUDY = ["--profile", "study", "--personas", "2000", "--zipf", "0.9", "--seed", "7"]
RATE_OF_A_NODE = 28  # requests a second: 70 % of what the study's fleet sustains with personas like these
COLUMNS = ["nodes", "tokens a block", "requests", "requests / CPU s", "µs a request", "MB", "MB a node", "hit"]
LARGE_NODES, LARGE_REQUESTS, LARGE_RAMP_S = 1000, 10_000_000, 20


def simulate(sim, nodes, seconds, extra=(), ramp_s=None):
    """(requests, CPU seconds, MB of memory at most, hit) of one run in a process of its own"""
    with tempfile.TemporaryDirectory() as folder:
        timing, report = pathlib.Path(folder) / "timing.json", pathlib.Path(folder) / "report.json"
        command = [sim, "replay", *STUDY, "--nodes", nodes, "--rate", nodes * RATE_OF_A_NODE, "--ramp-s", seconds * 0.4 if ramp_s is None else ramp_s,
                   "--warmup-s", seconds * 0.5, "--duration-s", seconds, "--timing", timing, "--report", report, *extra]
        process = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"error: {' '.join(map(str, command))} ended with {process.returncode}")
        requests = json.loads(timing.read_text())["runs"][0]["simulated_requests"]
        hit = json.loads(report.read_text())["hit_tokens"]
        return requests, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, hit


def row_of(nodes, block_tokens, run):
    requests, cpu, memory, hit = run
    return [nodes, block_tokens, f"{requests:,}", f"{requests / cpu:,.0f}", f"{cpu / requests * 1e6:.1f}", f"{memory:,.0f}",
            f"{memory / nodes:.1f}", f"{hit:.4f}"]


def simulate_large(sim):
    """The part of the table that is measured alone."""
    seconds = LARGE_REQUESTS / (LARGE_NODES * RATE_OF_A_NODE) + LARGE_RAMP_S / 2 + 1
    run = simulate(sim, LARGE_NODES, seconds, ramp_s=LARGE_RAMP_S)
    return dict(title=f"Large: {seconds:.0f} s of {LARGE_NODES:,} nodes", command="tests/bench/sim_speed.py --large",
                date=time.strftime("%Y-%m-%d"), machine=machine(), columns=COLUMNS, rows=[row_of(LARGE_NODES, "16", run)],
                notes=[f"{run[1]:,.0f} s of CPU time. The bounds of what any cache could hit remember every block that ever was."])


def with_part(known, part):
    """The parts of the table with this one for the last of its name."""
    name = part["title"].split(":")[0]
    return [other for other in known.get("parts", []) if other["title"].split(":")[0] != name] + [part]


def side_by_side(sim, rounds):
    """The part of the table on --jobs: what a user waits for, by the clock on the wall; the quicker of the rounds counts."""
    asks = {"compare, twelve policies": ["compare", "--policies", "all"], "capacity": ["capacity", "--steps", "5"]}
    jobs, rows = os.cpu_count(), []
    for what, command in asks.items():
        taken = {1: [], jobs: []}
        for _ in range(rounds):
            for count in taken:
                begin = time.monotonic()
                subprocess.run([str(part) for part in [sim, *command, *STUDY, "--nodes", 16, "--rate", 16 * RATE_OF_A_NODE, "--ramp-s", 20, "--warmup-s", 30,
                                                       "--duration-s", 60, "--jobs", count]], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
                taken[count].append(time.monotonic() - begin)
        alone, together = (min(taken[count]) for count in (1, jobs))
        rows.append([what, f"{alone:.1f}", jobs, f"{together:.1f}", f"{alone / together:.2f}"])
        print(*rows[-1], sep="\t", flush=True)
    return dict(title="Side by side: --jobs", command="tests/bench/sim_speed.py", date=time.strftime("%Y-%m-%d"), machine=machine(),
                columns=["what", "s with one job", "jobs", "s with these", "times as fast"], rows=rows,
                notes=["60 s of 16 nodes. A search for a rate runs what it may ask next beside what it asks, and half of that is in vain: with two jobs it "
                       "gains what it guesses, with seven three steps at once."])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sim", default=BIN / "troupe-sim", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60, help="simulated, with 64 nodes")
    parser.add_argument("--large-seconds", type=float, default=20, help="simulated, with 1,000 nodes; 0: not")
    parser.add_argument("--large", action="store_true", help="ten million requests on 1,000 nodes, and nothing else")
    parser.add_argument("--no-save", action="store_true", help="only print")
    args = parser.parse_args()
    kept = RESULTS / "sim_speed.json"
    known = json.loads(kept.read_text("utf-8")) if kept.exists() else {}
    if args.large:
        large = simulate_large(args.sim)
        print(*large["rows"][0], *large["notes"], sep="\t", flush=True)
        if not args.no_save:
            kept.write_text(json.dumps(known | {"parts": with_part(known, large)}, indent=1, ensure_ascii=False) + "\n", "utf-8")
        return
    rows = []
    for what, extra in [("16", ()), ("64", ("--block-size", 64)), ("256", ("--block-size", 256))]:
        runs = [simulate(args.sim, 64, args.seconds, extra) for _ in range(args.rounds)]
        rows.append(row_of(64, what, min(runs, key=lambda run: run[1])))
        print(*rows[-1], sep="\t", flush=True)
    if args.large_seconds > 0:
        rows.append(row_of(1000, "16", simulate(args.sim, 1000, args.large_seconds)))
        print(*rows[-1], sep="\t", flush=True)
    beside = side_by_side(args.sim, args.rounds)
    if args.no_save:
        return
    save("sim_speed", "troupe-sim: simulated requests a CPU second, memory a node", "tests/bench/sim_speed.py",
         COLUMNS, rows,
         ["Profile study (50,000 blocks of 16 tokens a node), 2,000 personas, 28 requests/s a node; prompts of 2,100 tokens on average.",
          "Larger blocks are a coarser cache (hits end at their bounds), and for questions of capacity often near enough."],
         parts=with_part(known, beside))


if __name__ == "__main__":
    main()

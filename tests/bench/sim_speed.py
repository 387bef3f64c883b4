#!/usr/bin/env python3
"""How fast troupe-sim simulates: requests a CPU second with 64 nodes near the rate that they sustain, and memory a node with
1,000 of them. CPU time is the process's own, generation of the traffic included; the machine may be busy with other things,
so the better of the rounds counts. `--sim` names another binary, to compare with."""
import argparse
import json
import os
import pathlib
import subprocess
import tempfile

from common import BIN, ROOT, save

STUDY = ["--profile", "study", "--personas", "2000", "--zipf", "0.9", "--seed", "7"]
RATE_OF_A_NODE = 28  # requests a second: 70 % of what the study's fleet sustains with personas like these


def simulate(sim, nodes, seconds, extra=()):
    """(requests, CPU seconds, MB of memory at most, hit) of one run in a process of its own"""
    with tempfile.TemporaryDirectory() as folder:
        timing, report = pathlib.Path(folder) / "timing.json", pathlib.Path(folder) / "report.json"
        command = [sim, "replay", *STUDY, "--nodes", nodes, "--rate", nodes * RATE_OF_A_NODE, "--ramp-s", seconds * 0.4,
                   "--warmup-s", seconds * 0.5, "--duration-s", seconds, "--timing", timing, "--report", report, *extra]
        process = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"error: {' '.join(map(str, command))} ended with {process.returncode}")
        requests = json.loads(timing.read_text())["runs"][0]["simulated_requests"]
        hit = json.loads(report.read_text())["hit_tokens"]
        return requests, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, hit


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sim", default=BIN / "troupe-sim", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60, help="simulated, with 64 nodes")
    parser.add_argument("--large-seconds", type=float, default=20, help="simulated, with 1,000 nodes; 0: not")
    parser.add_argument("--no-save", action="store_true", help="only print")
    args = parser.parse_args()
    rows = []
    for what, extra in [("16", ()), ("64", ("--block-size", 64)), ("256", ("--block-size", 256))]:
        runs = [simulate(args.sim, 64, args.seconds, extra) for _ in range(args.rounds)]
        requests, cpu, memory, hit = min(runs, key=lambda run: run[1])
        rows.append([64, what, f"{requests:,}", f"{requests / cpu:,.0f}", f"{cpu / requests * 1e6:.1f}", f"{memory:,.0f}",
                     f"{memory / 64:.1f}", f"{hit:.4f}"])
        print(*rows[-1], sep="\t", flush=True)
    if args.large_seconds > 0:
        requests, cpu, memory, hit = simulate(args.sim, 1000, args.large_seconds)
        rows.append([1000, "16", f"{requests:,}", f"{requests / cpu:,.0f}", f"{cpu / requests * 1e6:.1f}", f"{memory:,.0f}",
                     f"{memory / 1000:.1f}", f"{hit:.4f}"])
        print(*rows[-1], sep="\t", flush=True)
    if args.no_save:
        return
    save("sim_speed", "troupe-sim: simulated requests a CPU second, memory a node", "tests/bench/sim_speed.py",
         ["nodes", "tokens a block", "requests", "requests / CPU s", "µs a request", "MB", "MB a node", "hit"], rows,
         ["Profile study (50,000 blocks of 16 tokens a node), 2,000 personas, 28 requests/s a node; prompts of 2,100 tokens on average.",
          "Larger blocks are a coarser cache (hits end at their bounds), and for questions of capacity often near enough."])


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What bench.sh measured on a GPU becomes tables of tests/bench/RESULTS.md: reads files that it left, writes tests/bench/results/gpu_*.json.

  bench.sh ops > ops.txt; bench.sh decode prefill … --output models.json
  keep.py --device 'NVIDIA H200, driver 580.159, cuBLASLt 13.1' --ops ops.txt --models models.json"""
import argparse
import json
import pathlib
import re
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/bench"))
from bench import milliseconds  # noqa: E402
from common import save  # noqa: E402


def ops(args):
    text = args.ops.read_text()
    cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    ceilings = re.search(r"^copy .*$", text, re.M)
    if len(cells) < 3 or not ceilings:
        sys.exit(f"{args.ops} has no table of bench.sh ops")
    save("gpu_ops", "Ops on a GPU, beside their rooflines", "tests/gpu/bench.sh ops", cells[0][:-1] + ["reached"], cells[2:],
         [f"Ceilings of the same run: {ceilings[0]}. The floor of an op is what it must read and write at the rate of the copy, or its products at that of "
          "the large one, whichever takes longer; each call by itself, its launch included.", *args.note], date=args.date, on=args.device)


def models(args):
    rows = [row for path in args.models for row in json.loads(path.read_text())]
    if not rows:
        sys.exit("no rows")
    table = []
    for row in rows:
        floor = row["floor_seconds"]
        table.append([row["model"], row["bench"], row["work"], milliseconds(row["seconds"]), "" if floor is None else milliseconds(floor),
                      "" if floor is None else f"{floor / row['seconds']:.2f}", row["more"]])
    benches = list(dict.fromkeys(row["bench"] for row in rows))
    save("gpu_models", "Whole models on a GPU, made-up weights of real shapes, bfloat16", f"tests/gpu/bench.sh {' '.join(benches)}",
         ["model", "bench", "work", "ms", "floor ms", "share of floor", ""], table,
         ["Floors as in tests/gpu/bench.py: bytes at the rate of a device copy, products at the rate of a large one, both measured in the same run.", *args.note], date=args.date, on=args.device)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", required=True, help="the GPU, its driver, the library")
    parser.add_argument("--date", default=time.strftime("%Y-%m-%d"), help="of the run (default today)")
    parser.add_argument("--ops", type=pathlib.Path, help="what bench.sh ops printed")
    parser.add_argument("--models", type=pathlib.Path, action="append", default=[], help="a file of --output; may be given again")
    parser.add_argument("--note", action="append", default=[], help="a line below the table; may be given again")
    args = parser.parse_args()
    if args.ops:
        ops(args)
    if args.models:
        models(args)


if __name__ == "__main__":
    main()

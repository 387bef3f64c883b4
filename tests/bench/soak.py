#!/usr/bin/env python3
"""Ten minutes of everything at once against two gateways and five workers (--device sim): persona traffic, streams that are read and
checked, clients that leave, bad requests, and a worker killed, held or slowed every eight seconds.

    tests/bench/soak.py                      ten minutes; writes tests/bench/results/soak.json
    tests/bench/soak.py --seconds 60 --no-save
"""
import argparse
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE)]

import common  # noqa: E402
import soak_run  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-save", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        f, reasons = soak_run.run(folder, args.seconds, args.seed)
    print(f, *reasons, sep="\n  ")
    rows = [["requests of the open loop", f"{f.requests}", f"{f.failed} failed, {f.retried} asked again"],
            ["streams whose text is known", f"{f.texts}", f"{f.wrong} wrong"],
            ["answers whose client left", f"{f.left}", ""], ["bad requests", f"{f.refused}", "all refused with 400"],
            ["faults (kill and restart, hang, ten times as slow)", f"{f.faults}", f"longest pause within a stream {f.stall_s:.2f} s"]]
    for number, name in enumerate(f.memory_mb):
        early, late = f.memory_mb[name]
        before, after = f.descriptors[name]
        rows += [[f"gateway {number + 1}: memory of its own", f"{early:.1f} MB after a third", f"{late:.1f} MB at the end"],
                 [f"gateway {number + 1}: descriptors", f"{before} before the load", f"{after} after it"],
                 [f"gateway {number + 1}: received − answered − cancelled", f"{f.unaccounted[name]:.0f}", ""]]
    notes = [f"{args.seconds:g} s, seed {args.seed}; what a gateway keeps afterwards are connections to workers, bounded by its pools."]
    if not args.no_save:
        common.save("soak", "Soak: everything at once, with faults", "tests/bench/soak.py", ["what", "", ""], rows, notes)
    lost = f.failed + f.wrong + sum(abs(count) for count in f.unaccounted.values())
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Ten minutes of everything at once against two gateways and five workers (--device sim): persona traffic, streams that are read and
checked, clients that leave, bad requests, and a worker killed, held or slowed every eight seconds. Memory and descriptors of the gateways
and of a worker that is never killed are followed.

    tests/bench/soak.py                      ten minutes; writes tests/bench/results/soak.json
    tests/bench/soak.py --seconds 60 --no-save
    tests/bench/soak.py --default-sizes      books and KV caches as they are without any flag: longer than ten minutes until they are full, so
                                             memory is held to what so many entries may take, and not to being flat
    tests/bench/soak.py --schedule FILE      the faults of the run that printed FILE, to the same workers at the same times of the same traffic

Needs the tests' Python packages (.venv/bin/python, made by tests/run.sh) and etcd-server.
"""
import argparse
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE)]

import common  # noqa: E402
from chaos_faults import read_schedules  # noqa: E402
import soak_run  # noqa: E402


# The books' default sizes (configs/gateway.yaml): 16,384 sets, 32,768 placements at each of five workers, 65,536 anchors; at 256 bytes
# each, and what a process has without them. A worker's 50,000 blocks take less.
DEFAULT_MB_MAX = (16384 + 5 * 32768 + 65536) * 256 / 2**20 + 12


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-save", action="store_true")
    parser.add_argument("--schedule", metavar="FILE", help="output of an earlier run, whose faults are brought about again")
    parser.add_argument("--default-sizes", action="store_true", help="books and KV caches of the default sizes; implies --no-save")
    args = parser.parse_args()
    sizes = {"books": (), "cache": ()} if args.default_sizes else {}
    again = None
    if args.schedule:
        try:
            again = read_schedules(args.schedule, soak_run.FAULTS)[0]
        except (OSError, ValueError) as error:
            parser.error(f"--schedule: {error}")
    with tempfile.TemporaryDirectory() as folder:
        f, reasons = soak_run.run(folder, args.seconds, again.seed if again else args.seed, again=again, **sizes, **({"rate": again.rate} if again else {}))
    print(f, *reasons, sep="\n  ")
    print(f.schedule.line())
    rows = [["requests of the open loop", f"{f.requests}", f"{f.failed} failed, {f.retried} asked again"],
            ["streams whose text is known", f"{f.texts}", f"{f.wrong} wrong"],
            ["answers whose client left", f"{f.left}", ""], ["bad requests", f"{f.refused}", "all refused with 400"],
            ["faults (kill and restart, hang, ten times as slow)", f"{len(f.schedule.faults)}", f"longest pause within a stream {f.stall_s:.2f} s"]]
    for number, name in enumerate(f.memory_mb):
        memory = " · ".join(f"{mb:.1f}" for mb in f.memory_mb[name])
        before, after = f.descriptors[name]
        who = f"gateway {number + 1}" if name in f.unaccounted else "the worker that is not killed"
        rows += [[f"{who}: memory of its own at each tenth of the way, MB", memory, ""],
                 [f"{who}: descriptors", f"{before} before the load", f"{after} after it"]]
        if name in f.unaccounted:
            rows.append([f"{who}: received − answered − cancelled", f"{f.unaccounted[name]:.0f}", ""])
    rows.append(["memory of any worker at most, MB", f"{f.worker_memory_mb_max:.1f}", ""])
    notes = [f"{args.seconds:g} s, seed {f.schedule.seed}; what a gateway keeps afterwards are connections to workers, bounded by its pools.",
             f"Gateways with `{' '.join(map(str, soak_run.BOOKS))}`: books that are full after a minute or two, so that anything else that grew would show. Workers with "
             f"`{' '.join(map(str, soak_run.CACHE))}`, likewise."]
    if not args.no_save and not args.default_sizes:
        common.save("soak", "Soak: everything at once, with faults", "tests/bench/soak.py", ["what", "", ""], rows, notes)
    missed = [what for what, is_so in [
        ("a request failed", f.failed > 0), ("a text was wrong", f.wrong > 0), ("a request is not accounted for", any(f.unaccounted.values())),
        ("memory grew by more than a tenth and 1 MB after a third of the way",
         not args.default_sizes and any(mb[9] > 1.1 * mb[2] + 1 for mb in f.memory_mb.values())),
        (f"memory is more than {DEFAULT_MB_MAX:.0f} MB", max(*(max(mb) for mb in f.memory_mb.values()), f.worker_memory_mb_max) > DEFAULT_MB_MAX),
        ("more than 40 descriptors stayed open", any(after > before + 40 for before, after in f.descriptors.values()))] if is_so]
    for what in missed:
        print(f"MISSED {what}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

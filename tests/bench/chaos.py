#!/usr/bin/env python3
"""Recovery: what users see when a part of a running fleet breaks. Eight workers (--device sim), two gateways, an open loop of persona
traffic that takes some 70 % of the workers' places, and streams whose text is known, read beside it.

    tests/bench/chaos.py                      every fault, one minute each; writes tests/bench/results/chaos.json
    tests/bench/chaos.py kill hang --seed 7   these, with other victims and other traffic; the table's other rows stay as they were
    tests/bench/chaos.py --schedule FILE      what the run did that printed FILE: each fault to the same victim, at the same time of the
                                              same traffic

A run prints what it did, to whom and when, in lines that begin with `schedule: `.

Needs the tests' Python packages (.venv/bin/python, made by tests/run.sh) and etcd-server; `partition` and `lease` need root and the `ip` command.
"""
import argparse
import dataclasses
import json
import pathlib
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE)]

import common  # noqa: E402
from chaos_run import FAR, FAULTS, RATE, TAKES_S, Namespace, behind, node_flags, prefill_s, run  # noqa: E402
from chaos_faults import BACK_S, Schedule, read_schedules  # noqa: E402


# How far hits fall in three seconds is mostly chance: 160 requests, and the same traffic twice differs by 4 points in the worst of a
# hundred such times. So what is judged by it is the mean of so many runs, each with another traffic and beside its own calm one.
REPEATS = {"rolling": 3}


def mean_of(runs):
    """Counts and whatever lasted longest are of all; the rest are means, second by second."""
    first = runs[0]
    if len(runs) == 1:
        return first
    total, longest = ("requests", "failed", "retried", "texts", "wrong", "resumed"), ("stall_s", "ttft_p99_s")
    whole = {name: sum(getattr(f, name) for f in runs) for name in total} | {name: max(getattr(f, name) for f in runs) for name in longest}
    whole |= {name: statistics.mean(getattr(f, name) for f in runs) for name in ("hit_before", "hit_during", "hit_dip", "busy")}
    t95 = [f.t95_s for f in runs]
    seconds = []
    for same in zip(*(f.seconds for f in runs)):
        count = sum(c or 0 for c, _ in same)
        seconds.append((count, sum((c or 0) * (hit or 0) for c, hit in same) / count if count else None))
    return dataclasses.replace(first, what=f"{first.what}; {len(runs)} runs", t95_s=-1 if -1 in t95 else max(t95), seconds=seconds, **whole)


def row(f, calm):
    worst, mean = behind(calm.seconds, f.seconds) if f.fault != "calm" else (0, 0)
    back = ("not within the run" if f.t95_s < 0 else f"{f.t95_s} s") + (f" (the worker is used {f.back_s:.1f} s after its return)" if f.back_s else "")
    return [f.fault, f.what, f.requests, f"**{f.failed}**", f.retried, f"{f.wrong} of {f.texts}", f.resumed, f"{f.stall_s:.2f}", f"{f.ttft_p99_s:.2f}",
            f"{f.hit_before:.3f}", f"{f.hit_during:.3f}", f"{f.hit_dip * 100:.1f}", f"{worst * 100:.1f}", f"{mean * 100:.1f}", back, f"{f.busy:.2f}"]


def goals_missed(f, calm):
    # A rolling restart lasts a minute by itself: its goal is how far hits fall.
    hits = (("hits are back to 95 % within 30 s", 0 <= f.t95_s <= 30) if f.fault != "rolling" else
            ("the worst 3 s hit at most 5 points less than without it", behind(calm.seconds, f.seconds)[0] <= 0.05))
    goals = [("no request fails", f.failed == 0), ("no stream has another text", f.wrong == 0),
             ("streams went on elsewhere", f.resumed > 0 or f.fault not in ("kill", "hang", "partition", "lease")),
             (f"a worker that was lost is used again within {BACK_S} s", f.back_s is None or f.back_s <= BACK_S),
             hits,
             ("the longest pause is a prefill and half a second", f.stall_s <= prefill_s() + 0.5)]
    return [goal for goal, met in goals if not met]


def planned(name, args):
    return [Schedule(seed, args.rate, []) for seed in range(args.seed, args.seed + REPEATS.get(name, 1))]


def written_down(path):
    """Schedules by fault. Calm runs have nothing to be done again: they are made where something is held against them."""
    by_fault = {}
    for schedule in read_schedules(path, FAULTS):
        if len(schedule.faults) != 1:
            raise ValueError(f"{path}: field 'faults' has {len(schedule.faults)} entries; here a run has one fault (tests/bench/soak.py has many)")
        if schedule.faults[0].fault != "calm":
            by_fault.setdefault(schedule.faults[0].fault, []).append(schedule)
    return by_fault


def runs_of(what, as_long_as, plans):
    figures = []
    for plan in plans:
        again = plan.faults[0] if plan.faults and what != "calm" else None
        with tempfile.TemporaryDirectory() as folder:
            one, why = run(what, pathlib.Path(folder), plan.seed, rate=plan.rate, as_long_as=as_long_as, again=again)
        print(f"{what} (seed {plan.seed}): {one}", *why, sep="\n  ", flush=True)
        print(one.schedule.line(), flush=True)
        figures.append(one)
    return mean_of(figures)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=", ".join(FAULTS))
    parser.add_argument("--seed", type=int, default=1, help="of the traffic and the choice of victims")
    parser.add_argument("--rate", type=float, default=RATE, help="requests a second")
    parser.add_argument("--no-save", action="store_true", help="print the table only")
    parser.add_argument("--schedule", metavar="FILE", help="output of an earlier run, whose faults are brought about again")
    args = parser.parse_args()
    if args.schedule and args.faults:
        parser.error("--schedule says which faults: name none beside it")
    try:
        again = written_down(args.schedule) if args.schedule else {}
    except (OSError, ValueError) as error:
        parser.error(f"--schedule: {error}")
    if unknown := set(args.faults) - set(FAULTS):
        parser.error(f"no fault named {', '.join(sorted(unknown))}; there are {', '.join(FAULTS)}")
    rows, skipped, missed, calm = [], [], [], {}
    for name, plans in (again or {name: planned(name, args) for name in args.faults or FAULTS}).items():
        reason = Namespace.possible() if name in FAR else None
        if reason is not None:
            skipped.append(f"{name} was not run: {reason}")
            print(f"SKIPPED {name}: {reason}", flush=True)
            continue
        length = TAKES_S.get(name, 0)
        figures = runs_of(name, name, plans)
        if name == "calm":
            calm[length] = figures
        elif length not in calm:
            calm[length] = runs_of("calm", name, plans)
        rows.append(row(figures, calm[length]))
        missed += [f"{name}: {what}" for what in goals_missed(figures, calm[length])]
    notes = [f"8 workers {' '.join(map(str, node_flags()))} (profile study), 2 gateways that gossip, 3 members of etcd, {args.rate:g} requests a second in an open loop (`troupe-sim drive "
             "--retries 1`: a client whose gateway breaks off asks the other one once), all on one machine; seed "
             f"{args.seed}. Goals: 0 failed, hits back to 95 % within 30 s (rolling: worst 3 s behind calm ≤ 5 points), longest pause within a stream ≤ one prefill ({prefill_s():.2f} s for the longest "
             "prompt here) + .5 s.",
             "texts: seeded streams read beside the load, compared to what the same request gave before the fault; at the real model: "
             "tests/e2e/test_resume.py. resumed: streams that went on at another worker.",
             f"rolling: {REPEATS['rolling']} runs with seeds from that one on, each beside a calm one: requests and streams of all, the longest pause and "
             "the worst TTFT of any, hits as means of each second.",
             "hit meanwhile: as long as the fault lasts; hit dip: 10 s before, minus the worst mean of 3 s after (`calm` is what chance makes of it); behind calm: what the same traffic hit without the fault, minus with it, in the worst 3 s and in the mean of all seconds from the fault on; back: from when on that mean stayed "
             "above 95 % of before, counted from the fault's beginning (a rolling restart's last worker begins anew after 50 s)."] + skipped
    columns = ["fault", "what", "requests", "failed", "asked again", "wrong texts", "resumed", "worst pause s", "worst second's TTFT p99 s",
               "hit before", "hit meanwhile", "hit dip points", "worst 3 s behind calm", "mean behind calm", "hit back after", "places taken"]
    if args.no_save:
        print(common.as_markdown(dict(title="Recovery", command="tests/bench/chaos.py", date="", machine=common.machine(), columns=columns, rows=rows,
                                      notes=notes)))
    else:
        known = common.RESULTS / "chaos.json"
        if args.faults and known.exists():
            kept = json.loads(known.read_text("utf-8"))
            by_fault = {row[0]: row for row in [*kept["rows"], *rows]} if kept["columns"] == columns else {row[0]: row for row in rows}
            again = ", ".join(row[0] for row in rows)
            notes = [*[note for note in kept["notes"] if note.startswith("measured again: ")], *notes, f"measured again: {again} ({time.strftime('%Y-%m-%d')})"]
            rows = [by_fault[name] for name in FAULTS if name in by_fault]
        common.save("chaos", "Recovery: a fault under load", "tests/bench/chaos.py", columns, rows, notes)
    for what in missed:
        print(f"MISSED {what}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

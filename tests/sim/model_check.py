#!/usr/bin/env python3
"""Is the simulator right? The same requests through real processes and through the simulator, side by side.

    tests/sim/model_check.py                        ten minutes each of workers with --device sim and of CPU workers on the
                                                    demo model; writes tests/bench/results/model_check_*.json
    tests/sim/model_check.py --device sim --duration-s 60 --no-save

Persona traffic is sent by `troupe-sim drive` through a gateway that records it (--record). The record is then replayed with as
many nodes of the workers' profile. What the wire, JSON and the tokenizer take is measured before, on an idle fleet, with a
prompt that is cached; the simulator gets it as --network-ms. The goals: share of prompt tokens found cached within 1 point,
TTFT p50 and p90 within 15 %. A machine busy with something else makes live times larger, not the simulator's; there, as root,
`chrt -r 1 tests/sim/model_check.py` puts all of this before others' work (it takes a tenth of a core or two).

    tests/sim/model_check.py --device cpu --calibrate [--workers 2]

measures the CPU worker right before and right after (tests/bench/calibrate_profile.py), with rests between its prompts as the
workload leaves them, and replays with the profile fitted to both instead of configs/sim/cpu-demo.yaml: where a machine's speed moves
from minute to minute, and one that rested is slower than one that is busy, that tells the model from the machine.
"""
import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE.parent / "bench")]

import calibrate_profile  # noqa: E402
import common  # noqa: E402
from fleet import BIN, MODEL_DIR, Fleet, SimWorker, Worker  # noqa: E402


class CpuWorker(Worker):
    """As configs/sim/cpu-demo.yaml says."""
    OWN_FLAGS = ("--model", MODEL_DIR, "--threads", 1, "--kv-cache-tokens", 32768, "--max-num-batched-tokens", 512)


# One CPU worker of one thread, so that on two cores the gateway and the client are in nobody's way. The workload's words are about
# two tokens each to the demo model, whose context is 2,048. What it answers to them is no language: read again it gives other
# tokens, which are not found cached, where the simulator finds them. So its answers are short.
FLEETS = {
    "sim": dict(worker=SimWorker, profile="study", workers=4, workload=dict(personas=60, rate=24, turns=5, think_s=8)),
    "cpu": dict(worker=CpuWorker, profile="cpu-demo", workers=1, workload=dict(
        personas=12, rate=2, turns=6, think_s=4, card_tokens=200, card_tokens_max=300, system_tokens=16, output_tokens=10,
        context=900)),
}

REST_S = 0.3  # longer ones are no dearer


def sim(*arguments):
    done = subprocess.run([str(BIN / "troupe-sim"), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"troupe-sim {' '.join(map(str, arguments))}: {done.stderr}")
    return json.loads(done.stdout), done.stderr


def flags_of(values):
    return [part for key, value in values.items() for part in (f"--{key.replace('_', '-')}", value)]


def probe_workload(folder, rate):
    """A prompt that is cached, as often as the workload asks: what it takes more than in the simulator is the way there and back,
    and that a worker, a gateway and a client wake with cold caches (after 100 ms and more a CPU worker's first step takes .7 to
    .9 ms more than a busy one's)."""
    probe = pathlib.Path(folder) / "probe.jsonl"
    blocks = list(range(1, 26))
    with open(probe, "w") as out:
        for i in range(60):
            print(json.dumps({"timestamp": round(1000 * i / rate), "input_length": 400, "output_length": 2, "block_size": 16, "set": "probe",
                              "session": f"probe{i}", "prefix_length": 384, "hash_ids": blocks}), file=out)
    return probe_flags(probe)


def probe_flags(path):
    return "--trace", path, "--spread-ms", 0, "--warmup-s", 1, "--report", "-"


def as_it_was(folder, requests):
    """The probe in the tokens that the model made of its text, to be replayed: in blocks of one token, so that as few are computed
    as were (a prompt's last token, where in blocks of sixteen it could be as many)."""
    probe = pathlib.Path(folder) / "probe_as_it_was.jsonl"
    with open(probe, "w") as out:
        answered = [line for line in map(json.loads, open(requests)) if "lost" not in line]
        for line in sorted(answered, key=lambda line: line["number"]):
            length = line["input_length"]
            print(json.dumps({"timestamp": line["timestamp"], "input_length": length, "output_length": line["output_length"],
                              "block_size": 1, "set": "probe", "session": f"probe{line['number']}", "prefix_length": length - 1,
                              "hash_ids": list(range(1, length + 1))}), file=out)
    return probe_flags(probe)


def fleet_of(device, workers=None):
    """That of FLEETS, or as much traffic for each of so many workers."""
    kind = FLEETS[device]
    if workers is None:
        return kind
    load = {key: kind["workload"][key] * workers / kind["workers"] for key in ("personas", "rate")}
    return {**kind, "workers": workers, "workload": {**kind["workload"], "personas": round(load["personas"]), "rate": load["rate"]}}


def check(device, duration_s, warmup_s, mode, seed, calibrate=False, workers=None, keep=None):
    kind = fleet_of(device, workers)
    profile = kind["profile"]
    with contextlib.ExitStack() as stack:
        folder = keep or stack.enter_context(tempfile.TemporaryDirectory())
        samples = calibrate_profile.measure(3, REST_S) if calibrate else []
        record = pathlib.Path(folder) / "traffic.jsonl"
        probe = probe_workload(folder, kind["workload"]["rate"])
        with Fleet(folder, workers=kind["workers"], worker_class=kind["worker"], gateway_flags=("--mode", mode)) as fleet:
            probed, _ = sim("drive", "--url", fleet.url, *probe, "--requests", pathlib.Path(folder) / "probed.jsonl")
        with Fleet(folder, workers=kind["workers"], worker_class=kind["worker"],
                   gateway_flags=("--mode", mode, "--record", record)) as fleet:
            load = os.getloadavg()[0]
            live, said = sim("drive", "--url", fleet.url, *flags_of(kind["workload"]), "--duration-s", duration_s,
                             "--warmup-s", warmup_s, "--seed", seed, "--report", "-",
                             "--requests", pathlib.Path(folder) / "live.jsonl")
            load = max(load, os.getloadavg()[0])
        if calibrate:
            profile = pathlib.Path(folder) / "calibrated.yaml"
            profile.write_text(calibrate_profile.fitted_profile(samples + calibrate_profile.measure(3, REST_S)))
        simulated, _ = sim("replay", "--profile", profile, "--nodes", 1, *as_it_was(folder, pathlib.Path(folder) / "probed.jsonl"))
        one_way = max(0.0, (probed["ttft_ms"]["p50"] - simulated["ttft_ms"]["p50"]) / 2)
        simulated, _ = sim("replay", "--trace", record, "--spread-ms", 0, "--profile", profile, "--nodes", kind["workers"],
                           "--mode", mode, "--network-ms", f"{one_way:.3f}", "--warmup-s", warmup_s, "--seed", seed, "--report", "-",
                           "--requests", pathlib.Path(folder) / "simulated.jsonl")
    print(said, file=sys.stderr, end="")
    return {"device": device, "profile": "calibrated" if calibrate else profile, "workers": kind["workers"], "requests": live["requests"],
            "lost": live["lost"], "hit": [live["hit_tokens"], simulated["hit_tokens"]],
            "ttft_p50_ms": [live["ttft_ms"]["p50"], simulated["ttft_ms"]["p50"]],
            "ttft_p90_ms": [live["ttft_ms"]["p90"], simulated["ttft_ms"]["p90"]],
            "tpot_ms": [live["tpot_ms"]["mean"], simulated["tpot_ms"]["mean"]], "network_ms": one_way, "load": load}


def row(result):
    cells = [f"{result['workers']} × {result['device']} ({result['profile']})", result["requests"]]
    live, simulated = result["hit"]
    cells.append(f"{live:.3f} / {simulated:.3f} ({100 * (simulated - live):+.1f} points)")
    for name in ("ttft_p50_ms", "ttft_p90_ms", "tpot_ms"):
        live, simulated = result[name]
        cells.append(f"{live:.1f} / {simulated:.1f} ({100 * (simulated / live - 1):+.0f} %)")
    return cells + [f"{result['network_ms']:.2f}", f"{result['load']:.0f}"]


def ahead():
    return os.sched_getscheduler(0) in (os.SCHED_RR, os.SCHED_FIFO)


def goals_missed(result):
    """Each as a sentence."""
    live, simulated = result["hit"]
    missed = [] if abs(live - simulated) <= 0.01 else [f"cached {live:.3f}, simulated {simulated:.3f}: more than a point apart"]
    for name in ("ttft_p50_ms", "ttft_p90_ms"):
        live, simulated = result[name]
        if abs(live / simulated - 1) > 0.15:
            missed.append(f"{name} {live:.1f}, simulated {simulated:.1f}: more than 15 % apart")
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=sorted(FLEETS), action="append", help="both by default")
    parser.add_argument("--duration-s", type=float, default=600)
    parser.add_argument("--warmup-s", type=float, help="a tenth by default")
    parser.add_argument("--mode", default="exact")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, help="of one device: so many, with as much traffic for each; a table of its own")
    parser.add_argument("--no-save", action="store_true", help="print only")
    parser.add_argument("--keep", type=pathlib.Path, help="a new folder: the record, the requests of both sides and the profile of each device")
    parser.add_argument("--calibrate", action="store_true", help="of CPU workers: replay with a profile measured before and after")
    args = parser.parse_args()
    if args.keep and args.keep.exists():
        parser.error(f"--keep: {args.keep} exists; records are added to, and this one's would be replayed with another's")
    warmup_s = args.duration_s / 10 if args.warmup_s is None else args.warmup_s
    columns = ["fleet", "requests", "prompt tokens cached", "TTFT p50 ms", "TTFT p90 ms", "ms a token", "network ms", "load average"]
    missed = []
    for device in args.device or FLEETS:
        keep = args.keep and args.keep / device
        if keep:
            keep.mkdir(parents=True)
        result = check(device, args.duration_s, warmup_s, args.mode, args.seed, args.calibrate and device == "cpu", args.workers, keep)
        missed += [f"{device}: {what}" for what in goals_missed(result)]
        of_workers = f", {args.workers} workers" if args.workers else ""
        table = dict(title=f"Simulator against real processes, {device}{of_workers}: live / simulated",
                     command=f"tests/sim/model_check.py --device {device}" + (" --calibrate" if args.calibrate and device == "cpu" else "") +
                     (f" --workers {args.workers}" if args.workers else ""), columns=columns,
                     rows=[row(result)], notes=[
                         f"{args.duration_s:.0f} s of persona traffic through a gateway that records it; the record replayed with as many nodes of "
                         "that profile. Goals: cached within 1 point, TTFT within 15 %.",
                         "Load average: of the machine meanwhile" + (
                             "; all of this ran at real-time priority, before others' work." if ahead()
                             else ". Above the number of cores others' work is in the live times.")])
        if args.no_save:
            print(common.as_markdown(dict(date="not saved", machine=common.machine(), **table)))
        else:
            common.save(f"model_check_{device}" + (f"_{args.workers}" if args.workers else ""), **table)
    for what in missed:
        print(f"MISSED {what}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

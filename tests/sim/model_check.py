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

    tests/sim/model_check.py --faults [--seeds 3]

breaks the fleet while it answers (workers without a model): a worker is killed, stands still (SIGSTOP) for some seconds, drains
(SIGTERM), another one joins. The record is replayed with the same faults at the same times. Goals: no request fails on either side,
the share of prompt tokens found cached falls as far within 2 points, and the worst pause of a stream is as long within 25 %.
"""
import argparse
import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import httpx

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


def measure_network(folder, kind, gateway_flags):
    """One way between gateway and worker in ms, on an idle fleet of its own, given as a function of the profile that is replayed."""
    probed = pathlib.Path(folder) / "probed.jsonl"
    with Fleet(folder, workers=kind["workers"], worker_class=kind["worker"], gateway_flags=gateway_flags) as fleet:
        live, _ = sim("drive", "--url", fleet.url, *probe_workload(folder, kind["workload"]["rate"]), "--requests", probed)

    def one_way(profile):
        simulated, _ = sim("replay", "--profile", profile, "--nodes", 1, *as_it_was(folder, probed))
        return max(0.0, (live["ttft_ms"]["p50"] - simulated["ttft_ms"]["p50"]) / 2)
    return one_way


def check(device, duration_s, warmup_s, mode, seed, calibrate=False, workers=None, keep=None):
    kind = fleet_of(device, workers)
    profile = kind["profile"]
    with contextlib.ExitStack() as stack:
        folder = keep or stack.enter_context(tempfile.TemporaryDirectory())
        samples = calibrate_profile.measure(3, REST_S) if calibrate else []
        record = pathlib.Path(folder) / "traffic.jsonl"
        network = measure_network(folder, kind, ("--mode", mode))
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
        one_way = network(profile)
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


@dataclasses.dataclass
class Fault:
    kind: str                   # a key of BREAKS
    at_s: float                 # since the load began
    for_s: float = 0            # hang
    victim: int | None = None   # number of a worker; join: none


# Each does its fault to a running fleet and returns what ends it, if something has to.

def wait_for_streams(worker, within_s=2):
    """A victim that answers nothing shows nothing."""
    end = time.monotonic() + within_s
    while worker.load()["running"] < 2 and time.monotonic() < end:
        time.sleep(0.02)


def kill(fleet, fault):
    wait_for_streams(fleet.workers[fault.victim])
    fleet.workers[fault.victim].kill()


def hang(fleet, fault):
    wait_for_streams(fleet.workers[fault.victim])
    pid = fleet.workers[fault.victim].pid
    os.kill(pid, signal.SIGSTOP)
    return lambda: os.kill(pid, signal.SIGCONT)


def drain(fleet, fault):
    fleet.workers[fault.victim].process.send_signal(signal.SIGTERM)


def join(fleet, fault):
    worker = fleet.worker_class(len(fleet.workers), fleet.log_dir)
    fleet.workers.append(worker)
    worker.wait_ready()
    httpx.post(f"{fleet.gateway.metrics_url}/admin/workers", json={"url": worker.url}, timeout=5).raise_for_status()


# Prompts that are much alike: the worst pause of a few streams is then not that of the one that happened to be long.
FAULT_FLEET = {**FLEETS["sim"], "workload": dict(personas=60, rate=24, turns=5, think_s=4, card_tokens=1200, card_sigma=0, turn_sigma=0)}
BREAKS = {"kill": kill, "hang": hang, "drain": drain, "join": join}
DRAIN_MAX_S = 30  # in which a worker of these has long answered all
HIT_WINDOW_S = 5


class Breaker(threading.Thread):
    """Breaks a fleet by a schedule, and notes when it did (time.time())."""

    def __init__(self, fleet, schedule):
        super().__init__(daemon=True)
        self.fleet, self.schedule, self.done_at, self.error = fleet, schedule, [], None

    def run(self):
        begin, ends = time.monotonic(), []
        try:
            for fault in self.schedule:
                for end_s, end in [one for one in ends if one[0] <= fault.at_s]:
                    time.sleep(max(0, begin + end_s - time.monotonic()))
                    end()
                    ends.remove((end_s, end))
                time.sleep(max(0, begin + fault.at_s - time.monotonic()))
                end = BREAKS[fault.kind](self.fleet, fault)
                self.done_at.append(time.time())
                if end:
                    ends.append((fault.at_s + fault.for_s, end))
        except Exception as error:  # noqa: BLE001  (raised again by check_faults(), in the thread that tests see)
            self.error = error
        finally:
            for end_s, end in ends:
                time.sleep(max(0, begin + end_s - time.monotonic()))
                end()


def request_lines(path):
    return sorted((json.loads(line) for line in path.read_text().splitlines()), key=lambda line: line["timestamp"])


def hit_between(lines, begin_s, end_s):
    part = [line for line in lines if begin_s <= line["timestamp"] / 1000 < end_s and "cached" in line]
    return sum(line["cached"] for line in part) / max(1, sum(line["input_length"] for line in part))


def hit_dip(lines, at_s):
    """How much less is found cached in the seconds after a fault than in those before it."""
    return hit_between(lines, at_s - HIT_WINDOW_S, at_s) - hit_between(lines, at_s, at_s + HIT_WINDOW_S)


def streams_at(lines, at_s):
    """How many answers each node is giving at that time."""
    return collections.Counter(line["node"] for line in lines
                               if line["timestamp"] / 1000 <= at_s < (line["timestamp"] + line["duration_ms"]) / 1000)


def same_victims(schedule, fleet_ports, live, live_at_s, calm, at_s):
    """Nodes of the simulation that have about as many streams as the live victims had: which sets a node has depends on names."""
    victims = []
    for fault, live_at, at in zip(schedule, live_at_s, at_s):
        if fault.victim is None:
            victims.append(None)
            continue
        cut = streams_at(live, live_at)[f"127.0.0.1:{fleet_ports[fault.victim]}"]
        there = streams_at(calm, at)
        left = [node for node in range(len(fleet_ports)) if node not in victims]
        victims.append(min(left, key=lambda node: abs(there[f"n{node}"] - cut)))
    return victims


def fault_lines(schedule, at_s, victims):
    """As `troupe-sim replay --faults` reads them."""
    for fault, at, victim in zip(schedule, at_s, victims):
        line = {"kill": {"kill": victim}, "hang": {"stall": victim, "for_s": fault.for_s}, "join": {"join": 1},
                "drain": {"drain": victim, "for_s": DRAIN_MAX_S}}[fault.kind]
        yield json.dumps({"at_s": round(at, 4), **line}) + "\n"


def check_faults(schedule, duration_s, folder, seed=1, network_ms=None):
    """The same requests and the same faults, live and simulated: figures of each as [live, simulated]."""
    kind, folder = FAULT_FLEET, pathlib.Path(folder)
    if network_ms is None:
        network_ms = measure_network(folder, kind, ())(kind["profile"])
    record, live_path, faults = folder / "traffic.jsonl", folder / "live.jsonl", folder / "faults.jsonl"
    first_s = min(fault.at_s for fault in schedule)
    with Fleet(folder, workers=kind["workers"], worker_class=kind["worker"], gateway_flags=("--record", record)) as fleet:
        ports = [worker.port for worker in fleet.workers]
        breaker = Breaker(fleet, schedule)
        breaker.start()
        live, _ = sim("drive", "--url", fleet.url, *flags_of(kind["workload"]), "--duration-s", duration_s, "--fault-at-s", first_s,
                      "--seed", seed, "--report", "-", "--requests", live_path)
        breaker.join()
        if breaker.error:
            raise breaker.error
    recorded = request_lines(record)  # with all attempts; a client sees those before its answer began
    begun_at = recorded[0]["timestamp"] / 1000
    at_s = [done_at - begun_at for done_at in breaker.done_at]
    replay = ("replay", "--trace", record, "--spread-ms", 0, "--profile", kind["profile"], "--nodes", kind["workers"], "--seed", seed,
              "--network-ms", f"{network_ms:.3f}", "--detect-ms", f"{network_ms:.3f}", "--report", "-")
    sim(*replay, "--requests", folder / "calm.jsonl")
    lines, calm = request_lines(live_path), request_lines(folder / "calm.jsonl")
    live_at_s = [at + lines[0]["timestamp"] / 1000 for at in at_s]
    victims = same_victims(schedule, ports, lines, live_at_s, calm, at_s)
    faults.write_text("".join(fault_lines(schedule, at_s, victims)))
    simulated, _ = sim(*replay, "--faults", faults, "--requests", folder / "simulated.jsonl")
    both = [(live, lines, live_at_s), (simulated, request_lines(folder / "simulated.jsonl"), at_s)]
    attempts = [[line.get("attempts", 0) for line in of] for of in (recorded, both[1][1])]
    return {"faults": [fault.kind for fault in schedule], "requests": live["requests"], "network_ms": network_ms,
            "lost": [report["lost"] for report, _, _ in both],
            "resent": [sum(count > 1 for count in of) for of in attempts],
            "pause_ms": [report["faults"]["stall_max_ms"] for report, _, _ in both],
            "hit_dip": [[hit_dip(of, at) for at in times] for _, of, times in both]}


def fault_goals_missed(figures):
    """Each as a sentence."""
    name = " and ".join(figures["faults"])
    missed = [f"{name}: {count} requests failed {where}" for count, where in zip(figures["lost"], ("live", "simulated")) if count]
    for fault, live, simulated in zip(figures["faults"], *figures["hit_dip"]):
        if abs(live - simulated) > 0.02:
            missed.append(f"{fault}: cached falls by {live:.3f}, simulated {simulated:.3f}: more than 2 points apart")
    live, simulated = figures["pause_ms"]
    if abs(live / simulated - 1) > 0.25:
        missed.append(f"{name}: worst pause {live:.0f} ms, simulated {simulated:.0f}: more than 25 % apart")
    return missed


def mean_figures(runs):
    """Over the seeds: which prompts a fault meets is chance."""
    sides = range(2)
    return {**runs[0], "lost": [sum(run["lost"][i] for run in runs) for i in sides], "requests": sum(run["requests"] for run in runs),
            "resent": [sum(run["resent"][i] for run in runs) for i in sides],
            "pause_ms": [statistics.mean(run["pause_ms"][i] for run in runs) for i in sides],
            "hit_dip": [[statistics.mean(run["hit_dip"][i][0] for run in runs)] for i in sides],
            "hit_dip_error": [standard_error([run["hit_dip"][i][0] for run in runs]) for i in sides]}


def standard_error(values):
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0


def fault_row(figures):
    def both(values, form):
        return " / ".join(form.format(value) for value in values)
    return [figures["faults"][0], figures["requests"], both(figures["lost"], "{}"), both(figures["resent"], "{}"),
            both([f"{dips[0]:.3f} ± {error:.3f}" for dips, error in zip(figures["hit_dip"], figures["hit_dip_error"])], "{}"),
            both(figures["pause_ms"], "{:.0f}")]


def check_each_fault(args):
    """Every fault by itself; the sentences of goals missed."""
    missed, rows = [], []
    for name in BREAKS:
        runs = []
        for seed in range(1, args.seeds + 1):
            with tempfile.TemporaryDirectory() as folder:
                fault = Fault(name, 20, for_s=5 if name == "hang" else 0, victim=None if name == "join" else seed % 4)
                runs.append(check_faults([fault], 32, folder, seed, runs[0]["network_ms"] if runs else None))
        figures = mean_figures(runs)
        rows.append(fault_row(figures))
        missed += fault_goals_missed(figures)
    columns = ["fault", "requests", "failed", "sent more than once", "cached falls by", "worst pause of a stream ms"]
    table = dict(title="Simulator against real processes that are broken: live / simulated", columns=columns, rows=rows,
                 command=f"tests/sim/model_check.py --faults --seeds {args.seeds}", notes=[
                     f"Four workers without a model, half a minute of persona traffic for each of {args.seeds} seeds, means over these "
                     "(± their standard error); the record replayed with the same fault at the same time, of a node with as much of the "
                     "traffic. Goals: none failed, cached "
                     "within 2 points, pauses within 25 %.",
                     "A node that joins pauses nothing: the longest pause is then of one or of two steps full of prompts, 21 ms each, live as "
                     "it comes and simulated nearly always of two."])
    if args.no_save:
        print(common.as_markdown(dict(date="not saved", machine=common.machine(), **table)))
    else:
        common.save("model_check_faults", **table)
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
    parser.add_argument("--faults", action="store_true", help="break the fleet while it answers, by each fault")
    parser.add_argument("--seeds", type=int, default=3, help="of --faults")
    args = parser.parse_args()
    if args.faults:
        missed = check_each_fault(args)
        for what in missed:
            print(f"MISSED {what}")
        return 1 if missed else 0
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

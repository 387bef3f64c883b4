#!/usr/bin/env python3
"""Does the routing brain still meet the study's gates? Runs troupe-sim case by case and holds each figure against its gate.

  tests/sim/gates.py            the small fleet: a minute of CPU, what CI runs; exit 1 where a gate is missed
  tests/sim/gates.py --all      the study's workloads at full size, G = 1, 4, 8, 16, in its node model and in one measured on a real
                                worker (half an hour of CPU): a table
  tests/sim/gates.py --all --only p2000-450 --save gates.json   some of them; the file's other cases stay as they were
  tests/sim/gates.py --all --result       the table in tests/bench/results, too: its rows of what was run

The cases below are data: a workload, a fleet, and gates by the name of a figure. A workload is as in the study: users begin
within a ramp of 150 s, 100 s are measured from 220 s on, answers and turns are of one length, nothing is truncated, and the
gap between two requests of a user is the thinking alone. A fault falls on one node, so its figures are means of three seeds, as
the study's are. What a rate that is sustained is held against besides: the same traffic under the rivals that come near."""
import argparse
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile
import time

from gates_misses import MISSES
from traces import MOONCAKE, SAMPLES_1024, samples_1024

ROOT = pathlib.Path(__file__).resolve().parents[2]

PERSONAS = {"turn-sigma": 0, "context": 65536, "answer-s-per-token": 0}
FULL = {**PERSONAS, "nodes": 16, "ramp-s": 150, "warmup-s": 220, "duration-s": 320}
P2000 = {**FULL, "personas": 2000, "zipf": 0.9}
P200 = {**FULL, "personas": 200, "zipf": 1.1}
P20K = {**FULL, "personas": 20000, "zipf": 0.9}
CARDS_3K = {**P200, "card-tokens": 3000}
TIGHT = {**P2000, "profile": "study-13b"}
CONVERSATION = {"nodes": 16, "trace": str(MOONCAKE), "spread-ms": 3000, "warmup-s": 40, "slo-ttft-ms": 2000, "slo-tpot-ms": 50}
# Nothing to gain; each seed draws its own arrivals.
CONTROL = {"nodes": 16, "trace": str(SAMPLES_1024)}
# A crowd comes when the minute before it is clear of the ramp's cold caches: it is what the others are held against.
LATER = {"warmup-s": 270, "duration-s": 370}
# Conversations begin twice as often for 20 s; those begun then go on for minutes (after 140 s there are still 5 % more requests,
# and 1.9 points less fit the cache), so what is back to normal is asked long after.
BURST_S = (240, 260)
BURST = {"rate": 580, "duration-s": 600, "burst": f"2:{BURST_S[0]}:{BURST_S[1] - BURST_S[0]}"}
ALL = (1, 4, 8, 16)  # gateways
SEEDS = (1, 2, 3)
MORE_SEEDS = (1, 2, 3, 4, 5, 6, 7, 8)
# Who comes near what ours sustains, and so could be above it. (The others sustain less than .85 of it: study.py's rates.)
# With one gateway, with several.
RIVALS = ("lmetric", "lmetric-p1", "gie", "preble", "sglang-cache-aware"), ("lmetric", "lmetric-p1", "gie")
# The same in a node model measured on a real worker: the demo model on one core (configs/sim/cpu-demo.yaml), with prompts its context
# of 2,048 has room for, a fifth of the study's, and users ten times as quick, so that they fill its KV as the study's fill theirs.
CPU = {"profile": "cpu-demo", "nodes": 16, "personas": 400, "zipf": 0.9, "card-tokens": 200, "card-tokens-min": 32,
       "card-tokens-max": 600, "system-tokens": 16, "turns": 8, "think-s": 2, "user-tokens": 20, "output-tokens": 20, "context": 2048,
       "turn-sigma": 0, "answer-s-per-token": 0, "ramp-s": 40, "warmup-s": 60, "duration-s": 160}
CPU_RATE = 1650  # that sixteen of them sustain with one gateway (found by doubling and halving); no rival does
PLAN, GOSSIP = {"mode": "plan"}, {"mode": "gossip"}
# Gateways tell each other their ledgers unless told otherwise; in most of the study's rows they do not.
LEDGER, ALONE = {"gossip-ms": 20}, {"no-peer-ledger": None}


def case(workload, gates, study="", seeds=(1,), rivals=(), calm=False, beside="", **more):
    """`gates`: figure -> (least, most), None where open. Figures are means over `seeds`. `rivals`: run beside it. `calm`: its fault is
    held against the same traffic without it. `beside`: a policy whose first tokens its own are divided by."""
    return {"flags": {**workload, **{k.replace("_", "-"): v for k, v in more.items()}}, "gates": gates, "study": study, "seeds": seeds,
            "rivals": rivals, "calm": calm, "beside": beside}


def sustains(workload, rate, goodput=0.99, gateways=1, **more):
    """Instead of a bisection: the rate that the gate asks for is run, and must hold, and no rival may serve more of it well."""
    rivals = () if "mode" in more else of(gateways, *RIVALS)
    ahead = {"goodput_ahead": (0, None)} if rivals else {}
    return case(workload, {"goodput": (goodput, None), **ahead}, f"{rate:.0f}/s", rivals=rivals, rate=rate, gateways=gateways, **more)


def no_loss(gateways, seeds):
    """Prompts that share nothing: as good as going round. (With one gateway p90 is 1.01 to 1.03 of round-robin's with eight seeds, with
    more .96 to 1.01; the median 1.05, 8.2 ms for 7.8.)"""
    gates = {"p90_to_beside": (None, 1.03), "p99_to_beside": (None, 1.03)}
    return case(CONTROL, gates, "", seeds, beside="round-robin", gateways=gateways)


def of(gateways, alone, several):
    """The study's gates are for one gateway, and for eight: what holds of those must of four and sixteen, too."""
    return alone if gateways == 1 else several


def each(gateways, name, make):
    return {f"{name} G{g}": make(g) for g in gateways}


def full_cases():
    out = {}
    # 1 and 3, 4: hits against one pooled cache, balance, first tokens
    out |= each(ALL, "p2000-500", lambda g: case(P2000, {"pooled_ratio": (0.985, None)}, {1: ".99", 8: ".99"}.get(g, ""), rate=500, gateways=g))
    out |= each(ALL, "tight-155", lambda g: case(TIGHT, {"pooled_ratio": (0.95, None)}, "", rate=155, gateways=g))
    p450 = {1: "hit .894 cov .021 p99 153", 8: "hit .895 cov .035 p99 166"}
    out |= each(ALL, "p2000-450", lambda g: case(
        P2000, {"work_cov": (None, 0.05), "ttft_p99_ms": (None, of(g, 165, 180))}, p450.get(g, ""), rate=450, gateways=g))
    p450 = {1: "hit .892 cov .078 p99 184", 8: "hit .881 cov .077 p99 196"}
    out |= each(ALL, "p2000-450 plan", lambda g: case(P2000, {"work_cov": (None, 0.10)}, p450.get(g, ""), rate=450, gateways=g, **PLAN))
    p610 = {1: "hit .790 cov .011 p99 230", 8: "hit .791 cov .008 p99 290"}
    out |= each(ALL, "p2000-610", lambda g: case(
        P2000, {"work_cov": (None, 0.03), "ttft_p99_ms": (None, of(g, 245, 300))}, p610.get(g, ""), rate=610, gateways=g, **of(g, {}, ALONE)))
    out |= each(ALL[1:], "p2000-610 ledger", lambda g: case(
        P2000, {"ttft_p99_ms": (None, 270)}, {8: "p99 256"}.get(g, ""), rate=610, gateways=g, **LEDGER))
    out |= each(ALL, "3k-445", lambda g: case(
        CARDS_3K, {"work_cov": (None, 0.06)}, {1: "hit .958 cov .024 p99 117"}.get(g, ""), rate=445, gateways=g))
    mooncake = {1: "hit .315 p90 885", 8: "hit .318 p90 1098"}
    out |= each(ALL, "mooncake-10", lambda g: case(
        CONVERSATION, {"ttft_p90_ms": (None, of(g, 950, 1150))}, mooncake.get(g, ""), rate_scale=10, gateways=g,
        **of(g, {}, ALONE)))
    out |= each(ALL[1:], "mooncake-10 ledger", lambda g: case(
        CONVERSATION, {"ttft_p90_ms": (None, 1020)}, {8: "hit .318 p90 967"}.get(g, ""), rate_scale=10, gateways=g, **LEDGER))
    # 2: as good with sixteen gateways as with one
    for name, mode, most in (("exact", {}, 0.003), ("gossip", GOSSIP, 0.005), ("plan", PLAN, 0.015)):
        out |= each(ALL, f"p2000-550 {name}", lambda g, mode=mode, most=most: case(
            P2000, {"hit_from_G1": (-most, most)}, "", rate=550, gateways=g, **mode))
    # 5: the study's sustainable rates less 2 %, plan's less 4 %
    for name, workload, rates, plan in (
            ("p200", P200, (712, 691), (627, 627)), ("p2000", P2000, (641, 634), (578, 571)), ("p20k", P20K, (538, 527), (472, 466)),
            ("3k", CARDS_3K, (634, 621), (575, 555)), ("tight", TIGHT, (182, 153), (121, 121))):
        out |= each(ALL, f"{name} sustains", lambda g, workload=workload, rates=rates: sustains(workload, of(g, *rates) * 0.98, gateways=g))
        out |= each(ALL, f"{name} plan sustains",
                    lambda g, workload=workload, plan=plan: sustains(workload, of(g, *plan) * 0.96, gateways=g, **PLAN))
    out |= each(ALL, "samples-1024", lambda g: no_loss(g, SEEDS))
    # 6, 7, 8: a flash crowd, a death, nodes that join, a burst, one that is slow
    flash = {"goodput": (0.999, None), "others_p99_ratio": (None, 1.8)}
    out |= each(ALL, "flash-1k", lambda g: case(P2000, {"ttft_p99_ms": (None, 60), **flash}, {1: "p99 44", 8: "p99 53"}.get(g, ""),
                                                   rate=300, gateways=g, flash="0.4:270:100", **LATER))
    out |= each(ALL, "flash-3k", lambda g: case(CARDS_3K, {"ttft_p99_ms": (None, 20), **flash}, {1: "p99 15", 8: "p99 16"}.get(g, ""),
                                                   rate=250, gateways=g, flash="0.4:270:100:3000", **LATER))
    drift = {1: "hit .896 cov .047 p99 154", 8: "hit .897 cov .026 p99 172"}
    out |= each((1, 8), "drift", lambda g: case(P2000, {}, drift[g], rate=450, gateways=g, drift=1))
    kill = {"hit_dip": (None, 0.05), "t95_s": (0, 2), "p99_peak_ratio": (None, 2.2), "stall_max_ms": (None, 500), "lost": (0, 0)}
    out |= each(ALL, "kill", lambda g: case(P2000, kill, {1: "dip .040 peak 227", 4: "dip .038 peak 289"}.get(g, ""), SEEDS, rate=450,
                                            gateways=g, faults=[{"at_s": 250, "kill": 3}]))
    for name, mode, dip in (("exact", {}, 0.03), ("plan", PLAN, 0.06)):
        out |= each(ALL, f"join 8+4 {name}", lambda g, mode=mode, dip=dip: case(
            P2000, {"hit_dip": (None, dip), "p99_worst10_ratio": (None, 1.3)}, {1: "dip .018", 4: "dip .016"}.get(g, ""), SEEDS, nodes=8,
            rate=240, gateways=g, faults=[{"at_s": 250, "join": 4}], **mode))
    burst = {"p99_peak_ms": (None, 550), "p99_settled_s": (0, 20), "hit_lost": (None, 0.01)}
    out |= each(ALL, "burst", lambda g: case(P2000, burst, {1: "peak 312, 1 s", 4: "peak 521, 17 s"}.get(g, ""), **BURST, gateways=g))
    out |= each(ALL, "slow", lambda g: case(P2000, {"ttft_p99_ms": (None, 140)}, {1: "hit .928 p99 130"}.get(g, ""), rate=400, gateways=g,
                                            faults=[{"at_s": 150, "slow": 3, "factor": 2, "for_s": 1000}]))
    return out


def calibrated_cases():
    """The gates that do not hang on the study's milliseconds."""
    out = {}
    hits = {"pooled_ratio": (0.985, None), "work_cov": (None, 0.05)}
    out |= each(ALL, "cpu", lambda g: case(CPU, hits, rate=0.82 * CPU_RATE, gateways=g))
    for name, mode, most in (("exact", {}, 0.003), ("gossip", GOSSIP, 0.005), ("plan", PLAN, 0.015)):
        balance = {"work_cov": (None, 0.10)} if name == "plan" else {}
        out |= each(ALL, f"cpu {name}", lambda g, mode=mode, most=most, balance=balance: case(
            CPU, {"hit_from_G1": (-most, most), **balance}, rate=0.75 * CPU_RATE, gateways=g, **mode))
    out |= each(ALL, "cpu sustains", lambda g: sustains(CPU, of(g, 1, 0.96) * CPU_RATE, gateways=g))
    busy = {"rate": 0.7 * CPU_RATE}
    out |= each(ALL, "cpu flash", lambda g: case(CPU, {"others_p99_ratio": (None, 1.8), "goodput": (0.999, None)}, gateways=g,
                                                    rate=0.45 * CPU_RATE, flash="0.4:100:60"))
    # Users come back within two seconds there: without any fault the worst two seconds of a run are .02 to .03 below its mean (825/s,
    # three seeds), and the worst second's p99 is 1.8 to 2.1 times the mean's.
    out |= each(ALL, "cpu kill", lambda g: case(CPU, {
        "hit_dip": (None, 0.05), "t95_s": (0, 2), "p99_peak_ratio": (None, 2.2), "stall_max_ms": (None, 500), "lost": (0, 0)}, "", MORE_SEEDS,
        calm=True, gateways=g, faults=[{"at_s": 100, "kill": 3}], **busy))
    for name, mode, dip in (("exact", {}, 0.03), ("plan", PLAN, 0.06)):
        out |= each(ALL, f"cpu join 8+4 {name}", lambda g, mode=mode, dip=dip: case(
            CPU, {"hit_dip": (None, dip), "p99_worst10_ratio": (None, 1.3)}, "", SEEDS, nodes=8, rate=0.37 * CPU_RATE, gateways=g,
            faults=[{"at_s": 100, "join": 4}], **mode))
    return out


def small_cases():
    """A quarter of the fleet for a third of the time. Gates are the study's where a figure does not depend on the size; on four
    nodes copies are coarser (plan mode's balance), and a death takes an eighth of eight, not a sixteenth."""
    small = {**PERSONAS, "nodes": 4, "personas": 500, "zipf": 0.9, "ramp-s": 60, "warmup-s": 80, "duration-s": 140}
    exact = {"pooled_ratio": (0.985, None), "work_cov": (None, 0.05), "hit_from_G1": (-0.003, 0.003), "lost": (0, 0),
             "goodput": (0.99, None)}
    out = each((1, 8), "p500-115", lambda g: case(small, exact, rate=115, gateways=g))
    out["p500-115 gossip G8"] = case(small, {"pooled_ratio": (0.975, None), "work_cov": (None, 0.05)}, rate=115, gateways=8,
                                     **GOSSIP)
    out["p500-115 plan G8"] = case(small, {"pooled_ratio": (0.95, None), "work_cov": (None, 0.15)}, rate=115, gateways=8, **PLAN)
    out["3k-105 G1"] = case({**small, "personas": 50, "zipf": 1.1, "card-tokens": 3000}, {"work_cov": (None, 0.06)}, rate=105)
    out |= each((1, 8), "cpu", lambda g: case({**CPU, "nodes": 4, "personas": 100, "duration-s": 120}, {
        "pooled_ratio": (0.985, None), "hit_from_G1": (-0.01, 0.01), "lost": (0, 0), "goodput": (0.99, None)},
        rate=0.75 * CPU_RATE / 4, gateways=g))
    out |= each((1, 8), "samples-1024", lambda g: no_loss(g, SEEDS[:2]))
    out["kill 1 of 8 G4"] = case({**small, "nodes": 8, "personas": 1000}, {
        "hit_dip": (None, 0.12), "t95_s": (0, 6), "stall_max_ms": (None, 1000), "lost": (0, 0)}, rate=160, gateways=4,
        faults=[{"at_s": 95, "kill": 1}])
    return out


def run(program, made):
    each_seed = [run_seed(program, made, seed) for seed in made["seeds"]]
    if len(each_seed) == 1:
        return each_seed[0]
    out = {figure: mean(figures[figure] for figures in each_seed) for figure in each_seed[0] if figure != "seconds"}
    if made["calm"]:
        out |= calm_figures([figures["seconds"] for figures in each_seed], min(fault["at_s"] for fault in made["flags"]["faults"]))
    return out


def run_seed(program, made, seed):
    flags = {**made["flags"], "seed": seed}
    told = replay(program, flags)
    figures = figures_of(told)
    if made["rivals"]:
        figures["goodput_ahead"] = figures["goodput"] - max(
            replay(program, {**flags, "policy": rival})["goodput"] for rival in made["rivals"])
    if made["beside"]:
        other = figures_of(replay(program, {**flags, "policy": made["beside"]}))
        figures |= {f"{p}_to_beside": figures[f"ttft_{p}_ms"] / other[f"ttft_{p}_ms"] for p in ("p90", "p99")}
    if "burst" in flags:
        figures |= burst_figures(told["per_second"], replay(program, {k: v for k, v in flags.items() if k != "burst"})["per_second"])
    if "faults" in flags:
        figures |= after_figures(told["per_second"], min(fault["at_s"] for fault in flags["faults"]))
    if made["calm"]:
        calm = replay(program, {k: v for k, v in flags.items() if k != "faults"})
        figures["seconds"] = told["per_second"], calm["per_second"]
    return figures


def replay(program, flags):
    """The report of one simulation."""
    with tempfile.TemporaryDirectory() as folder:
        report, faults = pathlib.Path(folder) / "report.json", pathlib.Path(folder) / "faults.jsonl"
        if "faults" in flags:
            faults.write_text("".join(json.dumps(fault) + "\n" for fault in flags["faults"]))
            flags = {**flags, "faults": faults}
        if flags.get("trace") == str(SAMPLES_1024):
            flags = {**flags, **samples_1024(pathlib.Path(folder), flags["seed"])}
        command = [str(program), "replay", "--report", str(report)]
        for flag, value in flags.items():
            command += [f"--{flag}"] + ([] if value is None else [str(value)])
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
        return json.loads(report.read_text())


def figures_of(report):
    out = {"hit": report["hit_tokens"], "pooled": report["pooled_lru_hit"], "work_cov": report["work_cov"],
           "goodput": report["goodput"], "lost": report["lost"], "requests": report["requests"]}
    out["pooled_ratio"] = out["hit"] / out["pooled"] if out["pooled"] else 0
    out |= {f"ttft_{p}_ms": report["ttft_ms"][p] for p in ("p50", "p90", "p99")}
    if "faults" in report:
        faults = report["faults"]
        out |= {key: faults[key] for key in ("hit_dip", "t95_s", "p99_peak_ms", "p99_before_ms", "stall_max_ms")}
        out["p99_peak_ratio"] = faults["p99_peak_ms"] / faults["p99_before_ms"] if faults["p99_before_ms"] else 0
    if "crowd_ttft_p99_ms" in report:
        crowd = report["crowd_ttft_p99_ms"]
        out |= {"crowd_p99_ms": crowd["crowd"], "others_p99_ms": crowd["others"],
                "others_p99_ratio": crowd["others"] / crowd["before"] if crowd["before"] else 0}
    return out


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else 0


def after_figures(seconds, fault):
    """The worst ten seconds' mean of p99 after a fault, against the ten seconds before it. (The worst second alone is 1.3 x and
    more in a run without any fault: of 240 requests the third slowest.)"""
    p99 = seconds["ttft_p99_ms"]
    before = mean(p99[fault - 10:fault])
    worst = max(mean(p99[s:s + 10]) for s in range(fault, last_arrival(seconds) - 9))
    return {"p99_worst10_ratio": worst / before if before else 0}


def calm_figures(runs, fault):
    """A fault's figures from the seeds' mean second by second, against the same seconds of the same traffic without it: the worst
    two seconds' hit, how long until three seconds' is 95 % of theirs, the worst second's p99. `runs`: (with, without) of each seed."""
    last = min(last_arrival(seconds) for seconds, _ in runs)
    def means(which, column):
        return [mean(run[which][column][s] for run in runs) for s in range(last)]
    hit, calm = means(0, "hit_tokens"), means(1, "hit_tokens")
    p99, calm_p99 = means(0, "ttft_p99_ms"), means(1, "ttft_p99_ms")
    back = (s - fault for s in range(fault, last - 2) if mean(hit[s:s + 3]) >= 0.95 * mean(calm[s:s + 3]))
    return {"hit_dip": max(mean(calm[s:s + 2]) - mean(hit[s:s + 2]) for s in range(fault, last - 1)), "t95_s": next(back, -1),
            "p99_before_ms": mean(calm_p99[fault:last]), "p99_peak_ms": max(p99[fault:last]),
            "p99_peak_ratio": max(p99[s] / calm_p99[s] for s in range(fault, last))}


def burst_figures(seconds, calm):
    """From the series: the worst second's p99; how long after the burst's end until three seconds' p99 is within 1.3 x of before
    again (-1: never); the hit that the last minute lacks of the same traffic's without the burst (`calm`: one minute of one run
    differs from another of the same run by a point, as personas come and go)."""
    begin, end = BURST_S
    p99 = seconds["ttft_p99_ms"]
    last = last_arrival(seconds)
    before = mean(p99[begin - 20:begin])
    settled = (s - end for s in range(end, last - 2) if mean(p99[s:s + 3]) < 1.3 * before)
    late = slice(last - 60, last)
    return {"p99_before_ms": before, "p99_peak_ms": max(p99[begin:last + 1]), "p99_settled_s": next(settled, -1),
            "hit_lost": mean(calm["hit_tokens"][late]) - mean(seconds["hit_tokens"][late])}


def last_arrival(seconds):
    return max(i for i, arrived in enumerate(seconds["arrived"]) if arrived > 0)


def judge(name, made, figures, by_case):
    """Rows (case, figure, value, gate, pass); a gate's figure that there is not is an error."""
    first = by_case.get(name.rsplit(" G", 1)[0] + " G1")
    if first:
        figures["hit_from_G1"] = figures["hit"] - first["hit"]
    rows = []
    for figure, (least, most) in made["gates"].items():
        if figure == "hit_from_G1" and first is None:
            continue  # --only left its G1 out
        value = figures[figure]
        passed = (least is None or value >= least) and (most is None or value <= most)
        gate = " ".join(part for part in (f">= {least:g}" if least is not None else "", f"<= {most:g}" if most is not None else "")
                        if part)
        rows.append((name, figure, value, gate, passed))
    return rows


def row_of(entry):
    figures = entry["figures"]
    gates = [f"{gate['figure']} {gate['value']:.4g} ({gate['gate']}) {'pass' if gate['pass'] else '**miss**'}" for gate in entry["gates"]]
    return [entry["case"], f"{figures['hit']:.4f}", f"{figures['pooled']:.4f}", f"{figures['work_cov']:.3f}",
            "/".join(f"{figures[f'ttft_{p}_ms']:.0f}" for p in ("p50", "p90", "p99")), f"{figures['goodput']:.4f}",
            entry["study"], "; ".join(gates)]


def write_result(saved, in_order):
    """The table in tests/bench/results/gates.json, in which rows of cases that were not run stay; report.py makes a page of it."""
    sys.path.insert(0, str(ROOT / "tests/bench"))
    import common
    rows = {row[0]: row for row in json.loads((common.RESULTS / "gates.json").read_text())["rows"]}
    rows |= {entry["case"]: row_of(entry) for entry in saved}
    rows = [rows[name] for name in in_order if name in rows]
    count = sum(row[-1].count(") ") for row in rows)
    missed = [row for row in rows if "**miss**" in row[-1]]
    workloads = dict.fromkeys(row[0].rsplit(" G", 1)[0] for row in missed)
    common.save("gates", "The routing brain against its study's gates, simulated", "tests/sim/gates.py --all --result",
                ["case", "hit", "pooled LRU", "work CoV", "TTFT p50/p90/p99 ms", "goodput", "study", "gates"], rows,
                [f"{count - sum(row[-1].count('**miss**') for row in missed)} of {count} gates met. Simulated with the production routing and "
                 "scheduling code; node model `study`, in cases named cpu `cpu-demo`, measured on the CPU worker with the demo model.",
                 *(f"{workload}: {MISSES[workload]}" for workload in workloads if workload in MISSES)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/bin/troupe-sim")
    parser.add_argument("--all", action="store_true", help="the study's workloads at full size")
    parser.add_argument("--only", default="", help="cases whose name contains this (several: a,b)")
    parser.add_argument("--jobs", type=int, default=1, help="simulations at once")
    parser.add_argument("--save", type=pathlib.Path, help="keep all figures and judgements here, as JSON")
    parser.add_argument("--result", action="store_true", help="write the table to tests/bench/results/gates.json")
    options = parser.parse_args()
    cases = full_cases() | calibrated_cases() if options.all else small_cases()
    in_order = list(cases)
    wanted = [part for part in options.only.split(",") if part]
    cases = {name: made for name, made in cases.items() if not wanted or any(part in name for part in wanted)}
    if not cases:
        parser.error(f"--only {options.only}: no case is named so")
    for name, made in list(cases.items()):
        trace = made["flags"].get("trace")
        if trace and not pathlib.Path(trace).exists():
            print(f"SKIPPED {name}: {trace} is not there (TROUPE_DATA names its folder)", flush=True)
            del cases[name]
    kept = json.loads(options.save.read_text()) if options.save and options.save.exists() else []
    saved = {entry["case"]: entry for entry in kept}
    by_case, rows = {name: entry["figures"] for name, entry in saved.items()}, []
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for (name, made), figures in zip(cases.items(), pool.map(lambda made: run(options.program, made), cases.values())):
            by_case[name] = figures
            judged = judge(name, made, figures, by_case)
            rows += judged
            saved[name] = {"case": name, "study": made["study"], "figures": figures,
                           "gates": [dict(zip(("figure", "value", "gate", "pass"), row[1:])) for row in judged]}
            print(f"{name:24} hit {figures['hit']:.4f} of {figures['pooled']:.4f} ({figures['pooled_ratio']:.3f})  cov "
                  f"{figures['work_cov']:.3f}  ttft {figures['ttft_p50_ms']:.1f}/{figures['ttft_p90_ms']:.0f}/"
                  f"{figures['ttft_p99_ms']:.0f} ms  good {figures['goodput']:.4f}   study: {made['study']}", flush=True)
            for _, figure, value, gate, passed in judged:
                print(f"    {'pass' if passed else 'MISS'}  {figure:15} {value:10.4f}   gate {gate}", flush=True)
            if options.save:
                options.save.write_text(json.dumps(list(saved.values()), indent=1) + "\n")
    if options.result:
        write_result(saved.values(), in_order)
    missed = [row for row in rows if not row[4]]
    print(f"{len(rows) - len(missed)} of {len(rows)} gates met by {len(cases)} cases in {time.monotonic() - begin:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

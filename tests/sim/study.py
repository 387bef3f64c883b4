#!/usr/bin/env python3
"""The routing study's tables again, with the production code: its rivals and ours on its workloads, figures beside its own.

  tests/sim/study.py                      everything that is not in tests/sim/study.json yet (an hour of one core)
  tests/sim/study.py --only 'rate P2000'  rows whose name contains this (several: a,b), measured anew with --again
  tests/sim/study.py --result             the tables for tests/bench/RESULTS.md, from tests/sim/study.json

A row of `rate` runs a policy at 0.9 and at 1.1 times the rate that it sustained in the study (99 % of requests good): within
10 % of it means that the first holds and the second does not. A row of `detail` runs it at the study's rate and puts the
figures side by side. Traces of TROUPE_DATA have no figures in the study but Mooncake's; there all policies stand beside each other.
Fleet, rates, ramp and span are the study's: a shorter ramp (90 s, measured 140 s to 200 s) costs every policy about half a point of hit."""
import argparse
import gzip
import json
import pathlib
import random
import sys
import tempfile

import gates

ROOT = gates.ROOT
SAVED = ROOT / "tests/sim/study.json"
WORKLOADS = {"P200": gates.P200, "P2000": gates.P2000, "P20k": gates.P20K, "3k": gates.CARDS_3K, "tight": gates.TIGHT}
WITHIN = 0.10

# Our names for the study's rows. "approx" is a picker that no worker tells its residency.
POLICIES = {
    "exact": {}, "exact+ledger": gates.LEDGER, "gossip": gates.GOSSIP, "plan": gates.PLAN, "strict": {"mode": "strict"},
    "gie-approx": {"policy": "gie", "mode": "gossip"},
}
OURS = ("exact", "exact+ledger", "gossip", "plan", "strict")


def policy_flags(name):
    return POLICIES.get(name, {"policy": name})


# §2 of the study: sustainable requests/s with 1 and with 8 gateways.
RATES = {
    "P200": {"round-robin": (276, 283), "least-requests": (325, 318), "power-of-two": (304, 283), "rendezvous-session": (550, 550),
             "chwbl": (423, 416), "sglang-cache-aware": (592, 297), "preble": (662, 346), "gie-approx": (550, 360), "gie": (641, 641),
             "dynamo": (423, 445), "lmetric-p1": (550, 655), "lmetric": (705, 684), "strict": (705, 684), "plan": (627, 627),
             "gossip": (705, 684), "exact": (712, 691), "exact+ledger": (712, 705)},
    "P2000": {"round-robin": (220, 220), "least-requests": (255, 255), "power-of-two": (234, 234), "rendezvous-session": (438, 438),
              "chwbl": (452, 423), "sglang-cache-aware": (536, 255), "preble": (571, 269), "gie-approx": (473, 262), "gie": (585, 585),
              "dynamo": (339, 360), "lmetric-p1": (459, 578), "lmetric": (634, 620), "strict": (627, 627), "plan": (578, 571),
              "gossip": (627, 627), "exact": (641, 634), "exact+ledger": (641, 634)},
    "tight": {"round-robin": (90, 90), "least-requests": (99, 99), "power-of-two": (66, 66), "rendezvous-session": (83, 83),
              "chwbl": (103, 90), "sglang-cache-aware": (105, 20), "preble": (151, 75), "gie-approx": (127, 68), "gie": (90, 90),
              "dynamo": (134, 112), "lmetric-p1": (151, 125), "lmetric": (138, 123), "strict": (171, 160), "plan": (121, 121),
              "gossip": (178, 153), "exact": (182, 153), "exact+ledger": (182, 175)},
}
RATES_RUN = (("P2000", 1), ("P2000", 8), ("P200", 1), ("tight", 1))

# §3: workload, rate, and by policy and gateways: hit, work CoV, TTFT p50/p90/p99 ms, goodput (None where it prints none).
DETAIL = {
    "P2000 70 %": ("P2000", {"rate": 450}, {
        ("sglang-cache-aware", 1): (.886, .079, 10.6, 70, 192, 1.0), ("preble", 1): (.842, .018, 11.8, 106, 231, 1.0),
        ("lmetric", 1): (.884, .022, 10.6, 76, 210, 1.0), ("lmetric", 8): (.853, .012, 11.5, 96, 215, 1.0),
        ("plan", 1): (.892, .078, 10.4, 65, 184, 1.0), ("plan", 8): (.881, .077, 10.7, 75, 196, 1.0),
        ("gossip", 1): (.892, .026, 10.3, 58, 157, 1.0), ("gossip", 8): (.893, .029, 10.3, 62, 170, 1.0),
        ("exact", 1): (.894, .021, 10.2, 55, 153, 1.0), ("exact", 8): (.895, .035, 10.3, 61, 166, 1.0),
        ("exact+ledger", 8): (.895, .023, 10.3, 58, 158, 1.0)}),
    "P2000 95 %": ("P2000", {"rate": 610}, {
        ("sglang-cache-aware", 1): (.687, .009, 193, 518, 889, .06), ("preble", 1): (.715, .003, 95, 270, 468, .42),
        ("lmetric", 1): (.789, .004, 42, 188, 378, .997), ("lmetric", 8): (.771, .003, 52, 207, 387, .995),
        ("exact", 1): (.790, .011, 30, 126, 230, 1.0), ("exact", 8): (.791, .008, 37, 153, 290, 1.0),
        ("exact+ledger", 8): (.790, .012, 34, 140, 256, None)}),
    "P200 70 %": ("P200", {"rate": 500}, {
        ("sglang-cache-aware", 1): (.891, .109, 10.7, 68, 184, None), ("lmetric", 1): (.894, .015, 10.6, 64, 174, None),
        ("lmetric", 8): (.878, .010, 11.1, 73, 184, None), ("exact", 1): (.898, .021, 10.4, 48, 135, None),
        ("exact", 8): (.898, .014, 10.5, 62, 164, None)}),
    "P20k 95 %": ("P20k", {"rate": 510}, {
        ("sglang-cache-aware", 1): (.629, .005, 175, 498, 882, None), ("lmetric", 1): (.726, .004, 57, 213, 394, None),
        ("exact", 1): (.727, .005, 38, 126, 222, None), ("exact", 8): (.725, .006, 51, 183, 331, None)}),
    "3k cards 70 %": ("3k", {"rate": 445}, {
        ("sglang-cache-aware", 1): (.933, .104, 13, 72, 202, None), ("lmetric", 1): (.956, .034, 11.8, 39, 143, None),
        ("lmetric", 8): (.942, .023, 12.5, 55, 171, None), ("exact", 1): (.958, .024, 11.6, 31, 117, None),
        ("exact", 8): (.958, .021, 11.7, 35, 132, None)}),
    "tight 13B 95 %": ("tight", {"rate": 169}, {
        ("sglang-cache-aware", 1): (.459, .034, 191, 577, 1235, .76), ("lmetric", 1): (.514, .009, 109, 342, 579, .98),
        ("exact", 1): (.518, .010, 74, 221, 368, .998), ("exact", 8): (.515, .009, 100, 312, 530, .986)}),
    "flash 40 %, 1k": ("P2000", {"rate": 300, "flash": "0.4:220:100"}, {
        ("sglang-cache-aware", 1): (.945, .236, 8.7, 13, 118, None), ("lmetric", 1): (.957, .173, 8.5, 11, 77, None),
        ("lmetric", 8): (.951, .101, 8.5, 11, 85, None), ("exact", 1): (.963, .030, 8.4, 10.7, 44, None),
        ("exact", 8): (.962, .036, 8.3, 10.7, 53, None)}),
    "flash 40 %, 3k": ("P200", {"rate": 250, "flash": "0.4:220:100:3000"}, {
        ("preble", 1): (.985, .210, 10, 36, 17607, .92), ("lmetric", 1): (.986, .357, 10.6, 21, 32, None),
        ("strict", 1): (.973, .145, 10.6, 15, 118, None), ("exact", 1): (.987, .113, 10, 13, 15, None),
        ("exact", 8): (.987, .115, 9.9, 13.5, 16, None)}),
    "drift": ("P2000", {"rate": 450, "drift": 1}, {
        ("sglang-cache-aware", 1): (.864, .125, 11, 96, 246, None), ("lmetric", 1): (.885, .030, 10.6, 83, 236, None),
        ("plan", 1): (.891, .120, 10.6, 67, 180, None), ("exact", 1): (.896, .047, 10.3, 57, 154, None),
        ("exact", 8): (.897, .026, 10.3, 60, 172, None)}),
    "Mooncake 70 %": ("mooncake", {"rate-scale": 7.5}, {
        ("sglang-cache-aware", 1): (.324, .060, 343, 1444, 3644, .929), ("preble", 1): (.328, .048, 210, 1016, 3083, .961),
        ("lmetric", 1): (.328, .046, 236, 1203, 3788, .942), ("lmetric-p1", 1): (.266, .037, 168, 810, 2751, .978),
        ("lmetric", 8): (.315, None, 312, 1602, 4048, .917), ("exact", 1): (.326, .028, 166, 878, 2842, .976),
        ("exact", 8): (.331, None, 195, 1017, 3149, .965), ("exact+ledger", 8): (.326, None, 177, 897, 2883, .972)}),
    "Mooncake 95 %": ("mooncake", {"rate-scale": 10}, {
        ("sglang-cache-aware", 1): (.320, .028, 419, 1918, 4114, .891), ("preble", 1): (.316, .040, 284, 1232, 3271, .945),
        ("rendezvous-session", 1): (.327, .169, 555, 4358, 11255, .74), ("lmetric", 1): (.326, .021, 316, 1584, 3864, .916),
        ("lmetric", 8): (.308, None, 419, 1980, 4486, .876), ("exact", 1): (.315, .026, 181, 885, 2952, .969),
        ("exact", 8): (.318, None, 216, 1098, 3337, .953), ("exact+ledger", 8): (.318, None, 201, 967, 3079, .965)}),
}
FIGURES = ("hit", "work_cov", "ttft_p50_ms", "ttft_p90_ms", "ttft_p99_ms", "goodput")

# Why a figure is worse than the study's by more than 10 %, by the beginning of the row's name; the first that fits. "Not found" was
# looked at.
BOUND = "the personas of one seed: the pooled bound is {} here and {} in the study (seeds differ by a point), and p90 is mostly misses"
KNEE = "beyond what it sustains, here as in the study: how far its queues grow in 100 s"
LMETRIC = ("miss x batch sees nothing of the queue, and the study's p0 saw a little of it: with a fiftieth of the pending tokens beside the miss "
           "ours has .780, 38/170/415 ms, .994 good at P2000 95 % (pooled bound .789; the study .789, 42/188/378, .997, bound .799), and "
           "with a twentieth 1.000 (P200) and .989 (tight) at 0.9 x. Not the cause at 571/s (.900 good): prefill first come first served "
           ".867, plain LRU .922, loads by reports .900, decodes on top of a step's 2,048 .865")
PREBLE = ("its two costs are weighed in seconds of the original's machine, and near the limit all hangs on that: at 0.9 x P2000 .985 good with its "
          "8,300 prompt tokens/s and 45 tokens an answer, .002 with this node's 30,000, .030 with the 120 that answers have; the study's are not "
          "written. Rebalancing is not the cause (.986 every second, .967 never). At 0.85 x: P2000 .999, P200 .876, tight .968")
MOVES = "rebalancing moves prompts that nobody shares: never rebalanced, at 95 % .308 of the bound's .326 and 164/879/3171 ms"
REASONS = {
    "detail P2000 70 % G1 sglang": BOUND.format(".888", ".897"), "detail P2000 70 % G1 lmetric": BOUND.format(".888", ".897"),
    "detail P2000 95 % G1 sglang": KNEE, "detail P20k 95 % G1 sglang": KNEE, "detail tight 13B 95 % G1 sglang": KNEE,
    "detail P2000 95 % G1 preble": "beyond what it sustains, here and (goodput .42) in the study",
    "detail P2000 95 % G1 lmetric": LMETRIC, "detail P2000 95 % G8 lmetric": LMETRIC, "detail P20k 95 % G1 lmetric": LMETRIC,
    "detail P2000 70 %": BOUND.format(".888", ".897"), "detail P2000 95 %": BOUND.format(".789", ".799"),
    "detail P200 70 % G1 lmetric": BOUND.format(".895", ".901"), "detail 3k cards": BOUND.format(".954", ".960"),
    "detail tight 13B 95 % G1 lmetric": LMETRIC, "detail tight 13B": BOUND.format(".503", ".530"),
    "detail flash 40 %, 1k G1 sglang": "not found: hit .892 for .945. Measured: prefill first come first served .899, and plain LRU .895, a later "
                                       "crowd .892, a prefix that stays with its first node .807, nothing learned while loads are uneven .760",
    "detail flash 40 %, 3k G1 preble": "rebalancing takes the crowd off its node, which costs copies; never rebalanced, hit .965 of the bound's .979, "
                                       "p99 10.5 s, .893 good, as in the study",
    "detail flash 40 %, 3k": "the personas of one seed: the pooled bound is .979 here and at least .987 in the study",
    "detail Mooncake 70 % G1 preble": MOVES, "detail Mooncake 95 % G1 preble": MOVES,
    "rate P2000 G1 preble": PREBLE, "rate P200 G1 preble": PREBLE, "rate tight G1 preble": PREBLE,
    "rate P2000 G1 lmetric": LMETRIC, "rate P2000 G8 lmetric": LMETRIC, "rate P200 G1 lmetric": LMETRIC, "rate tight G1 lmetric": LMETRIC,
    "rate P2000 G8 least-requests": "each gateway counts its own eighth, as the original does: .982 good at 0.8 x. By reports all of them go to the "
                                    "same node (.741 at 0.9 x): the study's count is not written",
    "rate P2000 G8 chwbl": "the study counted a node's requests by reports, of all gateways: so ours has .994 good at 0.9 x and .911 at 1.1 x, as "
                           "there. By its own eighth, as the original counts, it spills more (hit .603 for .722)",
    "rate tight G1 least-requests": "not found: .971 good at 0.8 x, too. Measured at 0.9 x (.957): prefill first come first served .944, plain "
                                    "LRU .927, both .915",
}


# ---------------------------------------------------------------- traces of TROUPE_DATA that the study had no row for

def exponential(draw, mean):
    return draw.expovariate(1 / mean)


def samples_1024(folder):
    """The control: one-shot prompts that share nothing, twenty rounds of the list at 300/s. Nobody can gain; nobody may lose."""
    rows = (gates.DATA / "ppl_llm_serving/samples_1024_token_lengths.csv").read_text().splitlines()
    lengths = [tuple(map(int, row.split(",")[1:3])) for row in rows[1:]]
    draw, at, next_id = random.Random(1), 0.0, 1
    with gzip.open(folder / "samples.jsonl.gz", "wt", compresslevel=1) as out:
        for prompt, answer in lengths * 20:
            blocks = -(-max(prompt, 1) // 16)
            out.write(json.dumps({"timestamp": round(at, 3), "input_length": max(prompt, 1), "output_length": answer,
                                  "block_size": 16, "hash_ids": list(range(next_id, next_id + blocks))}) + "\n")
            next_id += blocks
            at += exponential(draw, 1000 / 300)
    return {"trace": folder / "samples.jsonl.gz", "spread-ms": 0, "warmup-s": 10}


def agent_sessions(folder):
    """Real coding-agent sessions: 100 of them begin within three minutes (Poisson), the first 25 requests of each, think times
    as recorded but at most 30 s; prompts over 100,000 tokens end a session. Heads of one (tool, system) length are one head."""
    draw, requests, heads = random.Random(1), [], {}
    with gzip.open(gates.DATA / "kv_cache_tester/sessions_even.jsonl.gz", "rt") as lines:
        sessions = [json.loads(line) for _, line in zip(range(100), lines)]
    start = 0.0
    for number, session in enumerate(sessions):
        start += exponential(draw, 180 / len(sessions))
        head = session["tool_tokens"] + session["system_tokens"]
        shared = heads.setdefault((session["tool_tokens"], session["system_tokens"]), len(heads) + 1)
        at, last = start, None
        for request in [r for r in session["requests"] if r["type"] in "ns"][:25]:
            if request["in"] > 100_000:
                break
            at += 0 if last is None else min(request["t"] - last, 30)
            last = request["t"]
            ids = [i for begin, count in zip(request["runs"][::2], request["runs"][1::2]) for i in range(begin, begin + count)]
            ids = [(shared << 24) + i if i * 64 <= head else ((number + 1) << 32) + i for i in ids]
            requests.append((at, {"input_length": request["in"], "output_length": max(request["out"], 1), "block_size": 64,
                                  "session": f"s{number}", "hash_ids": ids}))
    requests.sort(key=lambda pair: pair[0])
    with gzip.open(folder / "agents.jsonl.gz", "wt", compresslevel=1) as out:
        for at, request in requests:
            out.write(json.dumps({"timestamp": round((at - requests[0][0]) * 1000, 3), **request}) + "\n")
    return {"trace": folder / "agents.jsonl.gz", "spread-ms": 0, "warmup-s": 60, "slo-ttft-ms": 5000, "slo-tpot-ms": 50}


TRACES = {"samples_1024": samples_1024, "agents": agent_sessions}
TRACE_POLICIES = ("exact", "gossip", "plan", "round-robin", "least-requests", "power-of-two", "rendezvous-session", "chwbl",
                  "sglang-cache-aware", "preble", "gie", "dynamo", "lmetric-p1", "lmetric")


# ---------------------------------------------------------------- rows

def rows():
    """name → what to run: (kind, workload, flags, gateways, policy, the study's figures)."""
    out = {}
    for workload, gateways in RATES_RUN:
        for policy, rates in RATES[workload].items():
            rate = rates[0 if gateways == 1 else 1]
            out[f"rate {workload} G{gateways} {policy}"] = ("rate", workload, {}, gateways, policy, rate)
    for name, (workload, flags, cells) in DETAIL.items():
        for (policy, gateways), figures in cells.items():
            out[f"detail {name} G{gateways} {policy}"] = ("detail", workload, flags, gateways, policy, figures)
    for name in TRACES:
        for gateways in (1, 4):
            for policy in TRACE_POLICIES:
                out[f"trace {name} G{gateways} {policy}"] = ("trace", name, {}, gateways, policy, None)
    return out


class Runner:
    def __init__(self, program, folder):
        self.program, self.folder, self.traces = program, folder, {}

    def workload(self, name):
        if name in WORKLOADS:
            return WORKLOADS[name]
        if name == "mooncake":
            return gates.CONVERSATION
        if name not in self.traces:
            self.traces[name] = {"nodes": 16, **TRACES[name](self.folder)}
        return self.traces[name]

    def figures(self, workload, flags, gateways, policy):
        made = gates.case({**self.workload(workload), **flags, **policy_flags(policy)}, {}, gateways=gateways)
        told = gates.run(self.program, made)
        return {key: round(told[key], 4) for key in (*FIGURES, "pooled", "requests", "lost")}

    def row(self, kind, workload, flags, gateways, policy, study):
        if kind == "rate":
            low, high = (self.figures(workload, {"rate": round(study * factor, 1)}, gateways, policy)
                         for factor in (1 - WITHIN, 1 + WITHIN))
            good = low["goodput"] >= 0.99, high["goodput"] < 0.99
            return {"study": {"rate": study}, "at_0.9": low, "at_1.1": high,
                    "sustains": "as in the study" if all(good) else "more" if good[0] else "less"}
        figures = self.figures(workload, flags, gateways, policy)
        if study is None:
            return {"figures": figures}
        study = {name: value for name, value in zip(FIGURES, study) if value is not None}
        return {"study": study, "figures": figures,
                "difference": {name: round(figures[name] - value if name in ("hit", "work_cov", "goodput") else figures[name] / value - 1, 4)
                               for name, value in study.items()}}


def reason_of(name, row):
    """Empty where nothing is worse by more than 10 % (of a hit rate: two points)."""
    if name.startswith("rate "):
        if row["sustains"] != "less":
            return ""
        if row["at_0.9"]["goodput"] >= 0.975:
            return "short of 99 % by little"
    elif not any(row["figures"][key] < study - 0.02 if key == "hit" else key.startswith("ttft") and row["figures"][key] > 1.1 * study
                 for key, study in row.get("study", {}).items()):
        return ""
    return next((why for begin, why in REASONS.items() if name.startswith(begin)), "not looked into yet")


def write_result(saved):
    sys.path.insert(0, str(ROOT / "tests/bench"))
    import common

    def text(figures):
        def of(key, form):
            return format(figures[key], form) if key in figures else "–"
        return (f"{of('hit', '.3f')} {of('work_cov', '.3f')} {of('ttft_p50_ms', '.0f')}/{of('ttft_p90_ms', '.0f')}/"
                f"{of('ttft_p99_ms', '.0f')} {of('goodput', '.3f')}")

    rates = [[name.removeprefix("rate "), row["study"]["rate"], f"{row['at_0.9']['goodput']:.3f}", f"{row['at_1.1']['goodput']:.3f}",
              row["sustains"], reason_of(name, row)] for name, row in saved.items() if name.startswith("rate ")]
    alike = sum(row[4] == "as in the study" for row in rates)
    common.save("study_rates", "Policies at the rates they sustained in the routing study", "tests/sim/study.py --result",
                ["fleet, policy", "study's requests/s", "good at 0.9 ×", "good at 1.1 ×", "sustains", "why otherwise"], rates,
                [f"{alike} of {len(rates)} within 10 %. Simulated; good: first token within 500 ms and 30 ms a token."])
    details = [[name.split(" ", 1)[1], text(row["figures"]), text(row["study"]) if "study" in row else "", reason_of(name, row)]
               for name, row in saved.items() if not name.startswith("rate ")]
    common.save("study_detail", "Policies beside the routing study's figures", "tests/sim/study.py --result",
                ["workload, policy", "hit, work CoV, TTFT p50/p90/p99 ms, good", "the study's", "why otherwise"], details,
                ["Simulated with the production routing and scheduling code, 16 nodes of profile `study`; traces of TROUPE_DATA."])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/bin/troupe-sim")
    parser.add_argument("--only", default="", help="rows whose name contains this (several: a,b)")
    parser.add_argument("--again", action="store_true", help="measure what is saved anew")
    parser.add_argument("--result", action="store_true", help="only write the tables from what is saved")
    options = parser.parse_args()
    saved = json.loads(SAVED.read_text()) if SAVED.exists() else {}
    wanted = [part for part in options.only.split(",") if part]
    if not options.result:
        with tempfile.TemporaryDirectory() as folder:
            runner = Runner(options.program, pathlib.Path(folder))
            for name, what in rows().items():
                if (wanted and not any(part in name for part in wanted)) or (name in saved and not options.again):
                    continue
                if what[1] not in WORKLOADS and not gates.DATA.exists():
                    print(f"SKIPPED {name}: {gates.DATA} is not there (TROUPE_DATA names it)")
                    continue
                saved[name] = runner.row(*what)
                saved = {key: saved[key] for key in rows() if key in saved}
                SAVED.write_text(json.dumps(saved, indent=1) + "\n")
                print(name, json.dumps(saved[name].get("difference", saved[name].get("sustains", saved[name].get("figures")))), flush=True)
    else:
        write_result(saved)
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""What routing costs the gateway: a decision and a request's whole life in the router at 16 to 1,024 nodes, a plan, the hashes of an
8 KB prompt against one bare XXH3 pass over it, and learning sets. Runs build/bin/route_bench several times and keeps the least of each,
because whatever else runs only adds."""
import argparse
import json
import subprocess

from common import BIN, save

NODES = (16, 64, 256, 1024)
POLICIES = (("affinity, one gateway", "decide/affinity"), ("affinity, eight gateways", "decide/affinity_8_gateways"),
            ("power-of-two", "decide/power_of_two"), ("chwbl", "decide/chwbl"), ("rendezvous-session", "decide/rendezvous_session"),
            ("sglang-cache-aware", "decide/sglang_cache_aware"), ("dynamo", "decide/dynamo"), ("lmetric", "decide/lmetric"),
            ("gie", "decide/gie"), ("preble", "decide/preble"))
TO_US = {"ns": 1e-3, "us": 1, "ms": 1e3}


def measure(rounds):
    """name → (least CPU µs, counters of that run)."""
    least = {}
    for _ in range(rounds):
        told = json.loads(subprocess.run([BIN / "route_bench", "--benchmark_format=json", "--benchmark_min_time=0.2"], capture_output=True,
                                         text=True, check=True, timeout=900).stdout)
        for run in told["benchmarks"]:
            us = run["cpu_time"] * TO_US[run["time_unit"]]
            if us < least.get(run["name"], (float("inf"),))[0]:
                least[run["name"]] = (us, run)
    return least


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    least = measure(parser.parse_args().rounds)

    def row(label, name):
        us = [least.get(f"{name}/{nodes}", (None,))[0] for nodes in NODES]
        return [label, *(f"{value:.2f}" if value is not None else "" for value in us), f"**{us[-1] / us[0]:.2f}**"]

    rows = [row(f"decide: {label}", name) for label, name in POLICIES]
    rows += [row("a request's whole life in the router, affinity", "whole_request"), row("the first plan of 2,000 sets", "first_plan"),
             row("a plan as loads drift", "tick")]
    keys = [least[f"prefix_key_8k/{messages}"][1] for messages in (2, 8, 20)]
    sketch = [(links, least[f"sketch/refine/{links}"][0], least[f"sketch/refine_and_learn/{links}"][0]) for links in (2, 20, 130)]
    save("route", "What routing costs, CPU µs by nodes", "tests/bench/route.py", ["what", *(f"{n:,} nodes" for n in NODES), "1,024 ÷ 16"], rows, [
        "25 requests in flight a node, 2,000 personas by Zipf's law, 200 conversations a node. Affinity looks at some nodes whatever their "
        "number; its rivals at all of them.",
        "Hashing an 8 KB chat of 2 / 8 / 20 messages: " + " / ".join(f"{key['ratio']:.2f}" for key in keys) +
        " × one bare XXH3 pass over 8 KB (" + " / ".join(f"{key['key_ns'] / 1e3:.2f}" for key in keys) + " µs; goal: within 3 ×).",
        "Finding a prompt's set among its links, without and with learning from it: " +
        ", ".join(f"{look:.2f} and {learn:.2f} µs at {links} links" for links, look, learn in sketch) + "."])


if __name__ == "__main__":
    main()

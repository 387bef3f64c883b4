#!/usr/bin/env python3
"""The gateway beside nginx (a plain proxy), sglang-router and vllm-router (cache aware) and litellm: the same chat requests to the same
stub upstream, one process on one core each, in turns. Ratios are to nginx in the same round, the median of the rounds is quoted.

    tests/bench/gateway_vs_peers.py                     installs the peers (peers_requirements.txt) into build/peers, some minutes once
    tests/bench/gateway_vs_peers.py --peers none        nginx and the gateway only

Streams: 200 chunks, 10 ms apart, each a write of its own. There the pace gives the rate, so the ratio is of CPU time a chunk.
"""
import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from common import BIN, ROOT, cpu_seconds, free_ports, machine, running, save, wait_http
from gateway_vs_nginx import LOAD_CORE, PROXY_CORE, chat_body, load, need_two_cores

UNARY = [(kilobytes, connections) for kilobytes in (1, 8, 200) for connections in (1, 32, 256)]
STREAMS = (1, 32, 256)
LONGER = {"200 KB": 4, "stream": 3}  # times --seconds: there a second holds too few answers for a p99
SHARE_GOAL, PEERS_GOAL = 0.8, 5
SHARE_GOAL_KINDS = ("8 KB", "200 KB", "stream")
PACE_US = 10000
PEERS = ("sglang-router", "vllm-router", "litellm")


def installed(venv):
    """The folder with the peers' programs; made if it is not there."""
    requirements = pathlib.Path(__file__).with_name("peers_requirements.txt")
    if not (venv / "bin/litellm").exists():
        print(f"installing {', '.join(PEERS)} into {venv}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([venv / "bin/pip", "install", "-q", "--disable-pip-version-check", "-r", requirements], check=True)
    return venv / "bin"


def versions(bin_dir):
    listed = json.loads(subprocess.run([bin_dir / "pip", "list", "--format", "json", "--disable-pip-version-check"], capture_output=True,
                                       check=True, text=True).stdout)
    found = {entry["name"].replace("_", "-"): entry["version"] for entry in listed}
    return {name: found[name] for name in PEERS}


def commands(scratch, ports, upstream, bin_dir, names):
    """name → command of a proxy on ports[name]"""
    conf = (ROOT / "tests/bench/nginx.conf.in").read_text()
    for key, value in {"PORT": ports["nginx"], "UPSTREAM": upstream, "DIR": scratch}.items():
        conf = conf.replace(f"@{key}@", str(value))
    nginx, litellm = scratch / "nginx.conf", scratch / "litellm.yaml"
    nginx.write_text(conf)
    url = f"http://127.0.0.1:{upstream}"
    litellm.write_text(json.dumps({
        "model_list": [{"model_name": "stub", "litellm_params": {"model": "openai/stub", "api_base": f"{url}/v1", "api_key": "none"}}],
        "general_settings": {"dangerously_permit_weak_or_unset_master_key": True}}))  # no key, as nobody else here asks for one
    metrics = free_ports(3)
    known = {
        "nginx": ["nginx", "-c", nginx, "-e", scratch / "error.log"],
        "troupe-gateway": [BIN / "troupe-gateway", "--port", ports["troupe-gateway"], "--metrics-port", metrics[0], "--worker-urls", url],
        "sglang-router": [bin_dir / "sglang-router", "launch", "--host", "127.0.0.1", "--port", ports["sglang-router"], "--worker-urls", url,
                          "--policy", "cache_aware", "--prometheus-port", metrics[1], "--log-level", "error"],
        "vllm-router": [bin_dir / "vllm-router", "--host", "127.0.0.1", "--port", ports["vllm-router"], "--worker-urls", url,
                        "--policy", "cache_aware", "--prometheus-port", metrics[2], "--log-level", "error"],
        "litellm": [bin_dir / "litellm", "--host", "127.0.0.1", "--port", ports["litellm"], "--config", litellm, "--num_workers", "1"],
    }
    return {name: known[name] for name in names}


def timed(process, port, connections, seconds, body):
    load(port, connections, 0.3, body)
    before = cpu_seconds(process.pid)
    out = load(port, connections, seconds, body)
    out["cpu_us"] = (cpu_seconds(process.pid) - before) * 1e6
    return out


def answers(port, body):
    """Whether a whole answer comes at all (a peer may refuse what the others take)."""
    done = subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-m", "30", "-H", "content-type: application/json",
                           "--data-binary", f"@{body}", f"http://127.0.0.1:{port}/v1/chat/completions"], capture_output=True, text=True)
    return done.stdout == "200"


class Table:
    def __init__(self, names):
        self.names, self.cells = names, {}

    def add(self, cell, name, figures):
        self.cells.setdefault(cell, {}).setdefault(name, []).append(figures)

    def median(self, cell, name, pick):
        return statistics.median(pick(figures) for figures in self.cells[cell][name])

    def ratio(self, cell, name, pick):
        """of `name` to nginx, round by round"""
        both = zip(self.cells[cell][name], self.cells[cell]["nginx"])
        return statistics.median(pick(a) / max(pick(b), 1e-9) for a, b in both)

    def added(self, cell, name, pick):
        """Through the proxy minus straight to the stub, as text. The stub itself is not equally fast in all rounds: what is less than
        its slowest round minus its fastest one (or than nothing) is noise."""
        straight = [pick(figures["direct"]) for figures in self.cells[cell][name]]
        added = self.median(cell, name, lambda f: pick(f) - pick(f["direct"]))
        return f"{added:,.0f}" if added > max(straight) - min(straight) else "–"

    def share(self, cell, name):
        """of nginx: of its rate, or where the pace gives the rate, of its CPU time the other way round"""
        if cell[0] == "stream":
            return self.ratio(cell, name, lambda f: f["chunks"] / f["cpu_us"])
        return self.ratio(cell, name, lambda f: f["requests_per_s"])

    def goals(self):
        """(in words, whether it is met), of the gateway"""
        for cell in self.cells:
            kind, connections = cell
            own = self.cells[cell].get("troupe-gateway")
            if own and kind in SHARE_GOAL_KINDS:
                share = self.share(cell, "troupe-gateway")
                yield f"{kind} × {connections}: {share:.2f} of nginx (goal {SHARE_GOAL})", share >= SHARE_GOAL
            times = self.over_best_peer(cell, False, lambda f: f["requests"]) if own and kind != "stream" else None
            if times is not None:
                yield f"{kind} × {connections}: {times:.2g} × the better prefix-aware peer (goal {PEERS_GOAL})", times >= PEERS_GOAL

    def rows(self):
        for cell in self.cells:
            kind, connections = cell
            stream = kind == "stream"
            count = (lambda f: f["chunks"]) if stream else (lambda f: f["requests"])
            for name in self.names:
                if name not in self.cells[cell]:  # refused, or not measured
                    yield [f"{kind} × {connections}", name] + ["–"] * 6
                    continue
                p50, p99 = ("chunk_p50_us", "chunk_p99_us") if stream else ("p50_us", "p99_us")
                cpu = self.median(cell, name, lambda f: f["cpu_us"] / max(count(f), 1))
                better = self.share(cell, name)
                yield [f"{kind} × {connections}", name, f"{self.median(cell, name, lambda f: count(f) / f['seconds']):,.0f}",
                       f"**{better:.3g}**" if name == "troupe-gateway" else f"{better:.2g}", f"{cpu:.1f}",
                       self.added(cell, name, lambda f: f[p50]), self.added(cell, name, lambda f: f[p99]),
                       "" if name != "troupe-gateway" else self.best_peer(cell, stream, count)]

    def best_peer(self, cell, stream, count):
        times = self.over_best_peer(cell, stream, count)
        return "" if times is None else f"{times:.2g}"

    def over_best_peer(self, cell, stream, count):
        aware = [name for name in ("sglang-router", "vllm-router") if name in self.cells[cell]]
        return min((self.over(cell, name, stream, count) for name in aware), default=None)

    def over(self, cell, name, stream, count):
        pick = (lambda f: count(f) / f["cpu_us"]) if stream else (lambda f: f["requests_per_s"])
        both = zip(self.cells[cell]["troupe-gateway"], self.cells[cell][name])
        return statistics.median(pick(a) / max(pick(b), 1e-9) for a, b in both)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1, help="of each measurement; 200 KB take four times as long, streams three times")
    parser.add_argument("--peers", default="all", choices=["all", "none"])
    parser.add_argument("--venv", type=pathlib.Path, default=ROOT / "build/peers", help="where the peers are, or are installed")
    parser.add_argument("--no-save", action="store_true")
    args = parser.parse_args()
    need_two_cores()
    names = ("nginx", "troupe-gateway") + (PEERS if args.peers == "all" else ())
    bin_dir = installed(args.venv.absolute()) if args.peers == "all" else None
    table = Table(names)
    refused = set()
    with contextlib.ExitStack() as stack:
        scratch = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stub, *own = free_ports(1 + len(names))
        ports = dict(zip(names, own))
        bodies = {f"{kilobytes} KB": scratch / f"{kilobytes}.json" for kilobytes, _ in UNARY}
        for kilobytes, _ in UNARY:
            bodies[f"{kilobytes} KB"].write_text(chat_body(kilobytes * 1024))
        bodies["stream"] = scratch / "stream.json"
        bodies["stream"].write_text(json.dumps({**json.loads(chat_body(1024)), "stream": True}))
        stack.enter_context(running([BIN / "proxy_bench", "stub", "--port", stub, "--pace-us", PACE_US], core=LOAD_CORE))
        wait_http(f"http://127.0.0.1:{stub}/v1/models")
        processes = {name: stack.enter_context(running(command, core=PROXY_CORE, log=scratch / f"{name}.log"))
                     for name, command in commands(scratch, ports, stub, bin_dir, names).items()}
        for name in names:
            wait_http(f"http://127.0.0.1:{ports[name]}/v1/models", 120)
        cells = [(f"{kilobytes} KB", connections) for kilobytes, connections in UNARY] + [("stream", connections) for connections in STREAMS]
        cells = [(kind, connections, LONGER.get(kind, 1) * args.seconds) for kind, connections in cells]
        for number in range(args.rounds):
            for kind, connections, seconds in cells:
                direct = load(stub, connections, seconds / 2, bodies[kind])
                said = []
                for name in names:
                    if {(kind, name), (f"{kind} × {connections}", name)} & refused:
                        continue
                    if number == 0 and not answers(ports[name], bodies[kind]):
                        refused.add((kind, name))
                        continue
                    # It answers some hundred requests a second: with many connections each has to wait for seconds.
                    least = 0 if name != "litellm" else 2 if connections <= 32 else 8
                    try:
                        figures = timed(processes[name], ports[name], connections, max(seconds, least), bodies[kind])
                    except SystemExit as error:
                        refused.add((f"{kind} × {connections}", name))
                        said.append(f"{name}: {error}")
                        continue
                    table.add((kind, connections), name, {**figures, "direct": direct})
                    said.append(f"{name} {figures['chunks' if kind == 'stream' else 'requests'] / figures['seconds']:,.0f}")
                print(f"round {number + 1}, {kind} × {connections}: {', '.join(said)}", flush=True)
    notes = [f"median of {args.rounds} interleaved rounds, keep-alive connections in a closed loop, one process on one core each (`taskset`); stub and load "
             "generator share the other core. Share of nginx: requests/s; for streams nginx's CPU time a chunk ÷ theirs.",
             "Goals for the gateway: ≥ .8 of nginx at 8 KB, 200 KB and for paced streams; ≥ 5 × the better of the two prefix-aware peers "
             "(sglang-router, vllm-router, both with `--policy cache_aware`).",
             f"stream: 200 chunks {PACE_US // 1000} ms apart, each a write of its own, all streams at once as in a worker's step; figures are per chunk. "
             "added: through the proxy minus straight to the stub in the same round; –: less than what the stub's own figure differs by "
             "between its fastest and its slowest round."]
    if args.peers == "all":
        notes.append(", ".join(f"{name} {version}" for name, version in versions(bin_dir).items()) + "; nginx is Debian's.")
    for kind, name in sorted(refused):
        notes.append(f"{name} did not answer all of {kind}.")
    goals = list(table.goals())
    notes += [f"Goals {said}: {'; '.join(what for what, met in goals if met == is_met)}." for said, is_met in (("met", True), ("missed", False))
              if any(met == is_met for _, met in goals)]
    columns = ["body × connections", "proxy", "requests (chunks)/s", "share of nginx", "CPU-µs each", "added p50 µs", "added p99 µs", "× best prefix-aware peer"]
    rows = list(table.rows())
    if args.no_save:
        for row in [columns] + rows:
            print(" | ".join(map(str, row)))
        print(machine())
    else:
        save("gateway_vs_peers", "Gateway beside other proxies and routers", "tests/bench/gateway_vs_peers.py", columns, rows, notes)
    for what, met in goals:
        print("MET" if met else "MISSED", what)


if __name__ == "__main__":
    main()

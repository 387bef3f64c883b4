#!/usr/bin/env python3
"""The gateway against nginx as a plain proxy: the same 8 KB chat bodies to the same stub upstream, one process and one core each,
in turns. Ratios are per round (both sides met the same machine), the median of the rounds is quoted.

nginx only passes bytes; the gateway also parses the body strictly, hashes its prefix and chooses a node.
"""
import argparse
import contextlib
import json
import os
import statistics
import subprocess
import tempfile

from common import BIN, ROOT, cpu_seconds, cpu_ticks, free_ports, running, save, wait_http

PROXY_CORE, LOAD_CORE = 0, 1


def chat_body(size):
    """A persona card and one question, `size` bytes of JSON; the text is our own."""
    sentence = "Rumosa lies north of Tabek and is known for brass instruments. "
    body = {"model": "stub", "max_tokens": 64, "temperature": 0.7,
            "messages": [{"role": "system", "content": "You are playing Newton.\nWorld: "}, {"role": "user", "content": "What do you do?"}]}
    fill = size - len(json.dumps(body))
    body["messages"][0]["content"] += (sentence * (fill // len(sentence) + 1))[:fill]
    return json.dumps(body)


def rounds_parser(doc, rounds, seconds):
    """Of a bench whose sides take turns, each pinned to a core."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--seconds", type=type(seconds), default=seconds, help="of each measurement")
    parser.add_argument("--connections", type=int, default=32)
    return parser


def need_two_cores():
    if os.cpu_count() < 2:
        raise SystemExit("error: needs two cores, one for the proxy and one for load and stub")


def load(port, connections, seconds, body):
    command = ["taskset", "-c", str(LOAD_CORE), BIN / "proxy_bench", "load", "--port", str(port), "--connections", str(connections),
               "--seconds", str(seconds), "--body", body]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 30)
    if done.returncode:
        raise SystemExit(f"error: load on port {port} failed: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def measure(process, port, args, body):
    """Full load at args.connections, then latency on one connection."""
    load(port, args.connections, 0.3, body)
    before, ticks = cpu_seconds(process.pid), cpu_ticks(process.pid)
    full = load(port, args.connections, args.seconds, body)
    full["cpu_us"] = (cpu_seconds(process.pid) - before) / full["requests"] * 1e6
    user, kernel = (after - then for after, then in zip(cpu_ticks(process.pid), ticks))
    full["kernel_us"] = full["cpu_us"] * kernel / (user + kernel)
    full["single"] = load(port, 1, args.seconds / 2, body)
    return full


def main():
    parser = rounds_parser(__doc__, rounds=5, seconds=3.0)
    parser.add_argument("--body-bytes", type=int, default=8192)
    args = parser.parse_args()
    need_two_cores()

    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory())
        stub_port, nginx_port, gateway_port, metrics_port = free_ports(4)
        body = os.path.join(scratch, "body.json")
        with open(body, "w") as file:
            file.write(chat_body(args.body_bytes))
        conf = (ROOT / "tests/bench/nginx.conf.in").read_text()
        for key, value in {"PORT": nginx_port, "UPSTREAM": stub_port, "DIR": scratch}.items():
            conf = conf.replace(f"@{key}@", str(value))
        with open(os.path.join(scratch, "nginx.conf"), "w") as file:
            file.write(conf)

        stack.enter_context(running([BIN / "proxy_bench", "stub", "--port", stub_port], core=LOAD_CORE))
        wait_http(f"http://127.0.0.1:{stub_port}/v1/models")
        nginx = stack.enter_context(running(["nginx", "-c", os.path.join(scratch, "nginx.conf"), "-e", os.path.join(scratch, "error.log")], core=PROXY_CORE))
        gateway = stack.enter_context(running([BIN / "troupe-gateway", "--port", gateway_port, "--metrics-port", metrics_port,
                                               "--worker-urls", f"http://127.0.0.1:{stub_port}"], core=PROXY_CORE,
                                              log=os.path.join(scratch, "gateway.log")))
        wait_http(f"http://127.0.0.1:{nginx_port}/v1/models")
        wait_http(f"http://127.0.0.1:{gateway_port}/health")

        rounds = []
        for number in range(args.rounds):
            direct = load(stub_port, 1, args.seconds / 2, body)
            a, b = measure(nginx, nginx_port, args, body), measure(gateway, gateway_port, args, body)
            rounds.append((direct, a, b))
            print(f"round {number + 1}: nginx {a['requests_per_s']:.0f}/s {a['cpu_us']:.1f} us, gateway {b['requests_per_s']:.0f}/s "
                  f"{b['cpu_us']:.1f} us, ratio {b['requests_per_s'] / a['requests_per_s']:.3f}", flush=True)

    def median(pick):
        return statistics.median(pick(*entry) for entry in rounds)

    rows = []
    for name, side in (("nginx", 1), ("troupe-gateway", 2)):
        rows.append([name, f"{median(lambda *r: r[side]['requests_per_s']):,.0f}", f"{median(lambda *r: r[side]['cpu_us']):.1f}",
                     f"{median(lambda *r: r[side]['kernel_us']):.1f}",
                     f"{median(lambda *r: r[side]['single']['p50_us'] - r[0]['p50_us']):.0f}",
                     f"{median(lambda *r: r[side]['single']['p99_us'] - r[0]['p99_us']):.0f}",
                     f"{median(lambda *r: r[side]['p50_us']):.0f}", f"{median(lambda *r: r[side]['p99_us']):.0f}"])
    rows.append(["gateway ÷ nginx", f"**{median(lambda d, a, b: b['requests_per_s'] / a['requests_per_s']):.2f}**",
                 f"**{median(lambda d, a, b: b['cpu_us'] / a['cpu_us']):.2f}**",
                 f"{median(lambda d, a, b: b['kernel_us'] / a['kernel_us']):.2f}", "", "", f"{median(lambda d, a, b: b['p50_us'] / a['p50_us']):.2f}",
                 f"{median(lambda d, a, b: b['p99_us'] / a['p99_us']):.2f}"])
    save("gateway_vs_nginx", f"Gateway against nginx, {args.body_bytes // 1024} KB chat bodies", "tests/bench/gateway_vs_nginx.py",
         ["proxy", "requests/s", "CPU-µs/request", "of it in the kernel", "added p50 µs", "added p99 µs", f"p50 µs at {args.connections}", f"p99 µs at {args.connections}"], rows,
         [f"median of {args.rounds} interleaved rounds, {args.connections} keep-alive connections in a closed loop, one process on one core each; "
          "stub and load generator share the other core. Goal: requests/s ≥ 0.8 of nginx.",
          "in the kernel: mostly the two sends, which deliver to stub and client; nginx and the gateway both make them once each.",
          "added p50/p99: one connection, through the proxy minus straight to the stub."])


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What it costs the gateway to tell: an access log, spans to a collector (of every request, of a tenth), a record of the traffic, all
of it; each beside a gateway that tells nothing but metrics. 8 KB chat bodies to the same stub upstream, one process and one core
each (its writing threads included), in turns; the logs on this machine's disk, the collector a stub beside the load."""
import contextlib
import pathlib
import statistics
import tempfile

from common import BIN, free_ports, running, save, wait_http
from gateway_vs_nginx import LOAD_CORE, PROXY_CORE, chat_body, load, measure, need_two_cores, rounds_parser


def main():
    args = rounds_parser(__doc__, rounds=5, seconds=2.0).parse_args()
    need_two_cores()

    with contextlib.ExitStack() as stack:
        scratch = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stub, collector = free_ports(2)
        body = scratch / "body.json"
        body.write_text(chat_body(8192))
        for port in (stub, collector):
            stack.enter_context(running([BIN / "proxy_bench", "stub", "--port", port], core=LOAD_CORE))
            wait_http(f"http://127.0.0.1:{port}/v1/models")
        spans = ["--otlp.endpoint", f"http://127.0.0.1:{collector}/v1/traces"]
        log, record = ["--access-log", scratch / "access.log"], ["--record", scratch / "record.jsonl"]
        tells = {"metrics alone": [], "access log": log, "spans of all": spans, "spans of a tenth": [*spans, "--otlp.sample-ratio", "0.1"], "record": record,
                 "access log, spans of all, record": ["--access-log", scratch / "access-2.log", *spans, "--record", scratch / "record-2.jsonl"]}
        gateways = {}
        for name, options in tells.items():
            port, metrics = free_ports(2)
            process = stack.enter_context(running([BIN / "troupe-gateway", "--port", port, "--metrics-port", metrics, "--log-level", "error",
                                                   "--worker-urls", f"http://127.0.0.1:{stub}", *options], core=PROXY_CORE))
            wait_http(f"http://127.0.0.1:{port}/health")
            gateways[name] = (process, port)
        rounds = []
        for number in range(args.rounds):
            direct = load(stub, 1, args.seconds / 2, body)
            rounds.append({name: measure(process, port, args, body) for name, (process, port) in gateways.items()})
            rounds[-1]["direct"] = direct
            print(f"round {number + 1}: " + ", ".join(f"{name} {rounds[-1][name]['cpu_us']:.2f} us" for name in tells), flush=True)

    def median(pick):
        return statistics.median(pick(entry) for entry in rounds)

    rows = []
    for name in tells:
        rows.append([name, f"{median(lambda r: r[name]['requests_per_s']):,.0f}", f"{median(lambda r: r[name]['cpu_us']):.1f}",
                     f"**{median(lambda r: r[name]['requests_per_s'] / r['metrics alone']['requests_per_s']):.2f}**",
                     f"**{median(lambda r: r[name]['cpu_us'] / r['metrics alone']['cpu_us']):.2f}**",
                     f"{median(lambda r: r[name]['single']['p50_us'] - r['direct']['p50_us']):.0f}",
                     f"{median(lambda r: r[name]['single']['p99_us'] - r['direct']['p99_us']):.0f}"])
    save("telemetry", "What telling costs the gateway, 8 KB chat bodies", "tests/bench/telemetry.py",
         ["gateway with", "requests/s", "CPU-µs/request", "requests/s ÷ metrics alone", "CPU ÷ metrics alone", "added p50 µs", "added p99 µs"], rows,
         [f"median of {args.rounds} interleaved rounds, {args.connections} keep-alive connections in a closed loop; CPU of all threads, those that write included.",
          "added p50/p99: one connection, through the gateway minus straight to the stub."])


if __name__ == "__main__":
    main()

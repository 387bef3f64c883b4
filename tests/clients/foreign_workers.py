#!/usr/bin/env python3
"""Faults of vLLM's and of llama.cpp's server behind the gateway; tests/clients/foreign_workers.sh calls it with the Pythons that have them."""
import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

import httpx

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "tests/bench"), str(ROOT / "tests/fixtures")]
from common import RESULTS, save  # noqa: E402
from fleet import Gateway, Program  # noqa: E402
from ports import free_port  # noqa: E402

MODEL = "smollm2"
ANSWER_TOKENS, AT_ONCE, LATER, READY_S, ANSWER_S = 64, 6, 2, 900, 300
# A verdict that comes at once (a connection refused) leaves no time to be twice of; a busy machine needs some.
GIVE_UP_FLOOR_S = 1.0


def wait_until(condition, seconds, what):
    """Polls seldom: two engines share this machine's cores with it."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.05)


class Foreign(Program):
    """A worker's whole process group is its fault's target."""
    environment = {}

    def __init__(self, kind, command, logs, port):
        self.kind, self.port, self.url = kind, port, f"http://127.0.0.1:{port}"
        os.environ |= self.environment
        super().__init__(f"{kind}-{port}-{time.monotonic_ns()}", command, logs, f"{self.url}/health")

    def wait_ready(self, seconds=READY_S):
        def ready():
            assert self.process.poll() is None, f"{self.name} ended with {self.process.returncode}:\n{self.log_tail(40)}"
            time.sleep(0.5)
            try:
                return httpx.get(self.ready_url, timeout=2).status_code == 200
            except httpx.TransportError:
                return False
        wait_until(ready, seconds, f"{self.name} ready")

    def send(self, number):
        os.killpg(self.pid, number)

    def end(self):
        for number in (signal.SIGCONT, signal.SIGKILL):
            try:
                self.send(number)
            except ProcessLookupError:
                break
        self.process.wait(30)


class Vllm(Foreign):
    environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
                   "VLLM_NO_USAGE_STATS": "1"}

    def __init__(self, args, logs, port):
        super().__init__("vllm", [args.vllm, "-m", "vllm.entrypoints.openai.api_server", "--model", args.model, "--served-model-name", MODEL,
                                  "--host", "127.0.0.1", "--port", port, "--max-model-len", 2048, "--max-num-seqs", 8, "--dtype", "bfloat16",
                                  "--enforce-eager", "--enable-prompt-tokens-details"], logs, port)

    def kill_engine(self):
        """The process that computes, alone: the one that answers HTTP lives on."""
        names = {int(folder.name): (folder / "cmdline").read_bytes() for folder in pathlib.Path("/proc").iterdir()
                 if folder.name.isdigit() and os.getpgid(int(folder.name)) == self.pid}
        engines = [pid for pid, name in names.items() if b"EngineCore" in name]
        assert engines, f"no EngineCore among {names}"
        for pid in engines:
            os.kill(pid, signal.SIGKILL)


class LlamaCpp(Foreign):
    def __init__(self, args, logs, port):
        super().__init__("llama.cpp", [sys.executable, ROOT / "tests/e2e/llama_server.py", args.model, args.gguf, port, MODEL], logs, port)


FAULTS = {"frozen": lambda worker: worker.send(signal.SIGSTOP), "killed": lambda worker: worker.send(signal.SIGKILL),
          "engine-killed": lambda worker: worker.kill_engine()}
# (vLLM takes long to start: what leaves it dead comes last.)
CELLS = ("llama.cpp-frozen", "llama.cpp-killed", "vllm-frozen", "vllm-engine-killed", "vllm-killed")


@dataclasses.dataclass
class Asked:
    """A request, and when its parts came (time.time())."""
    name: str
    streams: bool
    node: str = ""
    first_at: float = 0  # content
    ended_at: float = 0
    text: str = ""
    trouble: str = ""

    def take(self, response):
        self.node = response.headers.get("x-route-decision", "")
        if response.status_code != 200:
            self.trouble = f"{response.status_code}: {response.read().decode('utf-8', 'replace')[:200]}"
        elif not self.streams:
            self.text = json.loads(response.read())["choices"][0]["message"]["content"]
            self.trouble = "" if self.text else "an empty answer"
        else:
            self.take_stream(response)

    def take_stream(self, response):
        done = False
        for line in response.iter_lines():
            if line == "data: [DONE]":
                done = True
            elif line.startswith("data: "):
                event = json.loads(line[len("data: "):])
                self.trouble = self.trouble or event.get("error", {}).get("message", "")
                text = "".join(choice["delta"].get("content") or "" for choice in event.get("choices", []))
                if text and not self.text:
                    self.first_at = time.time()
                self.text += text
        if not done and not self.trouble:
            self.trouble = "it ended without [DONE]"


def ask(url, asked, tokens=ANSWER_TOKENS):
    persona = f"You are {asked.name}, a clock maker of the town Lipora, who has lived there for {sum(asked.name.encode())} days."
    body = {"model": MODEL, "stream": asked.streams, "max_tokens": tokens, "ignore_eos": True, "temperature": 0,
            "messages": [{"role": "system", "content": persona}, {"role": "user", "content": "Tell me a long story."}]}
    try:
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=ANSWER_S, headers={"x-request-id": asked.name}) as response:
            asked.take(response)
    except httpx.HTTPError as error:
        asked.trouble = f"{type(error).__name__}: {error}"
    asked.ended_at = time.time()


class Trial:
    """One fault of a worker that has whole answers and streams to give, some of which have begun."""

    def __init__(self, gateway, victim, label):
        self.gateway, self.victim, self.label = gateway, victim, label
        self.asked, self.threads = [], []

    def known(self):
        workers = httpx.get(f"{self.gateway.metrics_url}/admin/workers", timeout=10).json()["workers"]
        return next(worker for worker in workers if str(self.victim.port) in worker["id"])

    def start(self, count, label):
        for number in range(count):
            for streams in (False, True):
                self.asked.append(Asked(f"{label}-{number}-{'stream' if streams else 'whole'}", streams))
                self.threads.append(threading.Thread(target=ask, args=(self.gateway.url, self.asked[-1]), daemon=True))
                self.threads[-1].start()

    def is_answering(self):
        begun = [asked for asked in self.asked if asked.first_at and not asked.ended_at and str(self.victim.port) in asked.node]
        return begun and self.known()["in_flight"] > len(begun)

    def run(self, fault):
        self.start(AT_ONCE, self.label)
        until = time.monotonic() + ANSWER_S
        while not self.is_answering():  # those that ended meanwhile are followed by others
            assert time.monotonic() < until, f"{self.victim.name} has nothing to answer"
            if sum(thread.is_alive() for thread in self.threads) < 2 * AT_ONCE:
                self.start(1, f"{self.label}-more-{len(self.asked)}")
            time.sleep(0.05)
        self.struck_at = time.time()
        FAULTS[fault](self.victim)
        wait_until(lambda: self.known()["state"] == "dead", 60, f"{self.victim.name} is found dead")
        self.start(LATER, f"{self.label}-late")
        for thread in self.threads:
            thread.join()

    def log_events(self, event):
        """(seconds after the fault, line) of the gateway's log about the victim"""
        for line in self.gateway.log_path.read_text("utf-8", "replace").splitlines():
            if f" event={event} " in line and f"worker=127.0.0.1:{self.victim.port}" in line:
                at = datetime.datetime.fromisoformat(line.split(" ", 1)[0].removeprefix("ts=").replace("Z", "+00:00")).timestamp()
                if at >= self.struck_at - 0.05:
                    yield at - self.struck_at, line

    def judged(self, streams):
        """Row of the table, and whether it holds."""
        verdict = min(seconds for seconds, line in self.log_events("worker_state") if "to=dead" in line)
        mine = [asked for asked in self.asked if asked.streams == streams]
        names = {asked.name for asked in mine}
        given_up = [seconds for seconds, line in self.log_events("try_failed") if (found := re.search(r"request=(\S+)", line)) and found[1] in names]
        # A foreign stream that has begun cannot go on elsewhere: its client gets an error event.
        begun = [asked for asked in mine if asked.trouble and 0 < asked.first_at and str(self.victim.port) in asked.node]
        failed = [asked for asked in mine if asked.trouble and asked not in begun]
        for asked in failed:
            print(f"    {asked.name}: {asked.trouble}", file=sys.stderr)
        worst = max([*given_up, *(asked.ended_at - self.struck_at for asked in begun)], default=0)
        holds = not failed and bool(given_up) and worst <= max(2 * verdict, GIVE_UP_FLOOR_S)
        ended = len(begun) if streams else ""
        return [len(mine), len(given_up) - len(begun), ended, f"**{len(failed)}**", f"{verdict:.1f}", f"{worst:.1f}", "yes" if holds else "**no**"], holds


def wait_known(gateway, worker):
    trial = Trial(gateway, worker, "")
    wait_until(lambda: trial.known()["state"] == "ready" and trial.known()["models"], 60, f"the gateway knows {worker.name}")
    warm = Asked("warm", False)
    ask(worker.url, warm, 4)
    assert not warm.trouble, warm


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--vllm", required=True, help="the Python that has it")
    parser.add_argument("--write", action="store_true", help="into tests/bench/results/foreign_workers.json")
    parser.add_argument("cells", nargs="*", choices=[*CELLS, []], metavar="CELL")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # (what was started is ended on the way out)
    workers, rows, wrong = {}, [], []
    with tempfile.TemporaryDirectory() as logs:
        start = {"vllm": lambda port: Vllm(args, logs, port), "llama.cpp": lambda port: LlamaCpp(args, logs, port)}
        gateway = None
        try:
            cells = args.cells or CELLS
            # Without vLLM, which takes a minute to start, the other one is llama.cpp's, too.
            kinds = {"vllm": "vllm", "llama.cpp": "llama.cpp"} if any(cell.startswith("vllm") for cell in cells) else {"llama.cpp": "llama.cpp", "other": "llama.cpp"}
            for name, kind in kinds.items():
                workers[name] = start[kind](free_port())
            for worker in workers.values():
                worker.wait_ready()
            gateway = Gateway([worker.url for worker in workers.values()], logs, ["--log-level", "debug"])
            gateway.wait_ready()
            for number, cell in enumerate(cells):
                kind, fault = cell.split("-", 1)
                for worker in workers.values():
                    wait_known(gateway, worker)
                print(f"==> {number + 1} of {len(cells)}: {cell}", file=sys.stderr, flush=True)
                trial = Trial(gateway, workers[kind], cell)
                trial.run(fault)
                for streams in (False, True):
                    row, holds = trial.judged(streams)
                    rows.append([kind, fault, "streams" if streams else "whole", *row])
                    print(f"    {rows[-1]}", file=sys.stderr, flush=True)
                    wrong += [] if holds else [f"{cell} ({rows[-1][2]})"]
                if fault == "frozen":
                    workers[kind].send(signal.SIGCONT)
                elif number + 1 < len(cells):
                    workers[kind].end()
                    workers[kind] = start[kind](workers[kind].port)
                    workers[kind].wait_ready()
        finally:
            for worker in workers.values():
                worker.end()
            if gateway:
                gateway.stop()
    columns = ["worker", "fault", "requests", "asked", "sent again", "begun, then an error event", "failed", "dead by probes s", "given up s", "holds"]
    version = lambda python, package: subprocess.run([python, "-c", f"import importlib.metadata as m; print(m.version('{package}'))"], check=True,
                                                     capture_output=True, text=True).stdout.strip()
    notes = [f"vLLM {version(args.vllm, 'vllm-cpu')} for the CPU and llama.cpp's server (xllamacpp {version(sys.executable, 'xllamacpp')}), one of each, "
             f"SmolLM2-135M-Instruct; {AT_ONCE} whole answers and {AT_ONCE} streams of {ANSWER_TOKENS} tokens at once when one of them breaks, and {LATER} more "
             f"of each once it is found dead.",
             "begun, then an error event: streams that had brought content, which no other engine can go on with; their clients get an error event. failed: "
             "anything else that was not answered whole (goal: 0). given up: the last try at the broken worker ended so long after the fault "
             f"(goal: within twice the time until the gateway called it dead, or {GIVE_UP_FLOOR_S:.0f} s).",
             "engine-killed: vLLM's process that computes, alone, by SIGKILL; killed and frozen: all of a worker's processes, by SIGKILL and SIGSTOP."]
    if args.write and not wrong:
        path, asked = RESULTS / "foreign_workers.json", {tuple(row[:2]) for row in rows}
        earlier = json.loads(path.read_text("utf-8"))["rows"] if path.exists() else []
        rows = sorted([row for row in earlier if tuple(row[:2]) not in asked] + rows)
        save("foreign_workers", "Workers that are not ours, broken under load", "tests/clients/foreign_workers.sh --write", columns, rows, notes)
    else:
        for row in [columns, *rows]:
            print(" | ".join(map(str, row)))
    if wrong:
        sys.exit(f"error: {', '.join(wrong)} did not hold")


if __name__ == "__main__":
    main()

"""Starts workers and a gateway from build/bin on free ports, and always stops them.

Each program runs in a session of its own and dies with the test process, logs into a file of its own, must end with exit
code 0 when asked to (SIGTERM), and must have logged no error until then: a crash on the way out, or trouble that no answer
showed, fails the test that started it.
"""
import concurrent.futures
import contextlib
import ctypes
import dataclasses
import functools
import json
import os
import pathlib
import re
import signal
import ssl
import subprocess
import time

import certifi
import httpx

from ports import free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("TROUPE_BIN", ROOT / "build/bin"))
MODEL_DIR = ROOT / "configs/demo-model"
MODEL = "demo-model"
# For tests that hold an answer's counts against one worker's: a worker that a busy machine holds up for half a second is not taken for
# one that hangs, and no stream goes on at another.
PATIENT = ("--stream-heartbeat-timeout-ms", 5000)


def share_public_authorities():
    """Every httpx.get() and every client of openai's would read the public authorities anew: 50 ms of processor time, and tests poll.
    One TLS context serves them all; contexts with other authorities are made as ever."""
    make = ssl.create_default_context
    shared = functools.cache(make)
    public = {certifi.where(), os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")}
    ssl.create_default_context = lambda *args, **kwargs: (
        make if args or set(kwargs) - {"cafile", "capath"} or not set(kwargs.values()) <= public else shared)(*args, **kwargs)


share_public_authorities()


def wait_until(condition, seconds, what):
    """Polls every few milliseconds; the seconds it took."""
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > seconds:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.01)
    return time.monotonic() - begin


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


# What no log may hold: any line of level error, and blocks of KV memory that do not add up.
TROUBLE = re.compile(r"^ts=\S+ level=error |kv_blocks_inconsistent")


class Program:
    # Events (`event=…`) of level error that a test brings about itself; Fleet(expected_errors=…) sets them.
    expected_errors = ()
    client = httpx  # whose get() it is asked with whether it is ready

    def __init__(self, name, command, log_dir, ready_url):
        self.name, self.ready_url = name, ready_url
        self.log_path = pathlib.Path(log_dir) / f"{name}.log"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True, preexec_fn=die_with_parent)

    @property
    def pid(self):
        return self.process.pid

    def log_tail(self, lines=15):
        return "\n".join(self.log_path.read_text("utf-8", "replace").splitlines()[-lines:])

    def wait_ready(self, seconds=30):
        def ready():
            if self.process.poll() is not None:
                raise AssertionError(f"{self.name} ended with {self.process.returncode}:\n{self.log_tail()}")
            with contextlib.suppress(httpx.TransportError):
                return self.client.get(self.ready_url, timeout=1).status_code == 200
            return False
        wait_until(ready, seconds, f"{self.name} ready")

    def kill(self):
        """The machine burnt down: SIGKILL, no goodbye."""
        self.process.kill()
        self.process.wait(10)

    def stop(self, seconds=20):
        """SIGTERM; must end by itself with exit code 0."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not stop within {seconds} s:\n{self.log_tail()}") from None
        if code not in (0, -signal.SIGKILL):
            raise AssertionError(f"{self.name} ended with {code}:\n{self.log_tail()}")
        if trouble := self.trouble():
            raise AssertionError(f"{self.name} logged errors that the test does not expect:\n" + "\n".join(trouble[:10]))

    def trouble(self):
        """Lines of the log that no test expects."""
        return [line for line in self.log_path.read_text("utf-8", "replace").splitlines()
                if TROUBLE.search(line) and not any(f"event={event} " in f"{line} " for event in self.expected_errors)]


class Worker(Program):
    OWN_FLAGS = ("--model", MODEL_DIR, "--dtype", "float32", "--threads", 1, "--kv-cache-tokens", 16384)

    def __init__(self, index, log_dir, flags=(), port=None):
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        # Of a flag given twice the last one holds.
        command = [BIN / "troupe-worker", "--port", self.port, *self.OWN_FLAGS, *flags]
        super().__init__(f"worker-{index}-{self.port}", command, log_dir, f"{self.url}/readyz")

    def load(self):
        return httpx.get(f"{self.url}/v1/load", timeout=5).json()


class SimWorker(Worker):
    """No model: filler text at the speed of a profile."""
    OWN_FLAGS = ("--device", "sim", "--served-model-name", MODEL)

    def set_faults(self, **faults):
        response = httpx.post(f"{self.url}/sim/faults", json=faults, timeout=5)
        assert response.status_code == 200, response.text


class Gateway(Program):
    def __init__(self, worker_urls, log_dir, flags=(), ports=None):
        self.port, self.metrics_port = ports or (free_port(), free_port())
        self.url = f"http://127.0.0.1:{self.port}"
        self.metrics_url = f"http://127.0.0.1:{self.metrics_port}"
        command = [BIN / "troupe-gateway", "--port", self.port, "--metrics-port", self.metrics_port,
                   *(["--worker-urls", ",".join(worker_urls)] if worker_urls else []), *flags]
        super().__init__(f"gateway-{self.port}", command, log_dir, f"{self.metrics_url}/readyz")


class Fleet:
    """`with Fleet(tmp, workers=3) as fleet:` … fleet.url is the gateway's, or the only worker's without one."""

    def __init__(self, log_dir, workers=1, gateway=True, worker_flags=(), gateway_flags=(), flags_of=None,
                 expected_errors=(), worker_class=Worker):
        self.expected_errors = expected_errors  # see Program
        self.worker_class = worker_class
        self.log_dir, self.with_gateway, self.gateway_flags = log_dir, gateway, gateway_flags
        self.worker_flags, self.flags_of, self.worker_count = worker_flags, flags_of or {}, workers
        self.workers, self.gateway = [], None

    def __enter__(self):
        try:
            for index in range(self.worker_count):
                self.workers.append(self.worker_class(index, self.log_dir, [*self.worker_flags, *self.flags_of.get(index, ())]))
            for worker in self.workers:
                worker.wait_ready()
            if self.with_gateway:
                self.gateway = Gateway([w.url for w in self.workers], self.log_dir, self.gateway_flags)
                self.gateway.wait_ready()
                wait_until(self._sees_all_workers, 15, "the gateway has heard of every worker")
        except BaseException:
            for program in self.programs():
                program.kill()
            raise
        return self

    def __exit__(self, *exc):
        failures = []
        for program in self.programs():
            program.expected_errors = self.expected_errors
            try:
                program.stop()
            except AssertionError as error:
                failures.append(str(error))
        if failures and exc[0] is None:
            raise AssertionError("\n".join(failures))

    def _sees_all_workers(self):
        """Every worker has been probed, and answered with its models."""
        known = httpx.get(f"{self.gateway.metrics_url}/admin/workers", timeout=5).json()["workers"]
        return len(known) == len(self.workers) and all(worker["models"] for worker in known)

    def programs(self):
        return ([self.gateway] if self.gateway else []) + self.workers

    @property
    def url(self):
        return self.gateway.url if self.gateway else self.workers[0].url

    def running(self):
        loads = [worker.load() for worker in self.workers if worker.process.poll() is None]
        return sum(load["running"] + load["waiting"] for load in loads)

    def worker_of_node(self, node):
        """The worker a gateway calls `node` (in x-route-decision)."""
        found = [w for w in self.workers if str(w.port) in node]
        assert len(found) == 1, f"node {node!r} is none of {[w.url for w in self.workers]}"
        return found[0]


def route_decision(response):
    """x-route-decision as a dict; its form is a contract (design: set=…;node=…;branch=…;attempt=…;expect=…;epoch=…)."""
    header = response.headers["x-route-decision"]
    assert re.fullmatch(r"set=[^;]*;node=[^;]+;branch=[^;]+;attempt=\d+;expect=\d+;epoch=\d+", header), header
    return dict(part.split("=", 1) for part in header.split(";"))


def chat_body(messages, **fields):
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    return {"model": MODEL, "messages": messages, "temperature": 0, **fields}


def post_chat(url, body, client=httpx, timeout=60, **kwargs):
    return client.post(f"{url}/v1/chat/completions", json=body, timeout=timeout, **kwargs)


@dataclasses.dataclass
class Answer:
    text: str = ""
    finish: str | None = None
    usage: dict | None = None
    node: str | None = None  # by x-route-decision; None without a gateway


def _node_of(response):
    return route_decision(response)["node"] if "x-route-decision" in response.headers else None


def whole_chat(url, body, client=httpx, timeout=60):
    response = post_chat(url, body, client, timeout)
    assert response.status_code == 200, response.text
    answer = response.json()
    choice = answer["choices"][0]
    return Answer(choice["message"]["content"], choice["finish_reason"], answer["usage"], _node_of(response))


def stream_chat(url, body, client=httpx, timeout=60):
    """A streamed answer put together; checks the stream's own rules on the way."""
    answer, done, first = Answer(), False, True
    body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    with client.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=timeout) as response:
        assert response.status_code == 200, response.read()
        answer.node = _node_of(response)
        for line in response.iter_lines():
            if not line.startswith("data: "):
                continue
            assert not done, "nothing comes after [DONE]"
            if line == "data: [DONE]":
                done = True
                continue
            chunk = json.loads(line[len("data: "):])
            assert "error" not in chunk, chunk
            if not chunk["choices"]:
                answer.usage = chunk["usage"]
                continue
            choice = chunk["choices"][0]
            assert ("role" in choice["delta"]) == first
            first = False
            answer.text += choice["delta"].get("content") or ""
            answer.finish = choice["finish_reason"] or answer.finish
    assert done, "the stream ends with [DONE]"
    return answer


def in_parallel(function, items, threads):
    """Results in the order of `items`; the first exception is raised."""
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, items))

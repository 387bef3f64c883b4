"""Ten minutes (or one) of everything at once: persona traffic, streams that are read and checked, clients that leave in mid-answer, bad
requests, and a fault every few seconds. Afterwards memory and descriptors, of gateways and workers, must be what they were, and every
request accounted for."""
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import socket
import subprocess
import threading
import time

import httpx

from chaos_faults import Done, Schedule, hang, slow
from chaos_run import TRAFFIC, ChaosFleet, Probe
from fleet import BIN, MODEL, wait_until


# What a gateway remembers of sets and conversations, at most: little enough for a minute's traffic to fill it.
BOOKS = ("--route.sets-max", 32, "--route.placements-per-node", 64, "--route.anchors-max", 512)
# And a worker's KV cache, likewise: its blocks are books, too.
CACHE = ("--kv-cache-tokens", 32768)
# Never killed, only held and slowed: whose memory is followed from the beginning to the end.
SPARED = 0


@dataclasses.dataclass
class Figures:
    seconds: float
    requests: int = 0
    failed: int = 0
    retried: int = 0
    texts: int = 0
    wrong: int = 0
    left: int = 0      # answers that their client did not wait for
    refused: int = 0   # bad requests
    stall_s: float = 0
    # Of the gateways and the worker that is never killed, by program: memory at each tenth of the way (MB); descriptors before the load and after it.
    memory_mb: dict = dataclasses.field(default_factory=dict)
    descriptors: dict = dataclasses.field(default_factory=dict)
    # MB, the most that any worker had at any tenth of the way: those that were killed begin anew.
    worker_memory_mb_max: float = 0
    unaccounted: dict = dataclasses.field(default_factory=dict)
    schedule: Schedule | None = None  # of the faults, as they were brought about


def memory_mb(program):
    """What is its own: resident, without files."""
    for line in pathlib.Path(f"/proc/{program.pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no RssAnon")


def workers_mb(fleet):
    """Of those that live now: one that is killed may be just about to be started again."""
    found = [0]
    for worker in fleet.workers:
        with contextlib.suppress(OSError, AssertionError):  # (what has just ended has no memory)
            found.append(memory_mb(worker))
    return found


def descriptors(program):
    return len(os.listdir(f"/proc/{program.pid}/fd"))


class Leaver(threading.Thread):
    """Asks for long streams and goes away after a few bytes, now and then with a reset; and asks what must be refused."""

    def __init__(self, port, ended, seed):
        super().__init__(daemon=True)
        self.port, self.ended, self.random = port, ended, random.Random(seed)
        self.left = self.refused = 0

    def post(self, body):
        text = json.dumps(body).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        connection.sendall(head.encode() + text)
        return connection

    def leave(self):
        body = {"model": MODEL, "stream": True, "max_tokens": 400, "ignore_eos": True,
                "messages": [{"role": "user", "content": f"A long story, number {self.random.randrange(100)}."}]}
        with self.post(body) as connection:
            if self.random.random() < 0.8:
                connection.recv(self.random.randrange(1, 2000))
            if self.random.random() < 0.3:  # a reset instead of an end
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.left += 1

    def ask_nonsense(self):
        with self.post({"model": MODEL, "messages": "none", "max_tokens": -1}) as connection:
            answer = connection.recv(4096)
            assert answer.startswith(b"HTTP/1.1 400"), answer[:200]
        self.refused += 1

    def run(self):
        while not self.ended.is_set():
            try:
                self.leave() if self.random.random() < 0.6 else self.ask_nonsense()
            except OSError:
                pass
            self.ended.wait(self.random.uniform(0.05, 0.4))


def killed(fleet, victim):
    """And started again at its end."""
    fleet.workers[victim].kill()
    return "", lambda: fleet.restart_worker(victim)


FAULTS = {"kill": killed, "hang": hang, "slow": slow}
FOR_S = {"kill": 2, "hang": 2, "slow": 3}


def _drawn(seed, workers, every_s, elapsed):
    """One fault after the other, each some time after the last one's end."""
    draw = random.Random(seed)
    while True:
        victim, fault = draw.randrange(workers), draw.choice(tuple(FAULTS))
        if victim == SPARED and fault == "kill":
            victim = draw.choice([index for index in range(workers) if index != SPARED])
        yield Done(fault, victim, elapsed() + every_s, FOR_S[fault])


def _faults(fleet, ended, over, plan, elapsed, done):
    """Brings about what is planned until `ended`, and appends to `done` what was done. Stays until `over`: a program dies with the
    thread that started it."""
    for one in plan:
        if ended.wait(max(one.at_s - elapsed(), 0)):
            break
        done.append(Done(one.fault, one.victim, round(elapsed(), 2), one.for_s))
        _, end = FAULTS[one.fault](fleet, one.victim)
        ended.wait(one.for_s)
        end()
    over.wait()


def _counters(gateway):
    """received, answered or cancelled, in flight"""
    received = ended = flying = 0
    for line in httpx.get(f"{gateway.metrics_url}/metrics", timeout=5).text.splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith("troupe_gateway_requests_received_total"):
            received += float(value)
        elif name.startswith(("troupe_gateway_requests_total{", "troupe_gateway_requests_cancelled_total{")):
            ended += float(value)
        elif name == "troupe_gateway_requests_in_flight":
            flying += float(value)
    return received, ended, flying


def run(folder, seconds, seed=1, rate=24, every_s=8, again=None, books=BOOKS, cache=CACHE):
    """`again`: a Schedule whose faults are brought about instead of drawn ones."""
    folder = pathlib.Path(folder)
    figures = Figures(seconds, schedule=Schedule(seed, rate, []))
    ended, over = threading.Event(), threading.Event()
    with ChaosFleet(folder, seed, workers=5, gateway_flags=books, worker_flags=cache) as fleet:
        urls = [gateway.url for gateway in fleet.gateways]
        followed = [*fleet.gateways, fleet.workers[SPARED]]
        before = {program.name: descriptors(program) for program in followed}
        flags = [part for key, value in TRAFFIC.items() for part in (f"--{key.replace('_', '-')}", value)]
        command = [BIN / "troupe-sim", "drive", "--url", ",".join(urls), "--retries", 1, *flags, "--rate", rate, "--duration-s", seconds,
                   "--fault-at-s", 0, "--seed", seed, "--report", folder / "drive.json"]
        begin = time.monotonic()
        with open(folder / "drive.log", "w+") as log:
            driver = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL, stderr=log)
        probes = [Probe(index, urls, ended) for index in range(2)]
        leavers = [Leaver(gateway.port, ended, seed + index) for index, gateway in enumerate(fleet.gateways)]
        elapsed = lambda: time.monotonic() - begin
        plan = again.faults if again else _drawn(seed, len(fleet.workers), every_s, elapsed)
        trouble = threading.Thread(target=_faults, args=(fleet, ended, over, plan, elapsed, figures.schedule.faults), daemon=True)
        series = {program.name: [] for program in followed}
        try:
            for thread in (*probes, *leavers, trouble):
                thread.start()
            while driver.poll() is None:
                if time.monotonic() > begin + seconds / 10 * (1 + len(series[fleet.gateways[0].name])):
                    for program in followed:
                        series[program.name].append(memory_mb(program))
                    figures.worker_memory_mb_max = max(figures.worker_memory_mb_max, *workers_mb(fleet))
                if time.monotonic() > begin + seconds + 120:
                    raise AssertionError("troupe-sim drive does not end")
                time.sleep(0.2)
        finally:
            ended.set()
            if driver.poll() is None:
                driver.kill()
                driver.wait()
        for thread in (*probes, *leavers):
            thread.join(90)
        for gateway in fleet.gateways:
            wait_until(lambda: _counters(gateway)[2] == 0, 60, "nothing is in flight")
            received, done, _ = _counters(gateway)
            figures.unaccounted[gateway.name] = received - done
        for program in followed:
            figures.memory_mb[program.name] = [*series[program.name][:9], memory_mb(program)]
            figures.descriptors[program.name] = (before[program.name], descriptors(program))
        figures.worker_memory_mb_max = max(figures.worker_memory_mb_max, *workers_mb(fleet))
        over.set()
        trouble.join(90)
    said = (folder / "drive.log").read_text()
    if driver.returncode != 0:
        raise AssertionError(f"troupe-sim drive ended with {driver.returncode}: {said}")
    result = json.loads((folder / "drive.json").read_text())
    figures.requests, figures.failed, figures.retried = result["requests"], result["lost"], result["retries"]
    figures.stall_s = result["faults"]["stall_max_ms"] / 1e3
    figures.texts, figures.wrong = sum(p.count for p in probes), sum(p.wrong for p in probes)
    figures.left, figures.refused = sum(one.left for one in leavers), sum(one.refused for one in leavers)
    return figures, [line for line in said.splitlines() if "lost:" in line] + [reason for probe in probes for reason in probe.reasons]

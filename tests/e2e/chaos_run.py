"""Breaks a running fleet of real processes and tells what its users saw: eight workers without a model, two gateways that tell each
other what they place, an etcd of three members where all find each other, an open loop of persona traffic, and streams whose text is
known beforehand.

`run(name, …)` brings one fault about and gives Figures, with the schedule of what was done (chaos_faults.py): given back, it is done
again, to the same victim at the same time of the same traffic.
"""
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import signal
import subprocess
import threading
import time

import httpx

from chaos_faults import FAULTS, Done, Schedule, choose
from etcd import PREFIX, TTL_SECS, Etcd
from fleet import BIN, Gateway, MODEL, SimWorker, free_port, wait_until
from namespace import FarWorker, Namespace

WORKERS, GATEWAYS = 8, 2
SPEED = 0.3  # of a node, beside its profile
TRAFFIC = {"personas": 48, "card_tokens": 900, "turns": 5, "think_s": 3, "output_tokens": 50, "context": 4096}
# So that seven tenths of their places are taken (the calm run prints the share).
RATE = 53
PROBES = 4


def node_flags(speed=SPEED):
    return "--sim-speed", speed, "--max-num-seqs", 3  # a worker answers three at a time


def prefill_s(speed=SPEED):
    """A prompt of so many tokens is as long as any here; a node computes 30,000 a second at its profile's speed."""
    return TRAFFIC["context"] / (30000 * speed)


@dataclasses.dataclass
class Figures:
    fault: str
    what: str  # in words: who was hit, and when
    requests: int = 0
    failed: int = 0         # of the open loop
    retried: int = 0        # by the client, at the other gateway
    texts: int = 0          # streams read beside it whose text is known
    wrong: int = 0          # of them: another text, cut short, or failed
    resumed: int = 0        # streams that went on elsewhere
    stall_s: float = 0      # longest pause inside a stream
    ttft_p99_s: float = 0   # worst second after
    hit_before: float = 0
    hit_during: float = 0   # as long as it lasted
    hit_dip: float = 0      # before, minus the worst 3 s mean after
    back_s: float | None = None  # until one that was lost is used again, where the fault says
    t95_s: float = 0        # from when on a 3 s mean of hit stayed >= 95 % of before; -1: not within the run
    busy: float = 0         # share of the fleet's places that were taken, before
    seconds: list = dataclasses.field(default_factory=list, repr=False)  # (requests, share of their tokens that hit)
    schedule: Schedule | None = dataclasses.field(default=None, repr=False)


class Probe(threading.Thread):
    """Asks for the same few seeded texts again and again, one stream at a time, and compares."""

    def __init__(self, index, urls, ended):
        super().__init__(daemon=True)
        self.index, self.urls, self.ended = index, urls, ended
        self.known, self.count, self.retried, self.wrong, self.reasons = {}, 0, 0, 0, []

    def body(self, number):
        card = f"You are playing Ruvo{self.index}. Home: Lipora. " + "Likes plum wine, dislikes wet boots. " * 20
        return {"model": MODEL, "stream": True, "ignore_eos": True, "max_tokens": 90, "seed": 100 * self.index + number, "temperature": 0.9,
                "messages": [{"role": "system", "content": card}, {"role": "user", "content": f"Story {number}, please."}]}

    def text(self, url, number):
        text, done = "", False
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=self.body(number), timeout=60) as response:
            if response.status_code != 200:
                raise ValueError(f"status {response.status_code}: {response.read()[:200]}")
            for line in response.iter_lines():
                if line == "data: [DONE]":
                    done = True
                elif line.startswith("data: "):
                    chunk = json.loads(line[6:])
                    if "error" in chunk:
                        raise ValueError(f"error in the stream: {chunk['error']}")
                    text += "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])
        if not done:
            raise ValueError("no [DONE]")
        return text

    def ask(self, number):
        """A client that asks the other gateway once where one breaks off."""
        first = self.count % len(self.urls)
        try:
            return self.text(self.urls[first], number)
        except httpx.TransportError:
            self.retried += 1
            return self.text(self.urls[first - 1], number)

    def run(self):
        while not self.ended.is_set():
            number = self.count % 3
            try:
                text = self.ask(number)
                if text != self.known.setdefault(number, text) or not text:
                    self.wrong += 1
                    self.reasons.append(f"story {number}: {text[:60]!r} instead of {self.known[number][:60]!r}")
            except (httpx.HTTPError, ValueError) as error:
                self.wrong += 1
                self.reasons.append(repr(error))
            self.count += 1


class ChaosFleet:
    """`far`: "told", one worker is behind a cable that can be cut, and gateways are told of it; "leased", it registers like the others."""

    def __init__(self, folder, seed, far=None, workers=WORKERS, gateway_flags=(), worker_flags=(), speed=SPEED):
        self.gateway_flags, self.node = gateway_flags, (*node_flags(speed), *worker_flags)
        self.folder, self.random = pathlib.Path(folder), random.Random(seed)
        self.stack = contextlib.ExitStack()
        self.namespace, self.etcd = None, None
        self.workers, self.gateways = [], []
        self.size, self.far = workers, far
        self.back_s = None

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            stack.callback(self._stop)
            if self.far:
                self.namespace = Namespace(7)
                stack.callback(self.namespace.remove)
            leased = self.far == "leased"
            self.etcd = Etcd(self.folder, beside=[self.namespace.hosts] if leased else [])
            self.etcd.wait_ready()
            self.registers = (*self.node, "--etcd-endpoints", self.etcd.urls)
            registers_far = ("--etcd-endpoints", self.etcd.urls_at(self.namespace.hosts), "--etcd-lease-ttl-secs", TTL_SECS) if leased else ()
            for index in range(self.size):
                far = self.far and index == self.size - 1
                self.workers.append(FarWorker(index, self.folder, (*self.node, *registers_far), self.namespace) if far
                                    else SimWorker(index, self.folder, self.registers))
            for worker in self.workers:
                worker.wait_ready()
            ports = [(free_port(), free_port()) for _ in range(GATEWAYS)]
            self.gateways = [self._gateway(index, ports) for index in range(GATEWAYS)]
            self.ports = ports
            for gateway in self.gateways:
                gateway.wait_ready()
                wait_until(lambda: self._sees_all(gateway), 15, "the gateway has heard of every worker")
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *exc):
        self.stack.close()

    def _gateway(self, index, ports):
        peers = ",".join(f"http://127.0.0.1:{metrics}" for other, (_, metrics) in enumerate(ports) if other != index)
        told = [worker.url for worker in self.workers if isinstance(worker, FarWorker) and self.far == "told"]
        flags = ("--gossip.peers", peers, "--state", "etcd", "--etcd-endpoints", self.etcd.urls, *self.gateway_flags)
        return Gateway(told, self.folder, flags, ports[index])

    def _sees_all(self, gateway):
        known = httpx.get(f"{gateway.metrics_url}/admin/workers", timeout=5).json()["workers"]
        return len(known) == len(self.workers) and all(worker["models"] and worker["load"] for worker in known)

    def _stop(self):
        for program in self.gateways + self.workers:
            if program.process.poll() is None:
                os.kill(program.pid, signal.SIGCONT)
                program.process.terminate()
        for program in self.gateways + self.workers:
            try:
                program.process.wait(10)
            except subprocess.TimeoutExpired:
                program.kill()
        for member in self.etcd.members if self.etcd else []:
            member.kill()

    def leader(self):
        return next(index for index, gateway in enumerate(self.gateways)
                    if "troupe_gateway_state_leader 1" in httpx.get(f"{gateway.metrics_url}/metrics", timeout=5).text)

    def restart_worker(self, index):
        """On its old port, with an empty cache."""
        self.workers[index] = SimWorker(index, self.folder, self.registers, port=self.workers[index].port)
        self.workers[index].wait_ready()

    @staticmethod
    def ready_count(gateway):
        known = httpx.get(f"{gateway.metrics_url}/admin/workers", timeout=5).json()["workers"]
        return sum(worker["state"] == "ready" for worker in known)

    def registered(self, worker):
        return f"{PREFIX}/workers/{worker.url.removeprefix('http://')}" in self.etcd.keys("workers/")

    def states_of(self, worker):
        """By every gateway; None: one that does not know it."""
        asked = [httpx.get(f"{gateway.metrics_url}/admin/workers", timeout=5).json()["workers"] for gateway in self.gateways]
        return [next((one["state"] for one in known if one["url"] == worker.url), None) for known in asked]

    def restart_gateway(self, index):
        self.gateways[index] = self._gateway(index, self.ports)

    def busiest(self):
        """The number of whoever has the most streams that must go on elsewhere."""
        running = [worker.load()["running"] for worker in self.workers]
        return self.random.choice([index for index, count in enumerate(running) if count == max(running)])

    def busy(self):
        places = sum(worker.load()["max_num_seqs"] for worker in self.workers)
        return sum(worker.load()["running"] for worker in self.workers) / places

    def wait_for_streams(self, number, within_s):
        """Who is the victim whatever it does is lost when it has some: else nothing is cut, and that shows nothing."""
        end = time.monotonic() + within_s
        while self.workers[number].load()["running"] < 2 and time.monotonic() < end:
            time.sleep(0.05)

    def resumed(self):
        total = 0
        for gateway in self.gateways:
            with contextlib.suppress(httpx.TransportError):
                for line in httpx.get(f"{gateway.metrics_url}/metrics", timeout=5).text.splitlines():
                    if line.startswith('troupe_gateway_resumes_total{result="resumed"} '):
                        total += int(float(line.split()[-1]))
        return total


FAULT_S = 20
TAKES_S = {"rolling": 90}  # longer than others
FAR = {"partition": "told", "lease": "leased"}  # faults that need a worker behind a cable, which is their victim


def _mean_hit(seconds, begin, end):
    part = [(count, share) for count, share in seconds[max(begin, 0):end] if count]
    requests = sum(count for count, _ in part)
    return sum(share * count for count, share in part) / requests if requests else None


def _series(seconds, fault_s, lasted_s):
    """hit before, hit during, dip, t95"""
    last = max(s for s, (count, _) in enumerate(seconds) if count) + 1
    before = _mean_hit(seconds, fault_s - 10, fault_s)
    means = [(s, _mean_hit(seconds, s, s + 3)) for s in range(fault_s, last - 2)]
    means = [(s, mean) for s, mean in means if mean is not None]
    dip = max((before - mean for _, mean in means), default=0)
    below = [s for s, mean in means if mean < 0.95 * before]
    t95 = 0 if not below else -1 if below[-1] == means[-1][0] else below[-1] + 1 - fault_s
    return before, _mean_hit(seconds, fault_s, fault_s + lasted_s), max(dip, 0), t95


def behind(calm, fault, fault_s=FAULT_S):
    """What the same traffic hit without the fault, minus with it: the worst 3 s, and the mean of all seconds from the fault on.
    Traffic falls and rises by itself (who comes when, with how long a card); held against itself, only the fault is left."""
    both = [(a[0], a[1], b[1]) for a, b in zip(calm, fault) if a[0] and b[0]]
    lacks = [(count, in_calm - in_fault) for count, in_calm, in_fault in both]
    worst = max((_mean_hit(lacks, s, s + 3) for s in range(fault_s, len(lacks) - 2)), default=0)
    return max(worst, 0), _mean_hit(lacks, fault_s, len(lacks))


def run(name, folder, seed=1, warm_s=12, fault_s=FAULT_S, for_s=8, end_s=55, rate=RATE, speed=SPEED, as_long_as=None, again=None):
    """`as_long_as`: the run takes as long as that fault's, for a calm one to hold it against. `again`: the Done that is done again."""
    end_s += TAKES_S.get(as_long_as or name, 0)
    figures = Figures(name, "")
    ended = threading.Event()
    with ChaosFleet(folder, seed, far=FAR.get(name), speed=speed) as fleet:
        urls = [gateway.url for gateway in fleet.gateways]
        report = pathlib.Path(folder) / "drive.json"
        flags = [part for key, value in TRAFFIC.items() for part in (f"--{key.replace('_', '-')}", value)]
        command = [BIN / "troupe-sim", "drive", "--url", ",".join(urls), "--retries", 1, *flags, "--rate", rate, "--duration-s", end_s,
                   "--warmup-s", warm_s, "--fault-at-s", fault_s, "--seed", seed, "--report", report]
        log = open(pathlib.Path(folder) / "drive.log", "w+")
        begin = time.monotonic()
        driver = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL, stderr=log)
        probes = [Probe(index, urls, ended) for index in range(PROBES)]
        try:
            for probe in probes:
                probe.start()
            shares = []
            at_s, for_s = (again.at_s, again.for_s) if again else (fault_s, for_s)
            while (left_s := begin + at_s - time.monotonic()) > 0:
                time.sleep(min(left_s, 0.25))
                # (Asking takes time: not so shortly before that the fault would come late.)
                if time.monotonic() > begin + warm_s and left_s > 1:
                    shares.append(fleet.busy())
            figures.busy = sum(shares) / max(len(shares), 1)
            victim = again.victim if again else choose(name, fleet)
            if name in FAR and not again:
                fleet.wait_for_streams(victim, within_s=3)
            hit_at = time.monotonic() - begin
            what, end = FAULTS[name](fleet, victim)
            figures.schedule = Schedule(seed, rate, [Done(name, victim, round(hit_at, 2), for_s)])
            figures.what = f"{hit_at:.1f} s: {what.format(for_s=for_s)}"
            time.sleep(for_s)
            lasted_s = round(time.monotonic() - begin - hit_at)
            end()
            driver.wait(end_s + 120)
        finally:
            ended.set()
            if driver.poll() is None:
                driver.kill()
                driver.wait()
        for probe in probes:
            probe.join(90)
        figures.resumed, figures.back_s = fleet.resumed(), fleet.back_s
    log.seek(0)
    said = log.read()
    if driver.returncode != 0:
        raise AssertionError(f"troupe-sim drive ended with {driver.returncode}: {said}")
    result = json.loads(report.read_text())
    figures.requests, figures.failed, figures.retried = result["requests"], result["lost"], result["retries"]
    figures.stall_s = result["faults"]["stall_max_ms"] / 1e3
    figures.ttft_p99_s = result["faults"]["p99_peak_ms"] / 1e3
    figures.seconds = list(zip(result["per_second"]["arrived"], result["per_second"]["hit_tokens"]))
    figures.hit_before, figures.hit_during, figures.hit_dip, figures.t95_s = _series(figures.seconds, fault_s, lasted_s)
    figures.texts = sum(probe.count for probe in probes)
    figures.wrong = sum(probe.wrong for probe in probes)
    reasons = [reason for probe in probes for reason in probe.reasons]
    return figures, [line for line in said.splitlines() if "lost:" in line] + reasons

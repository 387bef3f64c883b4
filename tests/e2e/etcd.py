"""A real etcd of three members on loopback, and the programs that share their state there."""
import base64
import concurrent.futures
import os
import re
import signal
import threading

import httpx

from fleet import BIN, MODEL, Gateway, Program, SimWorker, chat_body, free_port, post_chat, wait_until

PREFIX = "/troupe/v1"
TTL_SECS = 3
FAST = ("--sim-speed", 20)


class Member(Program):
    def __init__(self, index, ports, folder, beside=()):
        self.index, self.url = index, f"http://127.0.0.1:{ports[index][0]}"
        listens = ",".join([self.url, *(f"http://{address}:{ports[index][0]}" for address in beside)])
        peer = lambda i: f"http://127.0.0.1:{ports[i][1]}"
        super().__init__(f"etcd-{index}", [
            "etcd", "--name", f"m{index}", "--data-dir", folder / f"etcd-{index}", "--logger", "zap", "--log-level", "error",
            "--listen-client-urls", listens, "--advertise-client-urls", self.url,
            "--listen-peer-urls", peer(index), "--initial-advertise-peer-urls", peer(index),
            "--initial-cluster", ",".join(f"m{i}={peer(i)}" for i in range(len(ports))), "--initial-cluster-state", "new",
        ], folder, f"{self.url}/health")

    def hold(self):
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self):
        os.kill(self.pid, signal.SIGCONT)


class Etcd:
    """`beside`: other addresses of this machine at which it is asked, too."""

    def __init__(self, folder, beside=()):
        self.folder, self.beside, self.ports = folder, beside, [(free_port(), free_port()) for _ in range(3)]
        self.restart()
        self.urls = self.urls_at("127.0.0.1")

    def urls_at(self, address):
        return ",".join(f"http://{address}:{port}" for port, _ in self.ports)

    def wait_ready(self):
        for member in self.members:
            member.wait_ready(60)

    def restart(self):
        """After all were killed, with what they had written."""
        self.members = [Member(index, self.ports, self.folder, self.beside) for index in range(3)]

    def keys(self, under):
        """Value by key, of those that begin with PREFIX/under."""
        begin = f"{PREFIX}/{under}".encode()
        body = {"key": base64.b64encode(begin).decode(), "range_end": base64.b64encode(begin[:-1] + bytes([begin[-1] + 1])).decode()}
        answer = httpx.post(f"{self.members[-1].url}/v3/kv/range", json=body, timeout=10).json()
        decoded = lambda text: base64.b64decode(text)
        return {decoded(kv["key"]).decode(): decoded(kv.get("value", "")) for kv in answer.get("kvs", [])}


    def put(self, key, value):
        """Without a lease: it stays."""
        name, text = (base64.b64encode(part.encode()).decode() for part in (f"{PREFIX}/{key}", value))
        httpx.post(f"{self.members[-1].url}/v3/kv/put", json={"key": name, "value": text}, timeout=10).raise_for_status()

    def delete(self, key, client=httpx):
        name = base64.b64encode(f"{PREFIX}/{key}".encode()).decode()
        client.post(f"{self.members[-1].url}/v3/kv/deleterange", json={"key": name}).raise_for_status()


class StateGateway(Gateway):
    """It is told of no worker but by etcd."""

    def __init__(self, etcd, folder, flags=(), advertises=False):
        self.port, self.metrics_port = free_port(), free_port()
        self.url, self.metrics_url = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.metrics_port}"
        command = [BIN / "troupe-gateway", "--port", self.port, "--metrics-port", self.metrics_port, "--state", "etcd",
                   "--etcd-endpoints", etcd.urls, "--etcd-lease-ttl-secs", TTL_SECS, "--route.plan-interval-s", 1, *flags]
        self.address = f"127.0.0.1:{self.metrics_port}"
        if advertises:
            command += ["--gossip.advertise-url", self.metrics_url]
        Program.__init__(self, f"gateway-{self.port}", command, folder, f"{self.metrics_url}/readyz")

    def metric(self, name):
        for line in httpx.get(f"{self.metrics_url}/metrics", timeout=5).text.splitlines():
            if line.startswith(name + " "):
                return float(line.split()[-1])
        raise AssertionError(f"no {name}")

    def metrics_of(self, name):
        """Value by the value of its one label."""
        text = httpx.get(f"{self.metrics_url}/metrics", timeout=5).text
        return {label: float(value) for label, value in re.findall(rf'^{name}{{\w+="([^"]*)"}} (\S+)$', text, re.MULTILINE)}

    def leads(self):
        return self.metric("troupe_gateway_state_leader") == 1

    def degraded(self):
        return self.metric("troupe_gateway_state_degraded") == 1

    def table(self):
        return httpx.get(f"{self.metrics_url}/admin/table", timeout=5).json()

    def workers(self):
        return {w["url"]: w["state"] for w in httpx.get(f"{self.metrics_url}/admin/workers", timeout=5).json()["workers"]}


def start_worker(etcd, index, folder, flags=()):
    return SimWorker(index, folder, [*FAST, "--etcd-endpoints", etcd.urls, "--etcd-lease-ttl-secs", TTL_SECS, *flags])


class Shared:
    """etcd, workers and gateways; `with` stops them all, in the order in which nobody misses anybody."""

    def __init__(self, folder, workers, gateways, worker_flags=(), gateway_flags=()):
        self.folder, self.counts, self.workers, self.gateways, self.etcd = folder, (workers, gateways), [], [], None
        self.worker_flags, self.gateway_flags = worker_flags, gateway_flags

    def __enter__(self):
        try:
            self.etcd = Etcd(self.folder)
            self.etcd.wait_ready()
            self.workers = [start_worker(self.etcd, index, self.folder, self.worker_flags) for index in range(self.counts[0])]
            self.gateways = [StateGateway(self.etcd, self.folder, self.gateway_flags) for _ in range(self.counts[1])]
            for gateway in self.gateways:
                gateway.wait_ready()
                wait_until(lambda: self.sees_all(gateway), 30, "the gateway has found all workers")
        except BaseException:
            self.__exit__(AssertionError)
            raise
        return self

    def sees_all(self, gateway):
        return gateway.workers() == {worker.url: "ready" for worker in self.workers}

    def __exit__(self, *exc):
        failures = []
        for program in self.gateways + self.workers:
            try:
                program.stop()
            except AssertionError as error:
                failures.append(str(error))
        for member in self.etcd.members if self.etcd else []:
            member.kill()
        if failures and exc[0] is None:
            raise AssertionError("\n".join(failures))

    def leader(self):
        leaders = [gateway for gateway in self.gateways if gateway.process.poll() is None and gateway.leads()]
        return leaders[0] if len(leaders) == 1 else None


class Load:
    """`with Load(gateways):` many personas ask without a pause; afterwards, everybody has been answered."""

    def __init__(self, gateways, personas=12, threads=4):
        self.gateways, self.personas, self.threads = list(gateways), personas, threads
        self.outcomes, self.stopped, self.failures = [], threading.Event(), []

    def ask(self, thread):
        number = 0
        with httpx.Client(timeout=30) as client:
            while not self.stopped.is_set():
                number += 1
                gateway = self.gateways[(thread + number) % len(self.gateways)]
                status, _ = ask_once(gateway, thread * 7 + number, self.personas, client)
                self.outcomes.append(status)
                if status != 200:
                    self.failures.append((gateway.name, status))
                self.stopped.wait(0.02)

    def __enter__(self):
        self.pool = concurrent.futures.ThreadPoolExecutor(self.threads)
        self.tasks = [self.pool.submit(self.ask, thread) for thread in range(self.threads)]
        return self

    def __exit__(self, *exc):
        self.stopped.set()
        self.pool.shutdown()
        for task in self.tasks:
            task.result()
        if exc[0] is None:
            assert self.failures == [] and self.outcomes, (len(self.outcomes), self.failures[:5])


def ask_once(gateway, number, personas, client=httpx):
    """Status and usage of a first turn with one of the personas."""
    index = number % personas
    card = f"You are playing character {index}. " + " ".join(f"In year {index * 31 + i} they lived in house {i * 7 + index}." for i in range(40))
    body = chat_body([{"role": "system", "content": card}, {"role": "user", "content": f"Guest {number} says hello."}], max_tokens=8)
    body["model"] = MODEL
    answer = post_chat(gateway.url, body, client, timeout=30)
    return answer.status_code, answer.json().get("usage")

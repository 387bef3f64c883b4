"""What workers say they hold (GET /v1/residency) is what the next request finds, and gateways route by it."""
import hashlib
import json
import socket
import threading
import time

import httpx
import pytest

from figures import figure
from fleet import Gateway, SimWorker, Worker, chat_body, free_port, wait_until, whole_chat

FAST = ("--sim-speed", 20)
BLOCK = 16
DEVICES = pytest.mark.parametrize("worker_class, flags", [(SimWorker, FAST), (Worker, ())], ids=["sim", "cpu"])


class Watch:
    """A subscriber: what the worker says it holds, put together from its events."""

    def __init__(self, worker):
        self.url, self.held, self.epoch, self.seq, self.snapshots = f"{worker.url}/v1/residency", {}, None, None, 0
        self.worker, self.error, self.evicted = worker, None, 0
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()
        wait_until(lambda: self.snapshots or self.error, 10, "the snapshot")

    def _read(self):
        try:
            with httpx.stream("GET", self.url, timeout=30) as response:
                name = None
                for line in response.iter_lines():
                    if line.startswith("event: "):
                        name = line[len("event: "):]
                    elif line.startswith("data: "):
                        self._apply(name, json.loads(line[len("data: "):]))
        except httpx.TransportError:
            pass  # the worker is gone
        except AssertionError as error:
            self.error = error

    def _apply(self, name, event):
        items = event["sets"] + event["sessions"] if name == "snapshot" else [event]
        if name == "snapshot":
            assert self.snapshots == 0, "a stream begins with its only snapshot"
            self.epoch, self.snapshots = event["epoch"], 1
        else:
            assert (event["epoch"], event["seq"]) == (self.epoch, self.seq + 1), "a gap"
            self.evicted += name == "evicted"
        self.seq = event["seq"]
        for item in items:
            self.held[item.get("set") or item["session"]] = item["tokens"]

    def tokens(self, name):
        assert self.error is None, self.error
        return self.held.get(name, 0)


    def agrees_with_a_new_one(self):
        """Changes and snapshots tell the same, once the last change has come."""
        def agrees():
            assert self.error is None, self.error
            return Watch(self.worker).held == {name: tokens for name, tokens in self.held.items() if tokens}
        wait_until(agrees, 10, "a new subscriber knows the same")


def hexname(text):
    return hashlib.md5(text.encode()).hexdigest()


def persona(index, sentences=12):
    return {"role": "system", "content": f"You are playing character {index}. " +
            " ".join(f"In year {index * 31 + i} they lived in house {i * 7 + index}." for i in range(sentences))}


def ask(worker, index, question, session, history=()):
    """One turn at the worker itself, named as a gateway would; the answer and its usage."""
    headers = {"x-troupe-set": hexname(f"set {index}"), "x-troupe-session": hexname(session), "x-troupe-prefix-messages": "1"}
    messages = [persona(index), *history, {"role": "user", "content": question}]
    body = chat_body(messages, max_tokens=24, ignore_eos=True)
    response = httpx.post(f"{worker.url}/v1/chat/completions", json=body, headers=headers, timeout=60)
    assert response.status_code == 200, response.text
    answer = response.json()
    return answer["choices"][0]["message"]["content"], answer["usage"]


def cached(usage):
    return usage["prompt_tokens_details"]["cached_tokens"]


@DEVICES
def test_what_a_worker_says_is_what_the_next_request_finds(start, worker_class, flags):
    worker = start(gateway=False, worker_class=worker_class, worker_flags=flags).workers[0]
    watch = Watch(worker)
    assert watch.held == {}
    text, first = ask(worker, 1, "Who are you?", "s1")
    assert cached(first) == 0
    full_blocks = (first["prompt_tokens"] + first["completion_tokens"] - 1) // BLOCK * BLOCK  # the last token has no KV
    wait_until(lambda: watch.tokens(hexname("s1")) == full_blocks, 10, "the session is told")
    # Somebody else's first turn finds the persona, and at most a part of the next block besides.
    _, other = ask(worker, 1, "Where do you live?", "s2")
    set_tokens = watch.tokens(hexname("set 1"))
    assert 0 < set_tokens and set_tokens % BLOCK == 0
    assert set_tokens <= cached(other) < set_tokens + BLOCK
    # The next turn finds all that the session is said to hold.
    history = [{"role": "user", "content": "Who are you?"}, {"role": "assistant", "content": text}]
    held = watch.tokens(hexname("s1"))
    _, second = ask(worker, 1, "And then?", "s1", history)
    if worker_class is SimWorker:  # whose filler text is encoded as it was emitted
        assert held <= cached(second) < held + BLOCK
    assert set_tokens <= cached(second) < held + BLOCK
    watch.agrees_with_a_new_one()
    computed = sum(u["prompt_tokens"] - cached(u) + u["completion_tokens"] - 1 for u in (first, other, second))
    def work():
        return {item["set"]: item for item in worker.load()["sets"]}[hexname("set 1")]
    wait_until(lambda: work()["work_tokens_total"] >= computed, 10, "the work is told")
    assert work()["work_tokens_total"] == computed
    assert set_tokens <= work()["prefix_tokens"] < set_tokens + BLOCK


@DEVICES
def test_what_no_longer_fits_is_told_gone(start, worker_class, flags):
    worker = start(gateway=False, worker_class=worker_class,
                   worker_flags=[*flags, "--kv-cache-tokens", 1024, "--max-model-len", 1024]).workers[0]
    watch = Watch(worker)
    for index in range(12):
        ask(worker, index, "Who are you?", f"s{index}")
    wait_until(lambda: watch.evicted > 0 and worker.load()["running"] == 0, 10, "evictions are told")
    watch.agrees_with_a_new_one()  # the last events have come, too
    held = {index: watch.tokens(hexname(f"set {index}")) for index in range(12)}
    least, most = min(held, key=held.get), max(held, key=held.get)
    assert held[least] + 4 * BLOCK < held[most], held
    for index in (most, least):
        watch.agrees_with_a_new_one()
        tokens = watch.tokens(hexname(f"set {index}"))
        _, usage = ask(worker, index, "What do you like best?", f"t{index}")
        assert tokens <= cached(usage) < tokens + BLOCK, (index, tokens, usage)


# Of a handful of requests every persona is a hot one, which grows onto more workers; and short ones are not worth it.
STAY = ("--route.hot-factor", 0, "--route.noise-tokens", 0)


def workers_of(gateway):
    return httpx.get(f"{gateway.metrics_url}/admin/workers", timeout=5).json()["workers"]


def in_step(gateway):
    return all(worker["residency"]["in_step"] for worker in workers_of(gateway))


def explain(gateway, body):
    response = httpx.post(f"{gateway.metrics_url}/admin/explain", json=body, timeout=5)
    assert response.status_code == 200, response.text
    return response.json()["order"]


def hears(gateway, other_port):
    lines = httpx.get(f"{gateway.metrics_url}/metrics", timeout=5).text.splitlines()
    return any(line.startswith("troupe_gateway_gossip_peer_up") and f":{other_port}" in line and line.endswith(" 1") for line in lines)


def body_of(index, question):
    return chat_body([persona(index), {"role": "user", "content": question}], max_tokens=8, ignore_eos=True)


def started_gateway(fleet, logs, flags=(), metrics_port=None):
    """One more in front of the fleet's workers; stopped with it."""
    gateway = Gateway([worker.url for worker in fleet.workers], logs,
                      [*flags, *(("--metrics-port", metrics_port) if metrics_port else ())])
    if metrics_port:  # of a flag given twice the last one holds
        gateway.metrics_port, gateway.metrics_url = metrics_port, f"http://127.0.0.1:{metrics_port}"
        gateway.ready_url = f"{gateway.metrics_url}/readyz"
    gateway.wait_ready()
    wait_until(lambda: all(worker["models"] for worker in workers_of(gateway)), 15, "the gateway has heard of every worker")
    return gateway


def test_a_gateway_knows_what_others_left_with_the_workers(start, logs):
    fleet = start(workers=3, worker_class=SimWorker, worker_flags=FAST, gateway_flags=STAY)
    other = started_gateway(fleet, logs, STAY)
    try:
        wait_until(lambda: in_step(fleet.gateway) and in_step(other), 15, "both are in step with every worker")
        for index in range(9):
            asked, sees = (fleet.gateway, other) if index % 2 else (other, fleet.gateway)
            first = whole_chat(asked.url, body_of(index, "Who are you?"))
            wait_until(lambda: explain(sees, body_of(index, "Where?"))[0]["expect_cached_tokens"] > 0, 10, "it is told")
            second = whole_chat(sees.url, body_of(index, "Where do you live?"))
            assert second.node == first.node, explain(sees, body_of(index, "Where?"))
            assert cached(second.usage) > first.usage["prompt_tokens"] / 2
    finally:
        other.stop()


def test_placements_do_where_workers_do_not_tell(start, logs):
    ports = [free_port(), free_port()]
    flags = (*STAY, "--mode", "gossip", "--gossip.peers", ",".join(f"http://127.0.0.1:{port}" for port in ports))
    fleet = start(workers=3, gateway=False, worker_class=SimWorker, worker_flags=FAST)
    gateways = []
    try:
        gateways = [started_gateway(fleet, logs, flags, port) for port in ports]
        # The first met nobody when it began, and tells nothing to who does not answer.
        wait_until(lambda: hears(gateways[0], ports[1]) and hears(gateways[1], ports[0]), 15, "both answer")
        for index in range(9):
            asked, sees = gateways if index % 2 else gateways[::-1]
            first = whole_chat(asked.url, body_of(index, "Who are you?"))
            wait_until(lambda: explain(sees, body_of(index, "Where?"))[0]["expect_cached_tokens"] > 0, 10, "it is told")
            second = whole_chat(sees.url, body_of(index, "Where do you live?"))
            assert second.node == first.node, explain(sees, body_of(index, "Where?"))
            assert cached(second.usage) > first.usage["prompt_tokens"] / 2
    finally:
        for gateway in gateways:
            gateway.stop()


def test_a_restarted_worker_is_known_to_hold_nothing(start, logs):
    fleet = start(workers=2, worker_class=SimWorker, worker_flags=FAST, gateway_flags=STAY)
    wait_until(lambda: in_step(fleet.gateway), 15, "in step")
    first = whole_chat(fleet.url, body_of(1, "Who are you?"))
    wait_until(lambda: explain(fleet.gateway, body_of(1, "Where?"))[0]["expect_cached_tokens"] > 0, 10, "it is told")
    worker = fleet.worker_of_node(first.node)
    before = worker.load()["epoch"]
    worker.kill()
    again = SimWorker(0, logs, FAST, port=worker.port)
    fleet.workers[fleet.workers.index(worker)] = again
    again.wait_ready()
    assert again.load()["epoch"] != before
    wait_until(lambda: in_step(fleet.gateway) and all(w["state"] == "ready" for w in workers_of(fleet.gateway)), 20, "back")
    wait_until(lambda: all(c["expect_cached_tokens"] == 0 for c in explain(fleet.gateway, body_of(1, "Where?"))), 10,
               "nobody holds the persona any more")
    cold = whole_chat(fleet.url, body_of(1, "Where do you live?"))
    assert cached(cold.usage) < 32
    wait_until(lambda: explain(fleet.gateway, body_of(1, "When?"))[0]["expect_cached_tokens"] > 0, 10, "it is told")
    warm = whole_chat(fleet.url, body_of(1, "When was that?"))
    assert warm.node == cold.node and cached(warm.usage) > warm.usage["prompt_tokens"] / 2


def test_subscribers_that_do_not_read_cost_the_engine_nothing(start):
    worker = start(gateway=False, worker_class=SimWorker, worker_flags=(*FAST, "--kv-cache-tokens", 4096)).workers[0]

    def seconds_for(first):
        begin = time.monotonic()
        for index in range(first, first + 60):
            ask(worker, index % 20, "Who are you?", f"s{index}")
        return time.monotonic() - begin

    alone = seconds_for(0)
    stalled = []
    try:
        for _ in range(24):
            connection = socket.create_connection(("127.0.0.1", worker.port))
            connection.sendall(b"GET /v1/residency HTTP/1.1\r\nHost: t\r\n\r\n")
            stalled.append(connection)
        text = "troupe_residency_subscribers 24"
        wait_until(lambda: text in httpx.get(f"{worker.url}/metrics", timeout=5).text, 10, "all have subscribed")
        beside = seconds_for(60)
        figure("60 requests beside 24 subscribers that do not read", f"{beside:.2f} s", f"< 5 x {alone:.2f} s (alone) + 5 s")
        assert beside < 5 * alone + 5
    finally:
        for connection in stalled:
            connection.close()

"""SIGTERM: what runs is finished, what is new is refused, the exit code is 0. A second signal does not wait. And what a
program says when it cannot start."""
import contextlib
import itertools
import json
import shutil
import signal
import socket
import subprocess
import threading
import time

import httpx
import pytest

from fleet import BIN, Gateway, MODEL_DIR, SimWorker, chat_body, free_port, wait_until

MESSAGES = [{"role": "user", "content": "Hello!"}]


def start_stream(url, max_tokens):
    """A running stream: (thread, lines). Returns once its first token is there."""
    lines = []
    body = chat_body(MESSAGES, ignore_eos=True, max_tokens=max_tokens, stream=True)

    def read():
        try:
            with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=60) as response:
                for line in response.iter_lines():
                    lines.append(line)
        except httpx.TransportError as error:
            lines.append(repr(error))

    thread = threading.Thread(target=read)
    thread.start()
    wait_until(lambda: any(line.startswith("data: ") for line in lines), 20, "the first token")
    return thread, lines


def finish_reason(lines):
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    return chunks[-1]["choices"][0]["finish_reason"]


@pytest.mark.parametrize("which", ["worker", "gateway"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_running_streams_are_finished(start, which, number):
    fleet = start(workers=1, gateway=which == "gateway")
    thread, lines = start_stream(fleet.url, max_tokens=400)
    program = fleet.gateway if which == "gateway" else fleet.workers[0]
    program.process.send_signal(number)
    thread.join(40)
    assert lines[-2:].count("data: [DONE]") == 1, lines[-3:]
    assert finish_reason(lines) == "length"
    assert program.process.wait(20) == 0
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{fleet.url}/v1/models", timeout=5)


@pytest.mark.parametrize("which", ["worker", "gateway"])
def test_second_signal_does_not_wait(start, which):
    fleet = start(workers=1, gateway=which == "gateway")
    thread, lines = start_stream(fleet.url, max_tokens=1900)
    program = fleet.gateway if which == "gateway" else fleet.workers[0]
    program.process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    assert program.process.poll() is None, "it waits for the stream"
    program.process.send_signal(signal.SIGTERM)
    begin = time.monotonic()
    program.process.wait(20)
    assert time.monotonic() - begin < 3
    thread.join(20)
    assert not thread.is_alive()


def test_a_second_signal_does_not_wait_for_a_long_text(start):
    """A thread of the worker's is at it for seconds, whoever asked for it."""
    worker = start(workers=1, gateway=False).workers[0]
    body = {"model": "demo-model", "prompt": "a" * 15_000_000}

    def ask():
        with contextlib.suppress(httpx.HTTPError):
            httpx.post(f"{worker.url}/tokenize", json=body, timeout=60)

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.5)
    worker.process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    assert worker.process.poll() is None
    worker.process.send_signal(signal.SIGTERM)
    begin = time.monotonic()
    assert worker.process.wait(20) == 0 and time.monotonic() - begin < 1.5
    thread.join(20)


@pytest.mark.parametrize("which", ["worker", "gateway"])
def test_impatient_signals_do_not_spoil_the_exit_code(start, which):
    for _ in range(5):
        fleet = start(workers=1, gateway=which == "gateway")
        program = fleet.gateway if which == "gateway" else fleet.workers[0]
        while program.process.poll() is None:
            program.process.send_signal(signal.SIGTERM)
            time.sleep(.001)  # Asio reads signals until none is left: a loop without pause can keep it at that for minutes
        assert program.process.returncode == 0, program.log_tail()


def test_a_worker_gives_notice_and_takes_requests_as_long(start):
    fleet = start(workers=1, gateway=False, worker_flags=("--shutdown-notice-secs", 20))
    worker = fleet.workers[0]
    thread, lines = start_stream(worker.url, max_tokens=600)
    begin = time.monotonic()
    worker.process.send_signal(signal.SIGTERM)
    wait_until(lambda: httpx.get(f"{worker.url}/readyz").status_code == 503, 5, "readyz turns")
    told = httpx.get(f"{worker.url}/readyz").json()
    assert told["status"] == "leaving" and 0 < told["takes_requests_for_ms"] <= 20_000, told
    assert not worker.load()["ready"]
    answer = httpx.post(f"{worker.url}/v1/chat/completions", json=chat_body(MESSAGES, max_tokens=4), timeout=20)
    assert answer.status_code == 200, answer.text
    thread.join(40)
    assert finish_reason(lines) == "length"
    # Nobody asks any more: there is nothing to wait for.
    assert worker.process.wait(15) == 0
    assert time.monotonic() - begin < 20


def half_a_request(port):
    """A connection on which a request has begun to come, and what is left of it."""
    peer = socket.create_connection(("127.0.0.1", port), timeout=20)
    body = json.dumps(chat_body(MESSAGES)).encode()
    peer.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n")
    return peer, b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


def test_a_gateway_that_drains_takes_nothing_new(start):
    fleet = start(workers=1)
    with httpx.Client(timeout=20) as idle:
        assert idle.get(f"{fleet.url}/v1/models").status_code == 200
        peer, rest = half_a_request(fleet.gateway.port)
        thread, lines = start_stream(fleet.url, max_tokens=600)
        fleet.gateway.process.send_signal(signal.SIGTERM)
        wait_until(lambda: httpx.get(f"{fleet.gateway.metrics_url}/readyz").status_code == 503, 5, "readyz turns")
        assert httpx.get(f"{fleet.gateway.metrics_url}/livez").status_code == 200
        # Nobody new gets a connection, idle ones are closed, and a request that was on its way is refused.
        for client in (idle, httpx):
            with pytest.raises(httpx.ConnectError):
                client.post(f"{fleet.url}/v1/chat/completions", json=chat_body(MESSAGES), timeout=10)
    with peer:
        peer.sendall(rest)
        answer = b""
        while piece := peer.recv(65536):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 503 ") and b"\r\nconnection: close\r\n" in answer, answer
    thread.join(40)
    assert lines[-2:].count("data: [DONE]") == 1 and finish_reason(lines) == "length"
    assert fleet.gateway.process.wait(20) == 0


def test_a_gateway_gives_notice_and_takes_requests_as_long(start):
    fleet = start(workers=1, gateway_flags=("--shutdown-notice-secs", 3))
    ready = lambda: httpx.get(f"{fleet.gateway.metrics_url}/readyz").status_code
    with httpx.Client(timeout=20) as kept:
        assert kept.get(f"{fleet.url}/v1/models").headers.get("connection") != "close"
        begin = time.monotonic()
        fleet.gateway.process.send_signal(signal.SIGTERM)
        wait_until(lambda: ready() == 503, 2, "readyz turns")
        for client in (kept, httpx, kept):
            answer = client.post(f"{fleet.url}/v1/chat/completions", json=chat_body(MESSAGES, max_tokens=4), timeout=20)
            assert answer.status_code == 200 and answer.headers["connection"] == "close", answer.text
    assert fleet.gateway.process.wait(10) == 0
    assert 3 <= time.monotonic() - begin < 8


def test_a_second_signal_ends_a_gateways_notice(start):
    fleet = start(workers=1, gateway_flags=("--shutdown-notice-secs", 60))
    fleet.gateway.process.send_signal(signal.SIGTERM)
    wait_until(lambda: httpx.get(f"{fleet.gateway.metrics_url}/readyz").status_code == 503, 2, "readyz turns")
    fleet.gateway.process.send_signal(signal.SIGTERM)
    assert fleet.gateway.process.wait(3) == 0


class Balancer:
    """What stands before gateways: asks their readiness every 100 ms, sends each request to the next one that is ready, and
    tries nothing twice."""

    def __init__(self, gateways):
        self.gateways, self.ready, self.over = gateways, dict.fromkeys(gateways, True), threading.Event()
        self.watcher = threading.Thread(target=self.watch)
        self.watcher.start()

    def watch(self):
        while not self.over.wait(0.1):
            for gateway in self.gateways:
                try:
                    self.ready[gateway] = httpx.get(f"{gateway.metrics_url}/readyz", timeout=1).status_code == 200
                except httpx.TransportError:
                    self.ready[gateway] = False

    def send(self, client, number):
        up = [gateway for gateway in self.gateways if self.ready[gateway]]
        body = chat_body(f"Hello {number}!", max_tokens=8)
        return client.post(f"{up[number % len(up)].url}/v1/chat/completions", json=body, timeout=20)

    def close(self):
        self.over.set()
        self.watcher.join()


def test_a_gateway_is_restarted_and_no_request_is_lost(start):
    flags = ("--shutdown-notice-secs", 3)
    fleet = start(workers=1, gateway_flags=flags, worker_class=SimWorker, worker_flags=("--sim-speed", 20))
    other = Gateway([fleet.workers[0].url], fleet.log_dir, flags)
    stop, answers, failures = threading.Event(), [], []

    def client_of(balancer, first):
        with httpx.Client() as client:
            for number in itertools.count(first):
                if stop.is_set():
                    return
                try:
                    answers.append(balancer.send(client, number).status_code)
                except httpx.TransportError as error:
                    failures.append(repr(error))
    try:
        other.wait_ready()
        balancer = Balancer([fleet.gateway, other])
        threads = [threading.Thread(target=client_of, args=(balancer, index)) for index in range(8)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        other.stop()
        before = len(answers)
        other = Gateway([fleet.workers[0].url], fleet.log_dir, flags, (other.port, other.metrics_port))
        balancer.ready[other] = False
        balancer.gateways[1] = other
        wait_until(lambda: balancer.ready[other], 20, "it is ready again")
        time.sleep(0.5)
        stop.set()
        for thread in threads:
            thread.join()
        balancer.close()
        print(f"a gateway restarted: {len(answers)} answered ({before} until it was gone), {len(failures)} lost")
        assert not failures and set(answers) == {200}, (failures[:3], set(answers))
        assert len(answers) > before > 20
    finally:
        stop.set()
        other.stop()


def test_a_gateways_grace_ends(start):
    fleet = start(workers=1, gateway_flags=("--shutdown-grace-period-secs", 1))
    thread, lines = start_stream(fleet.url, max_tokens=1900)
    fleet.gateway.process.send_signal(signal.SIGTERM)
    assert fleet.gateway.process.wait(20) == 0
    thread.join(20)
    assert not thread.is_alive() and "data: [DONE]" not in lines


def test_draining_worker_refuses_and_the_gateway_goes_elsewhere(start):
    fleet = start(workers=2, worker_flags=("--shutdown-notice-secs", 0))
    streams = [start_stream(worker.url, max_tokens=1900) for worker in fleet.workers[:1]]  # it is there as long as one runs
    fleet.workers[0].process.send_signal(signal.SIGTERM)
    wait_until(lambda: httpx.get(f"{fleet.workers[0].url}/readyz").status_code == 503, 5, "readyz turns")
    refused = httpx.post(f"{fleet.workers[0].url}/v1/chat/completions", json=chat_body(MESSAGES), timeout=10)
    assert refused.status_code == 503 and refused.headers["connection"] == "close"
    for index in range(6):
        answer = httpx.post(f"{fleet.url}/v1/chat/completions", json=chat_body(f"Hello {index}!", max_tokens=4), timeout=20)
        assert answer.status_code == 200, answer.text
        assert str(fleet.workers[1].port) in answer.headers["x-route-decision"]
    for thread, lines in streams:
        thread.join(40)
        assert finish_reason(lines) == "length"


def run_worker(*flags):
    return subprocess.run([BIN / "troupe-worker", *map(str, flags)], capture_output=True, text=True, timeout=60)


def test_help_version_and_check_config():
    assert "--max-num-seqs" in run_worker("--help").stdout
    assert run_worker("--version").stdout.startswith("troupe-worker ")
    assert run_worker("--check-config", "--model", MODEL_DIR).returncode == 0


@pytest.mark.parametrize("flags, named", [
    (["--model", MODEL_DIR, "--port", "99999"], "port"),
    (["--model", MODEL_DIR, "--no-such-flag"], "no-such-flag"),
    (["--model", MODEL_DIR, "--device", "cuda"], "cuda"),
    (["--check-config"], "--model"),
    (["--check-config", "--model", "/nowhere"], "/nowhere"),
    (["sing", "--model", MODEL_DIR], "sing"),
    (["--config", "/nowhere.yaml"], "/nowhere.yaml"),
])
def test_bad_usage_is_exit_2_and_says_why(flags, named):
    ended = run_worker(*flags)
    assert ended.returncode == 2 and named in ended.stderr, ended


def test_a_bad_model_is_refused_with_its_file(tmp_path):
    shutil.copytree(MODEL_DIR, tmp_path / "model")
    for name, damage in (("config.json", b"{"), ("tokenizer.json", b"[]"), ("model.safetensors", b"\xff" * 100)):
        whole = (tmp_path / "model" / name).read_bytes()
        (tmp_path / "model" / name).write_bytes(damage)
        ended = run_worker("--model", tmp_path / "model", "--port", 0)
        assert ended.returncode == 1 and name in ended.stderr, ended
        (tmp_path / "model" / name).write_bytes(whole)


def test_a_taken_port_is_told(start):
    fleet = start(workers=1, gateway=False)
    ended = run_worker("--model", MODEL_DIR, "--port", fleet.workers[0].port)
    assert ended.returncode == 1 and str(fleet.workers[0].port) in ended.stderr, ended


def test_a_signal_while_loading_ends_it():
    process = subprocess.Popen([BIN / "troupe-worker", "--model", MODEL_DIR, "--port", str(free_port())],
                               stderr=subprocess.DEVNULL)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) in (0, -signal.SIGTERM)  # the latter before main() was reached

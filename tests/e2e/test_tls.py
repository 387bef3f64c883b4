"""TLS from the client to the worker, with real clients: curl, openai, httpx. Who is not to be trusted is refused on both sides,
certificates change under load, and a worker's death costs no stream."""
import json
import shutil
import signal
import socket
import subprocess
import threading
import time

import httpx
import openai
import pytest

from certificates import Authority, certificate_of
from figures import figure
from etcd import TTL_SECS
from fleet import (BIN, MODEL, Gateway, Program, SimWorker, Worker, chat_body, free_port, in_parallel, post_chat, wait_until,
                   whole_chat)
from persona_load import PersonaLoad
from test_resume import RESUMED, Stream, body_of

QUICK = ("--probe.interval-ms", 100)


class Tls:
    """One authority for servers, another for clients, and what each program is told of them."""

    def __init__(self, folder):
        self.folder = folder
        self.servers, self.clients, self.strangers = (Authority(folder, name) for name in ("servers", "clients", "strangers"))
        self.server, self.client = self.servers.issue("server"), self.clients.issue("client")
        self.listener = ("--tls.certificate", self.server[0], "--tls.private-key", self.server[1])
        self.asks_clients = ("--tls.client-ca", self.clients.path)
        self.upstream = ("--upstream-tls.ca", self.servers.path)
        self.upstream_client = ("--upstream-tls.certificate", self.client[0], "--upstream-tls.private-key", self.client[1])


class SecureWorker(Worker):
    def __init__(self, index, log_dir, tls, flags=(), base=Worker):
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.client = httpx.Client(verify=tls.servers.trust(*tls.client))
        Program.__init__(self, f"worker-{index}-{self.port}",
                         [BIN / "troupe-worker", "--port", self.port, *base.OWN_FLAGS, *tls.listener, *flags], log_dir,
                         f"{self.url}/readyz")

    def load(self):
        return self.client.get(f"{self.url}/v1/load", timeout=5).json()


class SecureGateway(Gateway):
    def __init__(self, workers, log_dir, tls, flags=(), ports=None):
        super().__init__([worker.url for worker in workers], log_dir, [*tls.listener, *QUICK, *flags], ports)
        self.url = f"https://127.0.0.1:{self.port}"

    def metrics(self):
        return httpx.get(f"{self.metrics_url}/metrics", timeout=10).text

    def metric(self, line):
        found = [row for row in self.metrics().splitlines() if row.startswith(line + " ")]
        return float(found[0].split()[-1]) if found else 0

    def ready_workers(self):
        listed = httpx.get(f"{self.metrics_url}/admin/workers", timeout=5).json()["workers"]
        return {worker["url"] for worker in listed if worker["state"] == "ready"}

    def wait_workers(self, workers):
        self.wait_ready()
        wait_until(lambda: self.ready_workers() == {worker.url for worker in workers}, 30, "every worker is ready")


@pytest.fixture(scope="module")
def tls(logs):
    return Tls(logs)


@pytest.fixture(autouse=True)
def trusting(tls, monkeypatch):
    """httpx and openai trust servers' authority, unless a test says otherwise."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tls.servers.path))


@pytest.fixture
def run(logs):
    """run(program) → program, stopped when the test ends."""
    running = []

    def keep(program):
        running.append(program)
        return program

    yield keep
    failures = []
    for program in reversed(running):
        try:
            program.stop()
        except AssertionError as error:
            failures.append(str(error))
    assert not failures, "\n".join(failures)


def logged(program, event, count=1):
    lines = lambda: [line for line in program.log_path.read_text().splitlines() if f"event={event} " in line + " "]
    wait_until(lambda: len(lines()) >= count, 15, f"{event} in the log of {program.name}")
    return lines()[-1]


def hang_up(program, event, count=1):
    program.process.send_signal(signal.SIGHUP)
    return logged(program, event, count)


def curl(authority, *args):
    command = ["curl", "-sS", "--max-time", "30", "--cacert", authority.path, *args]
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60)


def test_curl_and_openai_from_end_to_end(run, logs, tls):
    workers = [run(SecureWorker(index, logs, tls, tls.asks_clients)) for index in range(2)]
    for worker in workers:
        worker.wait_ready()
    gateway = run(SecureGateway(workers, logs, tls, [*tls.upstream, *tls.upstream_client]))
    gateway.wait_workers(workers)
    body = chat_body("Who are you?", max_tokens=8)
    ask = ["-d", json.dumps(body), "-H", "content-type: application/json", f"{gateway.url}/v1/chat/completions"]
    for version in ("1.2", "1.3"):
        answer = curl(tls.servers, "--tlsv" + version, "--tls-max", version, *ask)
        assert answer.returncode == 0 and json.loads(answer.stdout)["choices"], answer
    # 35: no common version, 60: not that authority, 56 or 52: a worker asks for a certificate.
    assert curl(tls.servers, "--tls-max", "1.1", *ask).returncode == 35
    assert curl(tls.strangers, *ask).returncode == 60
    at_worker = f"{workers[0].url}/readyz"
    assert curl(tls.servers, at_worker).returncode in (52, 56)
    assert curl(tls.servers, "--cert", tls.client[0], "--key", tls.client[1], at_worker).returncode == 0
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="unused", max_retries=0, timeout=30) as client:
        whole = client.chat.completions.create(**body)
        chunks = list(client.chat.completions.create(**body, stream=True))
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == whole.choices[0].message.content
        # 200 KB there, and more than that back.
        text = "".join(f"word{index} " for index in range(22_000))
        ids = httpx.post(f"{gateway.url}/tokenize", json={"model": MODEL, "prompt": text}, timeout=60)
        back = httpx.post(f"{gateway.url}/detokenize", json={"model": MODEL, "tokens": ids.json()["tokens"]}, timeout=60)
        assert len(text) > 200_000 and len(ids.content) > 200_000 and text in back.json()["prompt"]
    expiry = gateway.metric('troupe_gateway_tls_certificate_expiry_timestamp_seconds{use="listener"}')
    assert time.time() + 86400 < expiry < time.time() + 3 * 86400
    assert f'troupe_worker_tls_certificate_expiry_timestamp_seconds{{use="listener"}} {expiry:.0f}'[:70] in \
        workers[0].client.get(f"{workers[0].url}/metrics").text


def test_streams_go_on_when_their_worker_dies(run, logs, tls):
    workers = [run(SecureWorker(index, logs, tls, tls.asks_clients)) for index in range(2)]
    for worker in workers:
        worker.wait_ready()
    flags = [*tls.upstream, *tls.upstream_client, "--stream-heartbeat-timeout-ms", 1500]
    gateway = run(SecureGateway(workers, logs, tls, flags))
    gateway.wait_workers(workers)
    bodies = [body_of(index, max_tokens=640) for index in range(8)]
    wanted = in_parallel(lambda body: whole_chat(workers[0].url, body, workers[0].client), bodies, 4)
    streams = [Stream(gateway.url, body) for body in bodies]
    wait_until(lambda: sum(len(stream.times) > 4 for stream in streams) > 4, 60, "streams are under way")
    max(workers, key=lambda worker: worker.load()["running"]).kill()
    for stream, answer in zip(streams, wanted):
        stream.join(90)
        assert (stream.status, stream.error, stream.done) == (200, None, True)
        assert stream.text == answer.text
    assert gateway.metric(RESUMED) >= 1


class FreshConnections(threading.Thread):
    """Asks again and again, each time over a new connection."""

    def __init__(self, url):
        super().__init__(daemon=True)
        self.url, self.count, self.failed, self.stopping = url, 0, [], threading.Event()
        self.start()

    def run(self):
        while not self.stopping.wait(0.02):
            try:
                answer = httpx.get(f"{self.url}/v1/models", timeout=30)
                self.failed += [] if answer.status_code == 200 else [answer.text]
            except httpx.TransportError as error:
                self.failed.append(repr(error))
            self.count += 1

    def stop(self):
        self.stopping.set()
        self.join(60)


def test_certificates_change_under_load(run, logs, tls):
    own = tls.servers.issue("rotated")
    listener = ("--tls.certificate", own[0], "--tls.private-key", own[1])
    workers = [run(SecureWorker(index, logs, tls, listener, SimWorker)) for index in range(2)]
    for worker in workers:
        worker.wait_ready()
    gateway = run(SecureGateway(workers, logs, tls, [*tls.upstream, *listener]))
    gateway.expected_errors = workers[0].expected_errors = ["not_reloaded"]
    gateway.wait_workers(workers)
    programs = [gateway, *workers]
    fresh = FreshConnections(gateway.url)
    with PersonaLoad(gateway.url, starts_per_s=4) as load:
        load.wait_warm(30)
        for count in (1, 2, 3):
            before = [certificate_of(program.port) for program in programs]
            tls.servers.issue("rotated")
            for program, old in zip(programs, before):
                hang_up(program, "reloaded", count)
                assert certificate_of(program.port) != old
            load.wait_warm(len(load.asked) + 10)
        # A pair that does not fit is refused whole, and the last one stays in use.
        now, key = [certificate_of(program.port) for program in programs], own[1].read_text()
        shutil.copy(tls.client[1], own[1])
        for program in programs[:2]:
            said = hang_up(program, "not_reloaded")
            assert f"tls.private_key: {own[1]}" in said and "is not the key of" in said, said
        assert [certificate_of(program.port) for program in programs] == now
        own[1].write_text(key)
        hang_up(gateway, "reloaded", 4)
        load.wait_warm(len(load.asked) + 10)
    fresh.stop()
    assert load.failed() == [] and fresh.failed == []
    figure("failed while certificates changed", f"0 of {len(load.asked)} requests, 0 of {fresh.count} new connections", "0")


def test_clients_without_the_right_certificate_are_refused(run, logs, tls):
    worker = run(SimWorker(0, logs))
    gateway = run(SecureGateway([worker], logs, tls, [*tls.asks_clients]))
    worker.wait_ready()
    gateway.wait_workers([worker])
    wrong = tls.strangers.issue("wrong-client")
    for trust in (tls.servers.trust(), tls.servers.trust(*wrong)):
        with pytest.raises(httpx.TransportError), httpx.Client(verify=trust) as client:
            client.get(f"{gateway.url}/v1/models", timeout=10)
    with httpx.Client(verify=tls.servers.trust(*tls.client)) as client:
        assert post_chat(gateway.url, chat_body("hi", max_tokens=2), client).status_code == 200
    assert gateway.metric('troupe_gateway_tls_handshakes_failed_total{listener="main"}') == 2


def test_a_gateway_is_told_what_it_lacks_for_its_workers(run, logs, tls, tmp_path):
    worker = run(SecureWorker(0, logs, tls, tls.asks_clients, SimWorker))
    worker.wait_ready()
    config = tmp_path / "gateway.yaml"

    def write(**upstream):
        settings = {"worker_urls": [worker.url], "upstream_tls": {key: str(path) for key, path in upstream.items()}}
        config.write_text(json.dumps(settings))  # JSON is YAML

    write(ca=tls.strangers.path)
    wary = run(SecureGateway([], logs, tls, ["--config", config]))
    assert "certificate verify failed" in logged(wary, "worker_state")
    write(ca=tls.servers.path)
    gateway = run(SecureGateway([], logs, tls, ["--config", config]))
    assert "certificate required" in logged(gateway, "worker_state")
    gateway.expected_errors = ["not_reloaded"]
    write(ca=tls.servers.path, certificate=tls.client[0])
    assert "upstream_tls.private_key: is needed with upstream_tls.certificate" in hang_up(gateway, "not_reloaded")
    write(ca=tls.servers.path, certificate=tls.client[0], private_key=tls.client[1])
    for program in (wary, gateway):
        assert "upstream_tls.certificate" in hang_up(program, "reloaded")
        program.wait_workers([worker])
        assert post_chat(program.url, chat_body("hi", max_tokens=2)).status_code == 200


def test_who_disturbs_is_closed_and_disturbs_nobody(run, logs, tls):
    worker = run(SimWorker(0, logs))
    gateway = run(SecureGateway([worker], logs, tls, ["--limits.header-timeout-ms", 1500]))
    worker.wait_ready()
    gateway.wait_workers([worker])
    begin = time.monotonic()
    silent = [socket.create_connection(("127.0.0.1", gateway.port)) for _ in range(20)]
    for half in silent[:10]:
        half.sendall(b"\x16\x03\x01\x02\x00")  # a record's head, and nothing more
    assert post_chat(gateway.url, chat_body("hi", max_tokens=2)).status_code == 200
    for peer in silent:
        peer.settimeout(20)
        assert peer.recv(1000) == b"" and time.monotonic() - begin > 1.4
        peer.close()
    plain = httpx.get(gateway.url.replace("https", "http") + "/v1/models", timeout=10)
    assert plain.status_code == 400 and "https://" in plain.json()["error"]["message"]
    assert gateway.metric('troupe_gateway_tls_handshakes_failed_total{listener="main"}') == 21


def test_gateways_tell_each_other_over_https(run, logs, tls):
    worker = run(SimWorker(0, logs))
    worker.wait_ready()
    ports = [(free_port(), free_port()) for _ in range(2)]
    peers = ",".join(f"https://127.0.0.1:{metrics}" for _, metrics in ports)
    gateways = [run(SecureGateway([worker], logs, tls, [*tls.upstream, "--metrics-tls", "--gossip.peers", peers], ports=pair)) for pair in ports]
    for gateway in gateways:
        gateway.metrics_url = gateway.metrics_url.replace("http", "https")
        gateway.ready_url = f"{gateway.metrics_url}/readyz"
        gateway.wait_workers([worker])
    for gateway, other in zip(gateways, reversed(gateways)):
        up = f'troupe_gateway_gossip_peer_up{{peer="127.0.0.1:{other.metrics_port}"}}'
        wait_until(lambda: gateway.metric(up) == 1, 20, "they hear each other")


def test_check_config_checks_the_pair(logs, tls):
    def check(program, *flags):
        command = [BIN / program, "--check-config", *flags]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=30)
        return done.returncode, done.stderr

    gateway, worker = ["troupe-gateway", "--worker-urls", "https://127.0.0.1:1"], ["troupe-worker", "--device", "sim"]
    for program in (gateway, worker):
        assert check(*program, *tls.listener) == (0, "")
        code, said = check(*program, "--tls.certificate", tls.server[0], "--tls.private-key", tls.client[1])
        assert code == 2 and f"tls.private_key: {tls.client[1]}" in said, said
        code, said = check(*program, "--tls.certificate", logs / "nowhere.pem", "--tls.private-key", tls.server[1])
        assert code == 2 and "tls.certificate" in said and "No such file" in said, said
        code, said = check(*program, "--tls.client-ca", tls.clients.path)
        assert code == 2 and "tls.certificate: is needed with tls.client_ca" in said, said
    code, said = check(*gateway, "--upstream-tls.ca", tls.server[1])
    assert code == 2 and "upstream_tls.ca" in said and "holds no certificate" in said, said
    code, said = check(*gateway, "--metrics-tls")
    assert code == 2 and "metrics_tls" in said, said
    code, said = check(*worker, *tls.listener, "--advertise-url", "http://10.0.0.7:31000")
    assert code == 2 and "advertise-url" in said and "https://" in said, said


def test_gateways_and_workers_meet_over_https_in_an_etcd_over_https(request, run, logs, tls):
    ports = free_port(), free_port()
    url = f"https://127.0.0.1:{ports[0]}"
    # Its JSON gateway is a client of its own, with the server's certificate.
    (logs / "both.pem").write_text(tls.clients.path.read_text() + tls.servers.path.read_text())
    etcd = Program("etcd-tls", [
        "etcd", "--name", "m0", "--data-dir", logs / "etcd-tls", "--logger", "zap", "--log-level", "error",
        "--listen-client-urls", url, "--advertise-client-urls", url, "--cert-file", tls.server[0], "--key-file", tls.server[1],
        "--client-cert-auth", "--trusted-ca-file", logs / "both.pem",
        "--listen-peer-urls", f"http://127.0.0.1:{ports[1]}", "--initial-advertise-peer-urls", f"http://127.0.0.1:{ports[1]}",
        "--initial-cluster", f"m0=http://127.0.0.1:{ports[1]}", "--initial-cluster-state", "new"], logs, f"{url}/health")
    request.addfinalizer(etcd.kill)
    etcd.client = httpx.Client(verify=tls.servers.trust(*tls.client))
    etcd.wait_ready(60)
    shared = ("--etcd-endpoints", url, "--etcd-lease-ttl-secs", TTL_SECS, "--etcd-tls.ca", tls.servers.path, "--etcd-tls.certificate",
              tls.client[0], "--etcd-tls.private-key", tls.client[1])
    worker = run(SecureWorker(0, logs, tls, [*tls.asks_clients, *shared], SimWorker))
    gateway = run(SecureGateway([], logs, tls, ["--state", "etcd", *shared, *tls.upstream, *tls.upstream_client]))
    worker.wait_ready()
    gateway.wait_workers([worker])
    assert post_chat(gateway.url, chat_body("hi", max_tokens=2)).status_code == 200

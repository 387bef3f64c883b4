"""Clients that mean harm, or are merely broken, at the gateway and at a worker directly. Each gets an error or a closed
connection; meanwhile a neighbour's requests go on, and afterwards nothing is left behind."""
import contextlib
import gzip
import json
import os
import resource
import socket
import threading
import time

import httpx
import pytest

from fleet import Fleet, chat_body, post_chat, wait_until

NEIGHBOUR = [{"role": "system", "content": "You are playing Bo.\nName: Bo\nHome: Lipora"}, {"role": "user", "content": "Hello!"}]
# A neighbour's short request takes some 50 ms alone on two cores; five seconds is far from that and far from a time-out.
NEIGHBOUR_SECONDS_MAX = 5


@pytest.fixture(scope="module")
def fleet(logs):
    # Short time-outs in the worker, so that its own patience can be seen to end.
    flags = ["--limits.header-timeout-ms", 1500, "--limits.body-timeout-ms", 1500, "--limits.write-timeout-ms", 2000]
    with Fleet(logs, workers=1, worker_flags=flags) as running:
        yield running


@pytest.fixture(params=["gateway", "worker"])
def port(request, fleet):
    return fleet.gateway.port if request.param == "gateway" else fleet.workers[0].port


@pytest.fixture(autouse=True)
def neighbour(fleet):
    """Asks all the time while a test runs; every answer must be right and in time. Afterwards the worker must be idle."""
    stop, slowest, failures = threading.Event(), [0.0], []

    def go_on():
        with httpx.Client(timeout=30) as client:
            while not stop.is_set():
                begin = time.monotonic()
                try:
                    response = post_chat(fleet.url, chat_body(NEIGHBOUR, max_tokens=8), client)
                    if response.status_code != 200:
                        failures.append(response.text)
                except httpx.HTTPError as error:
                    failures.append(repr(error))
                slowest[0] = max(slowest[0], time.monotonic() - begin)
                time.sleep(0.02)

    thread = threading.Thread(target=go_on)
    thread.start()
    yield
    stop.set()
    thread.join(60)
    assert not failures, failures[:3]
    assert slowest[0] < NEIGHBOUR_SECONDS_MAX, f"a neighbour waited {slowest[0]:.1f} s"
    wait_until(lambda: fleet.running() == 0, 5, "nothing is left behind")


@contextlib.contextmanager
def connect(port):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        yield connection


def head(port, length, *more):
    lines = ["POST /v1/chat/completions HTTP/1.1", f"Host: 127.0.0.1:{port}", "Content-Type: application/json",
             f"Content-Length: {length}", *more]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def read_to_end(connection):
    """What the peer still says before it closes (a reset counts as closing)."""
    said = b""
    with contextlib.suppress(ConnectionError):
        while chunk := connection.recv(65536):
            said += chunk
    return said


def status_of(said):
    return int(said.split(b" ", 2)[1]) if said else None


def send_all(connection, pieces):
    """Until all is sent or the peer has had enough; the bytes that went out."""
    sent = 0
    with contextlib.suppress(ConnectionError, TimeoutError):
        for piece in pieces:
            connection.sendall(piece)
            sent += len(piece)
    return sent


def test_a_gigabyte_announced_is_refused_before_it_is_read(port):
    with connect(port) as c:
        c.sendall(head(port, 1 << 30))
        begin = time.monotonic()
        said = read_to_end(c)
        assert status_of(said) == 413 and b'"error"' in said
        assert time.monotonic() - begin < 3


@pytest.fixture
def memory_kept(fleet):
    """Whatever a test sends, neither program grows by more than a few bodies of the largest allowed size (16 MB)."""
    def peaks():
        return [int(next(line for line in open(f"/proc/{p.pid}/status") if line.startswith("VmHWM")).split()[1]) >> 10
                for p in fleet.programs()]
    before = peaks()
    yield
    assert all(b - a < 64 for a, b in zip(before, peaks())), f"MB before {before}, after {peaks()}"


def read_while_sending(connection, pieces):
    """What the peer says; it may say it, and close, long before all is sent."""
    said = []
    reader = threading.Thread(target=lambda: said.append(read_to_end(connection)))
    reader.start()
    send_all(connection, pieces)
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
    reader.join(20)
    assert not reader.is_alive(), "the connection stays open"
    return said[0]


# Refused bodies are read on and thrown away for a few seconds, so that the client gets to see why.
def test_a_gigabyte_sent_is_refused_and_not_kept(port, memory_kept):
    with connect(port) as c:
        said = read_while_sending(c, [head(port, 1 << 30)] + [b"x" * (1 << 20)] * 1024)
        assert status_of(said) == 413 and b'"error"' in said


def test_a_gigabyte_in_chunks_is_refused_and_not_kept(port, memory_kept):
    start = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    with connect(port) as c:
        said = read_while_sending(c, [start] + [b"100000\r\n" + b"x" * 0x100000 + b"\r\n"] * 1024)
        assert status_of(said) == 413 and b'"error"' in said


def test_a_header_bomb_is_refused(port):
    with connect(port) as c:
        send_all(c, [f"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n".encode()] +
                 [f"X-Bomb-{i}: {'x' * 1000}\r\n".encode() for i in range(2000)])
        assert status_of(read_to_end(c)) in (None, 400, 431)


@pytest.mark.parametrize("request_text", [
    "GET /v1/models HTTP/1.1\r\n\r\n",  # no Host
    "GET /v1/models HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "GET /v1/models HTTP/1.1\r\nHost: a\r\nX: 1\r\n folded\r\n\r\n",
    "\x16\x03\x01\x02\x00 this is TLS\r\n\r\n",
], ids=["no-host", "two-hosts", "two-lengths", "length-and-chunked", "xchunked", "folded", "tls"])
def test_ambiguous_requests_are_refused(port, request_text):
    with connect(port) as c:
        c.sendall(request_text.encode("latin-1"))
        assert status_of(read_to_end(c)) in (None, 400, 501)


def test_a_client_of_one_byte_a_second_is_cut_off(fleet):
    with connect(fleet.workers[0].port) as c:
        begin = time.monotonic()
        send_all(c, (bytes([byte]) for byte in slowly(b"GET /v1/models HTTP/1.1\r\nX-Slow: " + b"x" * 60)))
        assert time.monotonic() - begin < 8, "the whole head has a time-out, not each byte"
        assert status_of(read_to_end(c)) in (None, 408)


def test_a_body_of_one_byte_a_second_is_cut_off(fleet):
    with connect(fleet.workers[0].port) as c:
        begin = time.monotonic()
        c.sendall(head(fleet.workers[0].port, 100))
        send_all(c, (bytes([byte]) for byte in slowly(b"x" * 60)))
        assert time.monotonic() - begin < 8
        assert status_of(read_to_end(c)) in (None, 408)


def slowly(data):
    for byte in data:
        time.sleep(0.2)
        yield byte


def test_slow_clients_at_the_gateway_hold_nobody_up(fleet):
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connect(fleet.gateway.port)) for _ in range(50)]
        for _ in range(10):
            for c in clients:
                with contextlib.suppress(ConnectionError):
                    c.sendall(b"G")
            time.sleep(0.1)


def test_clients_that_never_read_hold_nobody_up(fleet, port):
    """Each asks for the longest stream there is and takes none of it. At the worker the write time-out ends it; through the
    gateway the stream is short enough to fit the sockets' buffers, or stops there."""
    body = json.dumps(chat_body(NEIGHBOUR, ignore_eos=True, max_tokens=1900, stream=True)).encode()
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            c = stack.enter_context(socket.socket())
            c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            c.connect(("127.0.0.1", port))
            c.sendall(head(port, len(body)) + body)
        wait_until(lambda: fleet.workers[0].load()["running"] >= 4, 10, "the streams run")
        time.sleep(3)


def test_a_client_that_leaves_in_the_middle_of_its_body_is_forgotten(port):
    for _ in range(20):
        with connect(port) as c:
            c.sendall(head(port, 1000) + b'{"model"')


@pytest.mark.parametrize("body", [
    b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 5000 + b"1" + b"}" * 5000, b'{"model":"demo-model","model":"x"}',
    b'{"model":"demo-model","messages":[{"role":"user","content":"x"}],"temperature":NaN}',
    b'{"model":"demo-model","messages":[{"role":"user","content":"\\ud800"}]}', b'"' + b"x" * 1_000_000 + b'"',
], ids=["empty", "brace", "not-utf8", "deep-array", "deep-object", "duplicate", "nan", "lone-surrogate", "long-string"])
def test_bad_json_is_a_bad_request(port, body):
    response = httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", content=body, timeout=10)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert response.json()["error"]["message"]


def test_compressed_bodies_are_taken_within_the_bound(port):
    def ask(body):
        headers = {"content-encoding": "gzip", "content-type": "application/json"}
        return httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", content=body, headers=headers, timeout=60).status_code

    body = json.dumps(chat_body(NEIGHBOUR, max_tokens=1)).encode()
    assert ask(gzip.compress(body)) == 200
    assert ask(gzip.compress(b" " * (32 << 20))) == 413
    assert ask(body) == 400


def test_targets_in_absolute_form_are_taken(port):
    body = json.dumps(chat_body(NEIGHBOUR, max_tokens=1))
    for authority, status in ((f"127.0.0.1:{port}", b"200"), ("elsewhere:1", b"400")):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as peer:
            peer.sendall(f"POST http://{authority}/v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
                         f"content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode())
            assert peer.recv(4096).startswith(b"HTTP/1.1 " + status)


def test_idle_connections_leave_files_for_probes(fleet):
    """Each of them makes room for the next one, however many come; the last descriptors stay free."""
    pid, limit, kept = fleet.gateway.pid, 256, 64
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]))
    try:
        idle = []
        for _ in range(500):
            idle.append(socket.create_connection(("127.0.0.1", fleet.gateway.port), timeout=10))
            idle[-1].sendall(b"GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n")
            assert idle[-1].recv(4096).startswith(b"HTTP/1.1 200"), len(idle)
        assert len(os.listdir(f"/proc/{pid}/fd")) <= limit - kept + 2
        assert httpx.get(f"{fleet.gateway.metrics_url}/livez", timeout=5).status_code == 200
    finally:
        for connection in idle:
            connection.close()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)

"""--access-log: a line for every request whatever becomes of it, none that a client has written, and none lost when the file is
rotated."""
import contextlib
import os
import re
import signal
import socket
import subprocess

import httpx

from fleet import BIN, SimWorker, chat_body, free_port, in_parallel, post_chat, wait_until
from test_api_keys import keys_file
from test_record import fleet_metrics
from test_sim import FAST, metric, persona

CLIENT = httpx.Client(timeout=60)
FIELD = re.compile(r'([a-z_]+)=("(?:[^"\\]|\\.)*"|[^ "=]*)…?(?: |$)')  # … where it was too long


def parse(line):
    """Every byte of a line belongs to a field."""
    fields, at = {}, 0
    while at < len(line):
        match = FIELD.match(line, at)
        assert match, line[at:]
        assert match[1] not in fields, line
        fields[match[1]], at = match[2].strip('"'), match.end()
    return fields


def lines_of(*paths):
    # splitlines() knows more ends of lines than '\n'.
    return [parse(line) for path in paths if path.exists() for line in path.read_text("utf-8").splitlines()]


def received(fleet):
    return metric(fleet_metrics(fleet), "troupe_gateway_requests_received_total")


def ask(fleet, index, **headers):
    messages = [persona(index % 5, 20), {"role": "user", "content": f"The secret of guest {index} is xyzzy"}]
    return post_chat(fleet.url, chat_body(messages, max_tokens=4), CLIENT, headers={"authorization": "Bearer right-key", **headers})


def raw(fleet, text):
    with socket.create_connection(("127.0.0.1", fleet.gateway.port), timeout=5) as peer, contextlib.suppress(ConnectionError):
        peer.sendall(text)
        while peer.recv(65536):
            pass


def test_every_request_has_its_line_and_no_other(start, tmp_path):
    keys, log = tmp_path / "keys.yaml", tmp_path / "access.log"
    keys.write_text(keys_file(writers=("right-key", {})))
    fleet = start(workers=2, worker_class=SimWorker, worker_flags=FAST, gateway_flags=("--access-log", log, "--api-keys", keys))
    before = received(fleet)
    assert [answer.status_code for answer in in_parallel(lambda index: ask(fleet, index), range(60), 8)] == [200] * 60
    assert post_chat(fleet.url, chat_body("Hello"), headers={"authorization": "Bearer wrong-key"}).status_code == 401
    assert httpx.post(f"{fleet.url}/v1/completions", content="no JSON", headers={"authorization": "Bearer right-key"}).status_code == 400
    assert ask(fleet, 1, **{"x-request-timeout-ms": "soon"}).status_code == 400
    with contextlib.suppress(httpx.TimeoutException):  # its client goes away
        post_chat(fleet.url, chat_body("Hello", max_tokens=8000), headers={"authorization": "Bearer right-key"}, timeout=0.05)
    forged = "ts=2026-01-01T00:00:00.000Z level=info event=request status=200"
    httpx.get(f"{fleet.url}/%0A{forged}?x", headers={"x-request-id": f"a b {forged}", "user-agent": forged})
    raw(fleet, f"GET /a\"=\x0b HTTP/1.1\r\nhost: h\r\n\r\n".encode())
    raw(fleet, b"GET / HTTP/1.1\r\nhost: h\r\n x: folded\r\n\r\n")
    # A model's name is any text.
    messages = [{"role": "user", "content": "Hi"}]
    assert ask_model(fleet, f"x\n{forged}\u0085{forged}\u2028{forged}", messages).status_code == 404

    requests = lambda: [line for line in lines_of(log) if line["event"] == "request"]
    wait_until(lambda: len(requests()) == received(fleet) - before and len(lines_of(log)) > len(requests()) + 1, 20, "all lines are there")
    lines = requests()
    assert len(lines) == 60 + 6, [line for line in lines if line["status"] != "200"]
    assert {line["event"] for line in lines_of(log)} == {"request", "malformed"}
    ended = [(line["status"], line["end"], line["why"]) for line in lines]
    assert ended.count(("200", "answered", "-")) == 60
    assert ("401", "refused", "invalid_api_key") in ended and ("499", "cancelled", "client_gone") in ended
    assert len({line["request"] for line in lines}) == len(lines)
    for line in lines:
        assert line["client"].startswith("127.0.0.1:") and float(line["ms"]) >= 0
        if line["status"] == "200":
            assert line["key"] == "writers" and line["branch"] in ("home", "copy", "session", "least") and line["attempts"] == "1"
            assert int(line["prompt"]) >= int(line["cached"]) >= 0 and int(line["completion"]) == 4
            assert 0 < float(line["own_ms"]) <= float(line["first_byte_ms"]) <= float(line["ms"])
    text = log.read_text("utf-8")
    assert "xyzzy" not in text and "right-key" not in text and "wrong-key" not in text
    assert os.stat(log).st_mode & 0o777 == 0o600


def ask_model(fleet, model, messages):
    return post_chat(fleet.url, {"model": model, "messages": messages}, headers={"authorization": "Bearer right-key"})


def test_a_rotated_log_loses_nothing(start, tmp_path):
    log, old = tmp_path / "access.log", tmp_path / "access.log.1"
    fleet = start(workers=1, worker_class=SimWorker, worker_flags=FAST, gateway_flags=("--access-log", log))
    in_parallel(lambda index: ask(fleet, index), range(20), 4)
    wait_until(lambda: len(lines_of(log)) == 20, 20, "the lines are there")
    log.rename(old)
    fleet.gateway.process.send_signal(signal.SIGHUP)
    wait_until(log.exists, 20, "the log is opened anew")
    in_parallel(lambda index: ask(fleet, index), range(20), 4)
    wait_until(lambda: len(lines_of(log, old)) == 40, 20, "the lines are there")
    assert len(lines_of(log)) >= 20 and received(fleet) == 40


def test_on_stderr_it_is_part_of_the_log_line_by_line(start):
    fleet = start(workers=1, worker_class=SimWorker, worker_flags=FAST, gateway_flags=("--access-log", "stderr", "--log-level", "debug"))
    in_parallel(lambda index: ask(fleet, index), range(40), 4)
    of_requests = lambda: [line for line in lines_of(fleet.gateway.log_path) if line["event"] == "request"]
    wait_until(lambda: len(of_requests()) == 40, 20, "the lines are there")
    assert "listening" in [line["event"] for line in lines_of(fleet.gateway.log_path)]


def test_a_path_that_is_none_is_refused_by_name():
    flags = [BIN / "troupe-gateway", "--port", free_port(), "--metrics-port", free_port(), "--worker-urls", "http://127.0.0.1:1"]
    done = subprocess.run([*map(str, flags), "--access-log", "/nowhere/access.log"], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1 and "access_log: /nowhere/access.log" in done.stderr
    done = subprocess.run([*map(str, flags), "--access-log", ""], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2 and "access_log" in done.stderr

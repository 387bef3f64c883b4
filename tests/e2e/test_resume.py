"""A worker dies or hangs while it streams: its streams go on at another, and every client gets the very text that it would have
got, greedy or seeded. Where nobody can go on, the client is told so in the stream."""
import collections
import http.server
import json
import os
import re
import signal
import threading
import time

import httpx
import pytest

from figures import figure
from fleet import Gateway, MODEL, chat_body, in_parallel, wait_until, whole_chat

STREAMS, WORKERS = 18, 3
RESUMED = 'troupe_gateway_resumes_total{result="resumed"}'
# A busy machine may hold a worker up for longer than the default, which is 400.
HEARTBEAT_MS = int(os.environ.get("TROUPE_HEARTBEAT_MS", 1500))
FLAGS = ("--stream-heartbeat-timeout-ms", HEARTBEAT_MS, "--log-level", "debug")


def body_of(index, words=1, **fields):
    """Half of them greedy, half seeded; nine personas."""
    card = (f"You are playing Ruvo{index % 9}.\nName: Ruvo{index % 9}\nRole: clock maker\nHome: Lipora\nCharacter: shy, brave\n"
            + "Likes: plum wine. Dislikes: wet boots. " * words)
    messages = [{"role": "system", "content": card}, {"role": "user", "content": f"Tell me story number {index}."}]
    sampling = {"temperature": 0} if index % 2 else {"temperature": 0.9, "seed": 1000 + index}
    return {**chat_body(messages, max_tokens=160, ignore_eos=True), **sampling, **fields}


class Stream(threading.Thread):
    """Reads one to its end."""

    def __init__(self, url, body):
        super().__init__(daemon=True)
        self.url, self.body = url, {**body, "stream": True, "stream_options": {"include_usage": True}}
        self.text, self.times, self.status, self.done, self.error, self.usage = "", [], None, False, None, None
        self.start()

    def run(self):
        try:
            with httpx.stream("POST", f"{self.url}/v1/chat/completions", json=self.body, timeout=60) as response:
                self.status = response.status_code
                for line in response.iter_lines():
                    self.take(line)
        except httpx.TransportError as error:
            self.error = repr(error)

    def take(self, line):
        assert "troupe" not in line and ": hb" not in line, line
        if line == "data: [DONE]":
            self.done = True
        elif line.startswith("data: "):
            chunk = json.loads(line[len("data: "):])
            self.times.append(time.monotonic())
            self.error = chunk.get("error", self.error)
            self.usage = chunk.get("usage") or self.usage
            for choice in chunk.get("choices", []):
                self.text += choice["delta"].get("content") or ""

    def worst_pause(self):
        return max((b - a for a, b in zip(self.times, self.times[1:])), default=0)


def metric(fleet, line):
    found = [row for row in httpx.get(f"{fleet.gateway.metrics_url}/metrics").text.splitlines() if row.startswith(line + " ")]
    return float(found[0].split()[-1]) if found else 0


def started(start, **fields):
    """A fleet whose gateway knows all workers for ours, and that they beat."""
    fleet = start(workers=WORKERS, gateway_flags=FLAGS, **fields)

    def all_ours():
        return all(w["load"] for w in httpx.get(f"{fleet.gateway.metrics_url}/admin/workers").json()["workers"])
    wait_until(all_ours, 30, "the gateway has every worker's load")
    return fleet


def uncut(fleet, bodies):
    return in_parallel(lambda pair: whole_chat(fleet.workers[pair[0] % WORKERS].url, pair[1]), list(enumerate(bodies)), 4)


def check(fleet, streams, wanted):
    for stream in streams:
        stream.join(90)
        assert not stream.is_alive(), "a stream hangs"
    for stream, answer in zip(streams, wanted):
        assert (stream.status, stream.error, stream.done) == (200, None, True)
        assert stream.text == answer.text
        assert stream.usage["completion_tokens"] == answer.usage["completion_tokens"]
        assert stream.usage["prompt_tokens"] == answer.usage["prompt_tokens"]
    assert metric(fleet, "troupe_gateway_broken_answers_total") == 0
    pause = max(stream.worst_pause() for stream in streams)
    figure(f"worst pause of {len(streams)} streams, all with the right text, {metric(fleet, RESUMED):.0f} resumed", f"{pause:.3f} s",
           f"< {HEARTBEAT_MS / 1e3 + 3:g} s")
    assert pause < HEARTBEAT_MS / 1e3 + 3


def most_running(fleet):
    with httpx.Client(timeout=5) as client:  # a client for each would take as long as some of the streams
        return max(fleet.workers, key=lambda worker: client.get(f"{worker.url}/v1/load").json()["running"])


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
def test_streams_go_on_where_their_worker_stops(start, end):
    fleet = started(start)
    bodies = [body_of(index, max_tokens=640) for index in range(STREAMS)]  # of 160 most are over before one is chosen
    wanted = uncut(fleet, bodies)
    streams = [Stream(fleet.url, body) for body in bodies]
    wait_until(lambda: sum(len(stream.times) > 4 for stream in streams) > 4, 60, "streams are under way")
    victim = most_running(fleet)
    os.kill(victim.pid, end)
    try:
        check(fleet, streams, wanted)
        assert metric(fleet, RESUMED) >= 1
    finally:
        victim.kill()


def test_answers_without_banned_strings_go_on_too(start):
    """A worker takes tokens back where a string begins that is banned; the one that goes on comes to the same text."""
    fleet = started(start)
    bodies = [body_of(index, max_tokens=400) for index in range(STREAMS // 2)]
    for body, answer in zip(bodies, uncut(fleet, bodies)):
        words = collections.Counter(re.findall(r"[A-Za-z]{4,}", answer.text))
        body["banned_strings"] = [word.upper() for word, _ in words.most_common(3)]
    wanted = uncut(fleet, bodies)
    for body, answer in zip(bodies, wanted):
        assert body["banned_strings"] and answer.usage["completion_tokens"] == 400
        assert not [word for word in body["banned_strings"] if word in answer.text.upper()]
    streams = [Stream(fleet.url, body) for body in bodies]
    wait_until(lambda: sum(len(stream.times) > 4 for stream in streams) > 4, 60, "streams are under way")
    most_running(fleet).kill()
    check(fleet, streams, wanted)
    assert metric(fleet, RESUMED) >= 1


def test_a_worker_that_hangs_before_it_answers_costs_no_request(start):
    fleet = started(start)
    bodies = [body_of(index, words=40, max_tokens=24) for index in range(STREAMS)]
    wanted = uncut(fleet, bodies)
    warm = [Stream(fleet.url, body) for body in bodies]
    for stream in warm:
        stream.join(90)
    victim = fleet.workers[0]
    streams = [Stream(fleet.url, body) for body in bodies[:STREAMS // 2]]
    os.kill(victim.pid, signal.SIGSTOP)  # some read, some compute their prompt, some have begun
    streams += [Stream(fleet.url, body) for body in bodies[STREAMS // 2:]]
    try:
        check(fleet, streams, wanted)
    finally:
        os.kill(victim.pid, signal.SIGCONT)


def test_two_workers_die_one_after_the_other(start):
    fleet = started(start)
    bodies = [body_of(index, max_tokens=240) for index in range(8)]
    wanted = uncut(fleet, bodies)
    streams = [Stream(fleet.url, body) for body in bodies]
    wait_until(lambda: all(len(stream.times) > 4 for stream in streams), 60, "streams are under way")
    fleet.workers[0].kill()
    wait_until(lambda: all(len(stream.times) > 60 or stream.done for stream in streams), 60, "streams go on")
    fleet.workers[1].kill()
    check(fleet, streams, wanted)


class Foreign(http.server.BaseHTTPRequestHandler):
    """An OpenAI-like server that dies in mid-stream."""

    def do_GET(self):
        known = self.path == "/v1/models"
        body = json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]} if known else {}).encode()
        self.send_response(200 if known else 404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        assert "x-troupe-ids" not in self.headers
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", "1000")
        self.end_headers()
        chunk = {"id": "a", "choices": [{"index": 0, "delta": {"content": "Once"}, "finish_reason": None}]}
        self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.close_connection = True

    def log_message(self, *args):
        pass


def test_where_nobody_can_go_on_the_client_is_told(logs):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Foreign)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    gateway = Gateway([f"http://127.0.0.1:{server.server_port}"], logs)
    try:
        gateway.wait_ready()
        wait_until(lambda: httpx.get(f"{gateway.url}/health").status_code == 200, 15, "the worker is known")
        stream = Stream(gateway.url, body_of(1))
        stream.join(30)
        assert (stream.status, stream.text, stream.done) == (200, "Once", False)
        assert "broke off before the answer was complete" in stream.error["message"]
    finally:
        gateway.stop()
        server.shutdown()

"""A started stream gone on with by another worker (x-troupe-ids, troupe_resume): wherever it is cut, what comes then is what
would have come, to the chunk. And the heartbeats by which a worker that computes is told from one that hangs."""
import json
import math
import signal
import time

import httpx
import pytest

from fleet import MODEL, Fleet, SimWorker

CARD = ("You are playing Ruvo Tamek.\nName: Ruvo Tamek\nRole: clock maker\nAge: 47\nHome: Lipora\nCharacter: shy, brave\n"
        "Likes: plum wine\nDislikes: wet boots\nBest friend: Dazin\nCompanion: a tame fox\nDream: to open a small inn\n"
        "Always answer the user in character.")
MESSAGES = [{"role": "system", "content": CARD}, {"role": "user", "content": "Tell me a story about your friend."}]
CLIENT = httpx.Client(timeout=60)  # one for all: to make one costs more than a stream
CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"
SHAPE = {"model": MODEL, "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 40, "ignore_eos": True}


def chat(**fields):
    return {**SHAPE, "messages": MESSAGES, **fields}


def plain(**fields):
    return {**SHAPE, "prompt": "Once upon a time", **fields}


def path_of(body):
    return CHAT if "messages" in body else PLAIN


class Stream:
    """What was read of a stream; `stop(self)` true: no further."""

    def __init__(self, worker, body, stop=lambda stream: False):
        self.chunks, self.usage, self.done, self.beats, self.times = [], None, False, 0, []
        try:
            self._read(worker, body, stop)
        except httpx.TransportError:
            assert not self.done

    def _read(self, worker, body, stop):
        with CLIENT.stream("POST", f"{worker.url}{path_of(body)}", json=body, headers={"x-troupe-ids": "1"}) as response:
            assert response.status_code == 200, response.read()
            for line in response.iter_lines():
                self.times.append(time.monotonic())
                self.beats += line == ": hb"
                if line == "data: [DONE]":
                    self.done = True
                elif line.startswith("data: "):
                    assert not self.done
                    self._take(json.loads(line[len("data: "):]))
                if stop(self):
                    return

    def _take(self, chunk):
        assert "error" not in chunk, chunk
        if chunk["choices"]:
            chunk["troupe"].pop("cached_tokens", None)  # the other worker may have more
            self.chunks.append(chunk)
        else:
            self.usage = chunk["usage"]

    @property
    def ids(self):
        return [id for chunk in self.chunks for id in chunk["troupe"]["ids"]]

    @property
    def text(self):
        choices = [chunk["choices"][0] for chunk in self.chunks]
        return "".join(choice["text"] if "text" in choice else choice["delta"].get("content", "") for choice in choices)

    @property
    def finish(self):
        return self.chunks[-1]["choices"][0]["finish_reason"]

    @property
    def counts(self):
        return {name: count for name, count in self.usage.items() if name != "prompt_tokens_details"}


def resumed(body, stream, count=None):
    """The body that goes on behind the first `count` chunks."""
    chunks = stream.chunks[:count]
    first = stream.chunks[0]
    return {**body, "troupe_resume": {"ids": [id for chunk in chunks for id in chunk["troupe"]["ids"]],
                                      "seed": first["troupe"]["seed"], "id": first["id"], "created": first["created"]}}


def close_to(a, b):
    """Equal, but for the last digits of floats: a prompt's step adds up in another order than a token's."""
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-3)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(close_to(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(close_to, a, b))
    return a == b


def check_every_cut(workers, body, same=close_to):
    """The uncut stream, gone on with behind each of its chunks."""
    uncut = Stream(workers[0], body)
    assert uncut.done and uncut.finish
    for count in range(1, len(uncut.chunks)):
        rest = Stream(workers[1], resumed(body, uncut, count))
        assert rest.done
        assert rest.chunks[0]["troupe"].pop("seed") == uncut.chunks[0]["troupe"]["seed"]
        assert same(rest.chunks, uncut.chunks[count:]), f"cut behind {count} chunks: {rest.text!r} of {uncut.text!r}"
        assert rest.counts == uncut.counts
    rest = Stream(workers[1], resumed(body, uncut))
    assert rest.done and (len(rest.chunks), rest.text, rest.finish, rest.counts) == (1, "", uncut.finish, uncut.counts)
    return uncut


@pytest.fixture(scope="module")
def workers(logs):
    with Fleet(logs, workers=2, gateway=False) as fleet:
        yield fleet.workers


@pytest.fixture(scope="module")
def sims(logs):
    with Fleet(logs, workers=2, gateway=False, worker_class=SimWorker, worker_flags=("--sim-speed", 20)) as fleet:
        yield fleet.workers


@pytest.mark.parametrize("body", [
    chat(temperature=0),
    chat(temperature=0, ignore_eos=False, max_tokens=200),
    chat(temperature=1.2, seed=7),
    chat(temperature=1, top_p=0.9, top_k=40, min_p=0.02),
    chat(temperature=0.7, seed=3, repetition_penalty=1.3, presence_penalty=0.8, frequency_penalty=0.9),
    chat(temperature=1.5, seed=-5, logprobs=True, top_logprobs=2),
    plain(temperature=0),
    plain(temperature=1.3, seed=2**64 - 1, echo=True, logprobs=1),
], ids=["greedy", "to-its-end", "seeded", "no-seed", "penalties", "logprobs", "plain", "echo"])
def test_cut_behind_every_chunk(workers, body):
    check_every_cut(workers, body)


def test_characters_of_several_tokens(workers):
    uncut = check_every_cut(workers, chat(temperature=2, top_p=1, seed=1, max_tokens=60))
    assert any(len(chunk["troupe"]["ids"]) > 1 for chunk in uncut.chunks), "no character is of several tokens"
    assert not uncut.text.isascii()


def test_stop_strings_hold_back_what_is_not_lost(workers):
    body = chat(temperature=0)
    plain_text = Stream(workers[0], body).text
    middle = len(plain_text) // 2
    near_misses = [plain_text[at:at + 9] + "\1" for at in range(0, middle, middle // 5)]
    uncut = check_every_cut(workers, {**body, "stop": [plain_text[middle:middle + 12], *near_misses]})
    assert uncut.finish == "stop" and plain_text.startswith(uncut.text) and len(uncut.text) >= 1
    assert any(len(chunk["troupe"]["ids"]) > 1 for chunk in uncut.chunks), "nothing was held back"


LONG = [*MESSAGES, {"role": "user", "content": "The harbour was empty. " * 60}]


def test_a_sim_workers_stream_goes_on(sims):
    body = chat(messages=LONG)
    uncut = check_every_cut(sims, body, same=lambda a, b: a == b)
    # What was told is cached like the prompt: of both only what fills no block is computed again.
    before = sims[1].load()["work_tokens_total"]
    assert Stream(sims[1], resumed(body, uncut, 30)).done
    assert sims[1].load()["work_tokens_total"] - before < 10 + 16


def test_an_answer_as_long_as_its_seed_says_goes_on(sims):
    body = {key: value for key, value in chat(messages=LONG).items() if key not in ("max_tokens", "ignore_eos")}
    uncut = Stream(sims[0], body)
    for count in (1, len(uncut.chunks) // 2 or 1):
        rest = Stream(sims[1], resumed(body, uncut, count))
        assert uncut.text.endswith(rest.text) and (rest.counts, rest.finish) == (uncut.counts, uncut.finish)


def test_worker_dies_in_the_middle(start):
    fleet = start(workers=2, gateway=False)
    first, second = fleet.workers
    body = chat(temperature=1, max_tokens=500)
    uncut = Stream(second, {**body, "seed": 99})

    def kill_at_20(stream):
        if len(stream.chunks) == 20:
            first.kill()
        return False
    begun = Stream(first, {**body, "seed": 99}, kill_at_20)
    assert 20 <= len(begun.chunks) < len(uncut.chunks) and not begun.done
    rest = Stream(second, resumed(body, begun))
    assert begun.text + rest.text == uncut.text
    assert begun.ids + rest.ids == uncut.ids and rest.counts == uncut.counts


def test_heartbeats_while_a_prefill_takes_long(start):
    worker = start(workers=1, gateway=False, worker_class=SimWorker).workers[0]
    worker.set_faults(slow_factor=40)
    stream = Stream(worker, chat(messages=[{"role": "user", "content": "The harbour was empty. " * 200}], max_tokens=1))
    assert stream.done and stream.chunks
    assert stream.beats >= 5
    gaps = [b - a for a, b in zip(stream.times, stream.times[1:])]
    assert max(gaps) < 1, "ten times what is promised"


def test_no_heartbeat_of_a_worker_that_hangs(start):
    worker = start(workers=1, gateway=False, worker_class=SimWorker).workers[0]
    worker.set_faults(stall_s=30)
    with httpx.stream("POST", f"{worker.url}{CHAT}", json=chat(), headers={"x-troupe-ids": "1"},
                      timeout=httpx.Timeout(20, read=3)) as response:
        lines = response.iter_lines()
        assert any(line == ": hb" for line in lines)
        worker.process.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(httpx.ReadTimeout):
                list(lines)
        finally:
            worker.process.send_signal(signal.SIGCONT)

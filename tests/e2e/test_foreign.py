"""Workers that are not ours: llama.cpp's own server with the demo model behind the gateway, which knows of their caches only what it sent
them itself."""
import json
import pathlib
import sys

import httpx
import pytest

from figures import figure
from fleet import (MODEL, MODEL_DIR, Gateway, Program, Worker, chat_body, free_port, in_parallel, post_chat, route_decision, stream_chat,
                   wait_until, whole_chat)

SERVER = pathlib.Path(__file__).with_name("llama_server.py")


class LlamaServer(Program):
    def __init__(self, index, log_dir):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, SERVER, MODEL_DIR, pathlib.Path(log_dir) / "demo.gguf", self.port, MODEL]
        super().__init__(f"llama-{index}-{self.port}", command, log_dir, f"{self.url}/health")


class ForeignFleet:
    def __init__(self, logs, ours=0):
        self.workers = [LlamaServer(index, logs) for index in range(2)] + [Worker(index, logs) for index in range(ours)]
        for worker in self.workers:
            worker.wait_ready(60)
        self.gateway = Gateway([worker.url for worker in self.workers], logs)
        self.gateway.wait_ready()
        wait_until(lambda: all(worker["models"] for worker in self.known()), 20, "the gateway knows every worker's model")
        self.url = self.gateway.url

    def known(self):
        return httpx.get(f"{self.gateway.metrics_url}/admin/workers", timeout=5).json()["workers"]

    def stop(self):
        self.gateway.stop()
        for worker in self.workers:
            worker.kill() if isinstance(worker, LlamaServer) else worker.stop()


@pytest.fixture
def foreign(logs):
    fleets = []

    def start(**kwargs):
        fleets.append(ForeignFleet(logs, **kwargs))
        return fleets[-1]
    yield start
    for fleet in fleets:
        fleet.stop()


def card(index):
    return {"role": "system", "content": f"You are playing Ruvo{index}. Name: Ruvo{index}. Role: clock maker. Home: Lipora. " + "Likes plum wine. " * 30}


def turn(index, number=0):
    return [card(index), {"role": "user", "content": f"What do you like best, and why? ({number})"}]


def cached(usage):
    return usage["prompt_tokens_details"]["cached_tokens"]


def test_theirs_answer_as_ours_and_personas_come_back_to_their_cache(foreign):
    fleet = foreign(ours=1)
    own = fleet.workers[-1]
    bodies = [chat_body(turn(index), max_tokens=16) for index in range(6)]
    wanted = [whole_chat(own.url, body).text for body in bodies]
    # The same weights in two engines: bfloat16 there, float32 here. Some of these short greedy answers may part; most must not.
    for ask in (whole_chat, stream_chat):
        answers = [ask(fleet.url, body) for body in bodies]
        assert all(answer.text for answer in answers)
        assert sum(answer.text == text for answer, text in zip(answers, wanted)) >= 4, (answers, wanted)
    nodes = {answer.node for answer in answers}
    again = [whole_chat(fleet.url, chat_body(turn(index, 1), max_tokens=4)) for index in range(6)]
    # (A probe that a busy machine answers late may send one of them elsewhere.)
    assert sum(later.node == answer.node for later, answer in zip(again, answers)) >= 5, \
        f"what a worker computed brings the persona back to it: {[a.node for a in answers]}, then {[a.node for a in again]}"
    response = post_chat(fleet.url, chat_body(turn(0, 2), max_tokens=4))
    expect, actual = int(route_decision(response)["expect"]), cached(response.json()["usage"])
    figure("cached tokens at a foreign worker", f"{actual}, {expect} were expected", "within 2 x")
    assert expect > 0 and actual > 0 and 0.5 * actual <= expect <= 2 * actual
    # Idle workers are equals, of which chance chooses: of six personas all may lie on one, of eighteen hardly.
    more = {whole_chat(fleet.url, chat_body(turn(index), max_tokens=1)).node for index in range(6, 18)}
    assert len(nodes | more) > 1, "personas are spread over three workers"


def test_one_of_theirs_dies_and_no_request_fails(foreign):
    fleet = foreign()
    bodies = [chat_body(turn(index), max_tokens=24) for index in range(8)]
    texts = [answer.text for answer in in_parallel(lambda body: whole_chat(fleet.url, body), bodies, 4)]
    fleet.workers[0].kill()
    for _ in range(3):
        again = in_parallel(lambda body: whole_chat(fleet.url, body), bodies, 4)
        # Batches differ, and with them the last bits: most texts are as before.
        assert sum(answer.text == text for answer, text in zip(again, texts)) >= 5
    assert {answer.node for answer in again} == {f"127.0.0.1:{fleet.workers[1].port}"}


def test_a_stream_that_theirs_breaks_off_ends_with_an_error(foreign):
    fleet = foreign()
    body = chat_body(turn(1), max_tokens=400, ignore_eos=True, stream=True)
    with httpx.stream("POST", f"{fleet.url}/v1/chat/completions", json=body, timeout=60) as response:
        assert response.status_code == 200
        node = route_decision(response)["node"]
        lines = response.iter_lines()
        for _ in range(6):
            next(lines)
        next(worker for worker in fleet.workers if str(worker.port) in node).kill()
        rest = list(lines)
    assert "data: [DONE]" not in rest
    errors = [json.loads(line[6:])["error"] for line in rest if line.startswith("data: ") and '"error"' in line]
    assert len(errors) == 1 and "broke off before the answer was complete" in errors[0]["message"]

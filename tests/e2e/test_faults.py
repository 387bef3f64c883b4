"""Workers die without a word: later requests are fine, running ones are answered elsewhere or fail at once, none hangs."""
import itertools
import json
import threading
import time

import httpx
import pytest

from figures import figure
from fleet import Worker, chat_body, in_parallel, post_chat, route_decision, wait_until

PERSONA = [{"role": "system", "content": "You are playing Bo.\nName: Bo\nHome: Lipora"}, {"role": "user", "content": "Hello!"}]


def persona(index, question="Hello!"):
    return [{"role": "system", "content": f"You are playing Bo{index}.\nName: Bo{index}\nRole: gardener\nHome: Lipora"},
            {"role": "user", "content": question}]


def ask(fleet, messages, **fields):
    return post_chat(fleet.url, chat_body(messages, max_tokens=16, **fields), timeout=20)


def test_worker_killed_while_idle_costs_nobody_an_answer(start):
    fleet = start(workers=2)
    node = route_decision(ask(fleet, PERSONA))["node"]
    fleet.worker_of_node(node).kill()
    # The very next request, its pooled connection dead: sent to the other worker before a byte went out.
    for attempt in range(5):
        response = ask(fleet, PERSONA)
        assert response.status_code == 200, response.text
        assert route_decision(response)["node"] != node


def test_worker_killed_under_load_costs_nobody_an_answer(start):
    fleet = start(workers=3)
    outcomes, stop = [], threading.Event()

    def stream_until_stopped(index):
        with httpx.Client(timeout=20) as client:
            while not stop.is_set():
                outcomes.append(one_stream(client, fleet, index))

    def one_stream(client, fleet, index):
        """'done', 'refused' (a clean HTTP error) or 'broken' (a started stream that ended with an error)."""
        body = chat_body(persona(index), max_tokens=60, ignore_eos=True, stream=True)
        done = False
        try:
            with client.stream("POST", f"{fleet.url}/v1/chat/completions", json=body) as response:
                if response.status_code != 200:
                    assert json.loads(response.read())["error"]["message"]
                    return "refused"
                for line in response.iter_lines():
                    if line.startswith("data: {") and "error" in json.loads(line[6:]):
                        return "broken"
                    done = done or line == "data: [DONE]"
        except httpx.TimeoutException:
            return "hung"
        except httpx.TransportError:
            return "broken"
        return "done" if done else "cut short without a word"

    threads = [threading.Thread(target=stream_until_stopped, args=(index,), daemon=True) for index in range(12)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(outcomes) >= 24, 30, "load")
    victim = max(fleet.workers, key=lambda w: w.load()["running"])
    assert victim.load()["running"] > 0
    victim.kill()
    at_kill = len(outcomes)
    wait_until(lambda: len(outcomes) >= at_kill + 60, 60, "load goes on")
    stop.set()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads), "a request hangs"
    counts = {outcome: outcomes.count(outcome) for outcome in set(outcomes)}
    figure("whole answers while a worker is killed", f"{counts.get('done', 0)} of {len(outcomes)}", "all")
    assert set(counts) == {"done"}, counts


def test_worker_that_comes_back_is_used_again(start):
    fleet = start(workers=2)
    victim = fleet.workers[0]
    victim.kill()
    assert all(r.status_code == 200 for r in in_parallel(lambda i: ask(fleet, persona(i)), range(8), 8))
    fleet.workers[0] = Worker(0, fleet.log_dir, port=victim.port)
    fleet.workers[0].wait_ready()

    newcomers = itertools.count(100)  # the old ones have a session on the other worker, and stay there

    def used():
        return fleet.worker_of_node(route_decision(ask(fleet, persona(next(newcomers))))["node"]) is fleet.workers[0]
    wait_until(used, 20, "the worker is used again")


def test_without_a_worker_the_gateway_says_so_at_once(start):
    fleet = start(workers=1)
    fleet.workers[0].kill()
    begin = time.monotonic()
    response = ask(fleet, PERSONA)
    assert time.monotonic() - begin < 5
    assert response.status_code in (502, 503), response.text
    assert response.json()["error"]["message"]
    wait_until(lambda: httpx.get(f"{fleet.gateway.metrics_url}/readyz").status_code == 503, 15, "the gateway is not ready")


@pytest.mark.parametrize("stream", [False, True])
def test_worker_that_hangs_is_given_up_at_the_deadline(start, stream):
    """SIGSTOP: the socket stays open and silent."""
    import os
    import signal
    fleet = start(workers=1)
    os.kill(fleet.workers[0].pid, signal.SIGSTOP)
    try:
        begin = time.monotonic()
        response = post_chat(fleet.url, chat_body(PERSONA, stream=stream), timeout=20, headers={"x-request-timeout-ms": "1000"})
        assert time.monotonic() - begin < 5
        assert response.status_code in (503, 504), response.text
    finally:
        os.kill(fleet.workers[0].pid, signal.SIGCONT)

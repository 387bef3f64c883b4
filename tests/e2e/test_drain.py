"""Workers drain, restart and join under load: nobody's request fails, and hits hardly dip, because personas are computed
where their requests are going to be."""
import contextlib
import signal
import time

import httpx
import pytest

from figures import figure
from fleet import Fleet, SimWorker, chat_body, post_chat, route_decision, wait_until
from persona_load import PersonaLoad

WORKERS = 5
WORKER_FLAGS = ("--sim-speed", 4, "--shutdown-notice-secs", 4)
GATEWAY_FLAGS = ("--probe.interval-ms", 100, "--handover.ramp-secs", 3)
WARM_REQUESTS = 300  # every persona is somewhere


def states(fleet):
    workers = httpx.get(f"{fleet.gateway.metrics_url}/admin/workers", timeout=5).json()["workers"]
    return [worker["state"] for worker in workers]


def metric(fleet, name):
    text = httpx.get(f"{fleet.gateway.metrics_url}/metrics", timeout=5).text
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


@pytest.fixture
def fleet(logs):
    with Fleet(logs, workers=WORKERS, worker_class=SimWorker, worker_flags=WORKER_FLAGS, gateway_flags=GATEWAY_FLAGS) as started:
        yield started


def warm_up(load):
    """The hit rate of steady traffic, and when it had been measured."""
    load.wait_warm(WARM_REQUESTS)
    begin = time.monotonic()
    now = load.runs_for(3)
    return load.hit(begin, now), now


def restart(fleet, index):
    old = fleet.workers[index]
    old.process.send_signal(signal.SIGTERM)
    assert old.process.wait(30) == 0, old.log_tail()
    fleet.workers[index] = SimWorker(index, fleet.log_dir, WORKER_FLAGS, port=old.port)
    fleet.workers[index].wait_ready()
    wait_until(lambda: states(fleet) == ["ready"] * WORKERS, 20, "the gateway uses it again")


def test_rolling_restart_costs_no_answer_and_few_hits(fleet):
    with PersonaLoad(fleet.url) as load:
        before, begin = warm_up(load)
        for index in range(WORKERS):
            restart(fleet, index)
        end = load.runs_for(1)
    during, lowest = load.hit(begin, end), load.lowest_hit(begin, end, 2)
    figure(f"rolling restart of {WORKERS} workers in {end - begin:.1f} s",
           f"hits {before:.3f} before, {during:.3f} during (lowest 2 s: {lowest:.3f}); {len(load.failed())} of "
           f"{len(load.between(begin, end))} requests failed; {metric(fleet, 'troupe_gateway_moved_tokens_total'):.0f} tokens computed ahead",
           "5 points at most, 0 failed")
    assert load.failed() == []
    assert during >= before - 0.05


@pytest.mark.parametrize("ahead", [True, False], ids=["ahead", "not ahead"])
def test_a_worker_is_drained_by_an_operator(logs, ahead):
    flags = (*GATEWAY_FLAGS, *(() if ahead else ("--handover.text-bytes", 0)))
    with contextlib.ExitStack() as stack:
        fleet = stack.enter_context(Fleet(logs, workers=3, worker_class=SimWorker, worker_flags=WORKER_FLAGS, gateway_flags=flags))
        load = stack.enter_context(PersonaLoad(fleet.url))
        before, begin = warm_up(load)
        asked_of = lambda worker: [asked for asked in list(load.asked) if f";node=127.0.0.1:{worker.port};" in asked.node]
        drained = max(fleet.workers, key=lambda worker: len(asked_of(worker)))  # it has personas
        answer = httpx.post(f"{fleet.gateway.metrics_url}/admin/workers/127.0.0.1:{drained.port}/drain", timeout=5)
        assert answer.status_code == 200
        assert states(fleet)[fleet.workers.index(drained)] == "draining"
        end = load.runs_for(4)
        load.stop()
        wait_until(lambda: drained.load()["running"] == 0, 20, "it has finished what it had")
        last = max(asked.at for asked in asked_of(drained))
        computed = metric(fleet, 'troupe_gateway_moved_tokens_total{how="computed"}')
    during, lowest = load.hit(begin, end), load.lowest_hit(begin, end, 2)
    figure(f"one of 3 drained, {'' if ahead else 'not '}computed ahead",
           f"hits {before:.3f} before, {during:.3f} in the 4 s after (lowest 2 s: {lowest:.3f}); {len(load.failed())} failed; last request "
           f"there after {last - begin:.2f} s; {computed:.0f} tokens ahead", "5 points at most, 0 failed" if ahead else "0 failed")
    assert load.failed() == []
    assert last < end - 1, "requests still go there"
    assert (computed > 0) == ahead
    if ahead:
        assert during >= before - 0.05


def test_a_conversation_goes_on_where_its_worker_handed_it(logs):
    """Its tokens are computed by another worker while it is quiet, so its next turn finds them."""
    with Fleet(logs, workers=3, worker_class=SimWorker, worker_flags=WORKER_FLAGS, gateway_flags=GATEWAY_FLAGS) as fleet:
        system = {"role": "system", "content": "You are the keeper of the lighthouse. " + "He likes long nights and the sea. " * 40}
        turns = [f"Tell me of night number {n}, as you told the boy of the storm and of the ship that came too near." for n in range(8)]

        def talk(session, messages, turn):
            messages.append({"role": "user", "content": turn})
            answer = post_chat(fleet.url, chat_body(messages, max_tokens=60), headers={"x-session-id": session})
            assert answer.status_code == 200, answer.text
            messages.append(answer.json()["choices"][0]["message"])
            usage = answer.json()["usage"]
            return route_decision(answer)["node"], usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]

        messages, others = [system], [system]
        for turn in turns[:6]:
            node, prompt_tokens, _ = talk("ours", messages, turn)
            talk("theirs", others, turn)
        index = fleet.workers.index(fleet.worker_of_node(node))
        httpx.post(f"{fleet.gateway.metrics_url}/admin/workers/{node}/drain", timeout=5).raise_for_status()
        assert states(fleet)[index] == "draining"
        wait_until(lambda: metric(fleet, "troupe_gateway_moved_conversations_total") >= 1, 20, "what it had has moved")
        next_node, _, cached = talk("ours", messages, turns[6])
    figure("tokens of a conversation found elsewhere, its worker drained", cached, f">= {prompt_tokens}")
    assert next_node != node
    assert cached >= prompt_tokens, "no more than what was there before the last answer"

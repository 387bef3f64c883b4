"""What workers count of every answer is what the gateway knows, to the token: of streams, too, whose clients do not ask for usage."""
import json

import httpx
import pytest

from fleet import PATIENT, SimWorker, Worker, chat_body, wait_until, whole_chat
from test_sim import FAST, metric, persona

DEVICES = pytest.mark.parametrize("worker_class, flags", [(SimWorker, FAST), (Worker, ())], ids=["sim", "cpu"])
ACTUAL, EXPECTED = (f"troupe_gateway_cached_tokens_{which}_total" for which in ("actual", "expected"))


def gateway_metric(fleet, name):
    text = httpx.get(f"{fleet.gateway.metrics_url}/metrics", timeout=5).text
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


def plain_stream(fleet, messages, **fields):
    """As a client reads one that asks for nothing: its bytes, which tell no counts, and its finish reasons."""
    body = chat_body(messages, stream=True, max_tokens=12, ignore_eos=True, **fields)
    with httpx.stream("POST", f"{fleet.url}/v1/chat/completions", json=body, timeout=60) as answer:
        assert answer.status_code == 200, answer.read()
        text = answer.read().decode()
    assert text.endswith("data: [DONE]\n\n")
    for word in ("troupe", "usage", "_tokens", ": hb"):
        assert word not in text
    chunks = [json.loads(line[len("data: "):]) for line in text.splitlines() if line.startswith("data: {")]
    return [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]]


def started(start, worker_class, flags):
    fleet = start(workers=2, worker_class=worker_class, worker_flags=flags, gateway_flags=PATIENT)
    workers = lambda: httpx.get(f"{fleet.gateway.metrics_url}/admin/workers", timeout=5).json()["workers"]
    wait_until(lambda: all(worker["load"] for worker in workers()), 30, "the gateway knows both for ours")
    return fleet


@DEVICES
def test_cached_tokens_of_a_stream_that_tells_no_usage(start, worker_class, flags):
    fleet = started(start, worker_class, flags)
    found = lambda: sum(metric(worker, "vllm:prefix_cache_hits_total") for worker in fleet.workers)
    for turn in range(3):
        for index in range(4):
            before, known = found(), gateway_metric(fleet, ACTUAL)
            assert plain_stream(fleet, [persona(index), {"role": "user", "content": f"What of year {turn}?"}]) == ["length"]
            wait_until(lambda: found() - before == gateway_metric(fleet, ACTUAL) - known, 10, "both count the same")
            if turn > 0:
                assert found() - before >= 64, "the persona was found cached"
    # From the second turn on the gateway knows the persona's length in tokens: it expects what is found, up to the block in
    # which the card ends.
    expected, known = gateway_metric(fleet, EXPECTED), gateway_metric(fleet, ACTUAL)
    plain_stream(fleet, [persona(1), {"role": "user", "content": "And now?"}])
    wait_until(lambda: gateway_metric(fleet, ACTUAL) > known, 10, "it is counted")
    assert abs((gateway_metric(fleet, EXPECTED) - expected) - (gateway_metric(fleet, ACTUAL) - known)) <= 16


@DEVICES
def test_of_several_choices_the_prompt_counts_once(start, worker_class, flags):
    fleet = started(start, worker_class, flags)
    messages = [persona(9), {"role": "user", "content": "What happened?"}]
    whole_chat(fleet.url, chat_body(messages, max_tokens=1))
    usage = whole_chat(fleet.url, chat_body(messages, max_tokens=1)).usage
    known = gateway_metric(fleet, ACTUAL)
    assert plain_stream(fleet, messages, n=3) == ["length"] * 3
    wait_until(lambda: gateway_metric(fleet, ACTUAL) > known, 10, "it is counted")
    assert gateway_metric(fleet, ACTUAL) - known == usage["prompt_tokens_details"]["cached_tokens"] > 64

"""Limits are the fleet's, not each gateway's: two gateways let through what one would, and one alone the whole again."""
import contextlib
import time

import httpx
import pytest

from fleet import Gateway, SimWorker, chat_body, in_parallel, post_chat, wait_until
from ports import free_port
from test_api_keys import keys_file

KEYS = {"crowd": ("crowd", {"requests_at_once": 8}), "steady": ("steady", {"requests_per_s": 20})}


@pytest.fixture
def two_gateways(start, tmp_path):
    file = tmp_path / "keys.yaml"
    file.write_text(keys_file(**KEYS))
    fleet = start(workers=1, gateway=False, worker_class=SimWorker, worker_flags=("--sim-speed", 4))
    ports = [(free_port(), free_port()) for _ in range(2)]
    peers = ",".join(f"http://127.0.0.1:{metrics}" for _, metrics in ports)
    flags = ("--gossip.peers", peers, "--api-keys", file)
    gateways = []
    try:
        for pair in ports:
            gateways.append(Gateway([fleet.workers[0].url], fleet.log_dir, flags, pair))
        for gateway in gateways:
            gateway.wait_ready()
            wait_until(lambda: shared_by(gateway) == 2, 10, "they have heard of each other")
        yield gateways
    finally:
        for gateway in gateways:
            gateway.stop()


def shared_by(gateway):
    lines = httpx.get(f"{gateway.metrics_url}/metrics", timeout=5).text.splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith("troupe_gateway_limits_shared_by "))


def let_in(gateways, count, key="crowd"):
    """How many of so many long streams, asked for at each gateway, begin. All end with this."""
    with contextlib.ExitStack() as stack:
        statuses = []
        for index in range(count):
            for gateway in gateways:
                client = stack.enter_context(httpx.Client(timeout=20))
                body = chat_body(f"Hello {index}", max_tokens=4000, ignore_eos=True, stream=True)
                response = stack.enter_context(client.stream("POST", f"{gateway.url}/v1/chat/completions", json=body,
                                                             headers={"authorization": f"Bearer {key}"}))
                statuses.append(response.status_code)
        return statuses.count(200)


def test_requests_at_once(two_gateways):
    assert let_in(two_gateways, 8) == 8, "four at each"
    first, second = two_gateways
    second.kill()
    seconds = wait_until(lambda: shared_by(first) == 1, 10, "the other one is gone")
    print(f"a dead gateway's part of the limits is the other's after {seconds:.1f} s")
    assert let_in([first], 12) == 8, "the whole"


def test_requests_a_second(two_gateways):
    begin, seconds = time.monotonic(), 4

    def ask(index):
        gateway, answered = two_gateways[index % 2], 0
        with httpx.Client(timeout=20) as client:
            while time.monotonic() < begin + seconds:
                answer = post_chat(gateway.url, chat_body("Hello", max_tokens=1), client,
                                   headers={"authorization": "Bearer steady"})
                answered += answer.status_code == 200
                time.sleep(0.02)
        return answered
    answered = sum(in_parallel(ask, range(8), 8))
    allowed = 20 * seconds + 20  # and what the buckets held
    print(f"{answered} requests in {seconds} s by two gateways, {allowed} allowed")
    assert 0.8 * allowed <= answered <= 1.1 * allowed

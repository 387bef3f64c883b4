"""Limits are the fleet's, not each gateway's: two gateways let through what one would, and one alone the whole again; whether they know of
each other by what they tell or by their leases in etcd."""
import contextlib
import time

import httpx
import pytest

import etcd
from figures import figure
from fleet import Gateway, SimWorker, chat_body, in_parallel, post_chat, wait_until
from ports import free_port
from test_api_keys import keys_file

KEYS = {"crowd": ("crowd", {"requests_at_once": 11}), "steady": ("steady", {"requests_per_s": 20}),
        "wordy": ("wordy", {"tokens_per_min": 1200})}


SLOW = ("--sim-speed", 4)
# A dead gateway is one that is silent for three seconds, or whose lease has run out; etcd looks for those twice a second.
GONE_S = 15
assert GONE_S > etcd.TTL_SECS + 3


@contextlib.contextmanager
def told_of_each_other(start, logs, flags):
    fleet = start(workers=1, gateway=False, worker_class=SimWorker, worker_flags=SLOW)
    ports = [(free_port(), free_port()) for _ in range(2)]
    peers = ",".join(f"http://127.0.0.1:{metrics}" for _, metrics in ports)
    gateways = []
    try:
        for pair in ports:
            gateways.append(Gateway([fleet.workers[0].url], logs, ("--gossip.peers", peers, *flags), pair))
        for gateway in gateways:
            gateway.wait_ready()
        yield gateways
    finally:
        for gateway in gateways:
            gateway.stop()


@pytest.fixture
def keyed(tmp_path):
    file = tmp_path / "keys.yaml"
    file.write_text(keys_file(**KEYS))
    return "--api-keys", file


@pytest.fixture
def by_etcd(tmp_path, keyed):
    """They know of each other by their leases alone."""
    with etcd.Shared(tmp_path, workers=1, gateways=2, worker_flags=SLOW, gateway_flags=keyed) as shared:
        for gateway in shared.gateways:
            wait_until(lambda: shared_by(gateway) == 2, 10, "they have heard of each other")
        yield shared


@pytest.fixture(params=["gossip", "etcd"])
def two_gateways(request, start, logs, keyed):
    if request.param == "etcd":
        yield request.getfixturevalue("by_etcd").gateways
        return
    with told_of_each_other(start, logs, keyed) as gateways:
        for gateway in gateways:
            wait_until(lambda: shared_by(gateway) == 2, 10, "they have heard of each other")
        yield gateways


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
    assert let_in(two_gateways, 8) == 11, "six at one, five at the other"
    first, second = two_gateways
    second.kill()
    seconds = wait_until(lambda: shared_by(first) == 1, GONE_S, "the other one is gone")
    figure("a dead gateway's part of the limits is the other's", f"{seconds:.1f} s", f"< {GONE_S} s")
    assert let_in([first], 12) == 11, "the whole"


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
    figure(f"requests in {seconds} s by two gateways", answered, f"{allowed} allowed, 0.8 to 1.1 of them")
    assert 0.8 * allowed <= answered <= 1.1 * allowed


def test_tokens_a_minute(two_gateways):
    """Each gateway lets in until its half is used up, by the last one perhaps over it."""
    begin, used, most = time.monotonic(), 0, 0
    for gateway in two_gateways:
        for _ in range(50):
            answer = post_chat(gateway.url, chat_body("Hello", max_tokens=60, ignore_eos=True), headers={"authorization": "Bearer wordy"})
            if answer.status_code == 429:
                break
            cost = answer.json()["usage"]["total_tokens"]
            used, most = used + cost, max(most, cost)
        assert answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1
    allowed = 1200 + 1200 / 60 * (time.monotonic() - begin)
    figure("tokens let through by two gateways at once", used, f"{allowed:.0f} allowed, and at each one the last answer, {most} at most")
    assert 1200 <= used <= allowed + 2 * most


def test_limits_stay_divided_without_etcd(by_etcd):
    """Whether the other one lives, nobody can say then; that a fault of etcd's doubles what clients may would be worse."""
    for member in by_etcd.etcd.members:
        member.hold()
    try:
        wait_until(lambda: all(gateway.degraded() for gateway in by_etcd.gateways), 30, "they say that etcd is gone")
        time.sleep(2 * etcd.TTL_SECS)  # every lease would have run out
        assert let_in(by_etcd.gateways, 8) == 11
    finally:
        for member in by_etcd.etcd.members:
            member.go_on()
    wait_until(lambda: not any(gateway.degraded() for gateway in by_etcd.gateways), 30, "they have it back")
    for gateway in by_etcd.gateways:
        wait_until(lambda: shared_by(gateway) == 2, 10, "and have heard of each other again")
    assert let_in(by_etcd.gateways, 8) == 11


def test_a_gateway_that_joins_gets_its_part(by_etcd, tmp_path, keyed):
    third = etcd.StateGateway(by_etcd.etcd, tmp_path, keyed)
    by_etcd.gateways.append(third)
    third.wait_ready()
    for gateway in by_etcd.gateways:
        wait_until(lambda: shared_by(gateway) == 3, 10, "all know of three")
    wait_until(lambda: by_etcd.sees_all(third), 30, "the gateway has found the worker")
    assert let_in(by_etcd.gateways, 8) == 11, "four, four and three"
    by_etcd.gateways.pop().stop()
    for gateway in by_etcd.gateways:
        wait_until(lambda: shared_by(gateway) == 2, GONE_S, "it has left")

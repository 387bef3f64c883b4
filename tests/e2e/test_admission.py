"""The queue in front of the workers: nobody's crowd holds up the others, a full queue says when to come back, tenants share no
cache, and limits change without a restart."""
import hashlib
import signal
import threading
import time

import httpx
import openai
import yaml

from figures import figure
from fleet import MODEL, SimWorker, chat_body, in_parallel, post_chat, wait_until, whole_chat
from test_record import fleet_metrics
from test_sim import FAST, cached, metric, persona

SLOWER = ("--sim-speed", 4)  # 1 ms a token: a queue is to form, not the test to be long


def ask(fleet, who, number, client, **fields):
    body = chat_body([persona(who), {"role": "user", "content": f"What happened in year {number}?"}], ignore_eos=True,
                     **{"max_tokens": 100, **fields})
    return post_chat(fleet.url, body, client)


def tail_waits(fleet):
    """Seconds until their answers, sorted, of four personas that are asked now and then, beside one that forty clients ask for
    without a pause."""
    stop = threading.Event()

    def viral(index):
        with httpx.Client(timeout=60) as client:
            while not stop.is_set():
                assert ask(fleet, 0, index, client).status_code == 200

    def tail(index):
        took = []
        with httpx.Client(timeout=60) as client:
            for number in range(6):
                begin = time.monotonic()
                assert ask(fleet, 1 + index, number, client).status_code == 200
                took.append(time.monotonic() - begin)
                time.sleep(0.05)
        return took

    crowd = [threading.Thread(target=viral, args=(index,)) for index in range(40)]
    for thread in crowd:
        thread.start()
    try:
        waiting = lambda: metric(fleet_metrics(fleet), "troupe_gateway_queue_length")
        wait_until(lambda: waiting() > 20, 30, "the crowd queues")
        return sorted(sum(in_parallel(tail, range(4), 4), []))
    finally:
        stop.set()
        for thread in crowd:
            thread.join()


def test_a_viral_persona_does_not_hold_up_the_tail(start):
    waits = {}
    for fair in ("fair", "no-fair"):
        fleet = start(workers=2, worker_class=SimWorker, worker_flags=SLOWER,
                      gateway_flags=("--admission.worker-requests", 2, {"fair": "--admission.fair", "no-fair": "--no-admission.fair"}[fair]))
        waits[fair] = tail_waits(fleet)
    worst = {fair: took[-1] for fair, took in waits.items()}
    figure("tail beside a viral persona, p50 and worst of 24", f"{waits['fair'][12]:.3f}, {worst['fair']:.3f} s",
           f"p50 < half of {waits['no-fair'][12]:.3f}, worst < {worst['no-fair']:.3f} s, as in order of arrival")
    # Some 36 wait where four at once are served: eight rounds in order of arrival, one or two in a fair order.
    assert waits["fair"][12] < 0.5 * waits["no-fair"][12]
    assert worst["fair"] < worst["no-fair"]


def test_a_full_queue_says_when_to_come_back(start):
    fleet = start(workers=1, worker_class=SimWorker, worker_flags=SLOWER,
                  gateway_flags=("--admission.worker-requests", 1, "--admission.queue", 3))
    with httpx.Client(timeout=60) as client:
        answers = in_parallel(lambda index: ask(fleet, index % 3, index, client), range(24), 12)
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(refused) >= 4 and len(refused) + sum(answer.status_code == 200 for answer in answers) == 24
    assert all(1 <= int(answer.headers["retry-after"]) <= 10 for answer in refused), [a.headers["retry-after"] for a in refused]
    assert refused[0].json()["error"]["type"] == "rate_limit_error"
    assert metric(fleet_metrics(fleet), "troupe_gateway_queue_refused_total") == len(refused)
    # Who does as told is served: the openai client waits by itself.
    patient = openai.OpenAI(base_url=f"{fleet.url}/v1", api_key="none", max_retries=20)
    answered = in_parallel(lambda index: patient.chat.completions.create(model=MODEL, max_tokens=30, messages=[
        persona(index), {"role": "user", "content": "Hello"}]), range(8), 8)
    assert len(answered) == 8


def test_tenants_share_no_cache(start, tmp_path):
    keys = {"a-1": {"tenant": "a"}, "a-2": {"tenant": "a"}, "b-1": {"tenant": "b"}, "free": {}}
    file, secret = tmp_path / "keys.yaml", tmp_path / "secret"
    file.write_text(yaml.safe_dump({name: {"sha256": hashlib.sha256(name.encode()).hexdigest(), **more} for name, more in keys.items()}))
    secret.write_text("not to be guessed by anybody\n")
    fleet = start(workers=1, worker_class=SimWorker, worker_flags=FAST,
                  gateway_flags=("--api-keys", file, "--tenant-secret", secret))

    def found(key, **fields):
        body = chat_body([persona(1, sentences=40), {"role": "user", "content": "Who are you?"}], max_tokens=4, **fields)
        answer = post_chat(fleet.url, body, headers={"authorization": f"Bearer {key}"})
        assert answer.status_code == 200, answer.text
        return cached(answer.json()["usage"])
    assert found("a-1") == 0
    assert found("a-2") > 300, "of one tenant"
    assert found("b-1") == 0, "of another"
    assert found("b-1") > 300
    assert found("free") == 0
    assert found("free") > 300
    # A salt of one's own divides further, and names nobody else's.
    assert found("a-1", cache_salt="b") == 0 and found("a-2", cache_salt="b") > 300
    assert found("free", cache_salt="a") == 0
    prefix = lambda key: httpx.post(f"{fleet.url}/v1/prefixes", headers={"authorization": f"Bearer {key}"}, timeout=20, json={
        "model": MODEL, "messages": [persona(2, sentences=40)]}).json()
    # (All cards begin with the same words.)
    assert prefix("a-1")["cached_tokens"] < 32 and prefix("a-1")["cached_tokens"] > 300 and prefix("b-1")["cached_tokens"] < 32
    assert prefix("a-1")["id"] != prefix("b-1")["id"]


def test_limits_change_without_a_restart(start, tmp_path):
    file = tmp_path / "gateway.yaml"
    file.write_text("admission:\n  worker_requests: 1\n")
    fleet = start(workers=1, worker_class=SimWorker, worker_flags=SLOWER, gateway_flags=("--config", file))
    waiting = lambda: metric(fleet_metrics(fleet), "troupe_gateway_queue_length")
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(whole_chat(fleet.url, chat_body("Hello", max_tokens=4000, ignore_eos=True))))
               for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: waiting() == 2, 20, "two wait")
    file.write_text("admission:\n  worker_requests: 3\n  queue: -1\n")
    fleet.gateway.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "event=not_reloaded" in fleet.gateway.log_tail(), 10, "the mistake is in the log")
    fleet.expected_errors = ["not_reloaded"]
    assert "admission.queue" in fleet.gateway.log_tail() and waiting() == 2
    file.write_text("admission:\n  worker_requests: 3\n")
    fleet.gateway.process.send_signal(signal.SIGHUP)
    wait_until(lambda: waiting() == 0, 10, "all are let in")
    wait_until(lambda: fleet.running() == 3, 10, "the worker has all three")
    for thread in threads:
        thread.join()
    assert len(answers) == 3

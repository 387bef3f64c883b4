"""API keys at the gateway, met by the real openai client: who has none is not let in, each key has its models and limits, and
the file is read again on SIGHUP."""
import hashlib
import pathlib
import signal
import socket
import subprocess

import httpx
import openai
import pytest

from fleet import BIN, SimWorker, chat_body, in_parallel, post_chat, wait_until
from test_record import fleet_metrics
from test_sim import FAST, metric

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "configs" / "api_keys.yaml"
HELLO = [{"role": "user", "content": "Hello, who are you?"}]


def keys_file(**keys):
    lines = []
    for name, (key, settings) in keys.items():
        lines += [f"{name}:", f"  sha256: {hashlib.sha256(key.encode()).hexdigest()}"]
        lines += [f"  {setting}: {value}" for setting, value in settings.items()]
    return "\n".join(lines) + "\n"


@pytest.fixture
def keyed(start, tmp_path):
    """start_with(name=(key, settings), …): a fleet that asks for these, and the file they are in."""
    def start_with(**keys):
        file = tmp_path / "keys.yaml"
        file.write_text(keys_file(**keys))
        return start(workers=1, worker_class=SimWorker, worker_flags=FAST, gateway_flags=("--api-keys", file)), file
    return start_with


def ask(fleet, key, **fields):
    return post_chat(fleet.url, chat_body(HELLO, **{"max_tokens": 4, **fields}), headers={"authorization": f"Bearer {key}"} if key else {})


def test_only_who_has_a_key_is_let_in(keyed):
    fleet, _ = keyed(writers=("right", {}), others=("elsewhere", {"models": "[another-model]"}))
    client = lambda key: openai.OpenAI(base_url=f"{fleet.url}/v1", api_key=key, max_retries=0)
    answer = client("right").chat.completions.create(model="demo-model", messages=HELLO, max_tokens=4)
    assert answer.usage.completion_tokens == 4
    with pytest.raises(openai.AuthenticationError, match="not known here"):
        client("wrong").chat.completions.create(model="demo-model", messages=HELLO)
    refused = ask(fleet, None)
    assert refused.status_code == 401 and refused.headers["www-authenticate"] == "Bearer"
    assert refused.json()["error"]["code"] == "invalid_api_key" and "Authorization: Bearer" in refused.json()["error"]["message"]
    assert refused.headers["x-request-id"] and refused.headers["x-route-decision"].startswith("set=-;node=-")
    # A model that is not one's own is none.
    with pytest.raises(openai.NotFoundError):
        client("elsewhere").chat.completions.create(model="demo-model", messages=HELLO)
    assert [model.id for model in client("right").models.list()] == ["demo-model"]
    assert [model.id for model in client("elsewhere").models.list()] == []
    for path in ("/v1/models", "/v1/prefixes/prefix-00000000000000000000000000000000"):
        assert httpx.get(f"{fleet.url}{path}", timeout=5).status_code == 401
    assert httpx.post(f"{fleet.url}/v1/prefixes", json={}, timeout=5).status_code == 401
    # Probes of a load balancer need none.
    assert httpx.get(f"{fleet.url}/health", timeout=5).status_code == 200


def test_requests_over_a_limit_wait_as_long_as_told(keyed):
    fleet, _ = keyed(slow=("slow", {"requests_per_s": 2}), free=("free", {}))
    answers = in_parallel(lambda _: ask(fleet, "slow"), range(20), 10)
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(refused) >= 10 and len(refused) + sum(answer.status_code == 200 for answer in answers) == 20
    assert all(int(answer.headers["retry-after"]) == 1 for answer in refused)
    assert refused[0].json()["error"]["code"] == "rate_limit_exceeded" and "requests a second" in refused[0].json()["error"]["message"]
    assert [answer.status_code for answer in in_parallel(lambda _: ask(fleet, "free"), range(20), 10)] == [200] * 20
    # The openai client waits and asks again by itself.
    client = openai.OpenAI(base_url=f"{fleet.url}/v1", api_key="slow", max_retries=8)
    for _ in range(4):
        client.chat.completions.create(model="demo-model", messages=HELLO, max_tokens=2)


def test_tokens_are_counted_with_and_without_usage(keyed):
    fleet, _ = keyed(meter=("meter", {"tokens_per_min": 3000}))
    usage = ask(fleet, "meter").json()["usage"]
    used = usage["total_tokens"]
    count = lambda: metric(fleet_metrics(fleet), 'troupe_gateway_key_tokens_total{key="meter"}')
    wait_until(lambda: count() == used, 10, "the answer's tokens are counted")
    with httpx.stream("POST", f"{fleet.url}/v1/chat/completions", json=chat_body(HELLO, max_tokens=50, stream=True, ignore_eos=True),
                      headers={"authorization": "Bearer meter"}, timeout=20) as answer:
        assert answer.status_code == 200 and b"[DONE]" in answer.read()
    # That nobody asked for the stream's usage makes no difference: the worker tells the gateway.
    wait_until(lambda: count() > used, 10, "the stream's tokens are counted")
    assert count() == used + usage["prompt_tokens"] + 50
    wait_until(lambda: ask(fleet, "meter", max_tokens=400, ignore_eos=True).status_code == 429, 30, "the minute's tokens are used up")
    refused = ask(fleet, "meter")
    assert 1 <= int(refused.headers["retry-after"]) <= 60 and "tokens a minute" in refused.json()["error"]["message"]


def test_keys_change_without_a_restart(keyed):
    fleet, file = keyed(writers=("old", {}))
    assert ask(fleet, "old").status_code == 200
    file.write_text(keys_file(writers=("new", {})) + "  requests_per_sec: 5\n")
    fleet.gateway.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "event=not_reloaded" in fleet.gateway.log_tail(), 10, "the mistake is in the log")
    assert "requests_per_s" in fleet.gateway.log_tail() and ask(fleet, "old").status_code == 200 and ask(fleet, "new").status_code == 401
    fleet.expected_errors = ["not_reloaded"]
    file.write_text(keys_file(writers=("new", {})))
    fleet.gateway.process.send_signal(signal.SIGHUP)
    wait_until(lambda: ask(fleet, "new").status_code == 200, 10, "the new key is taken")
    assert ask(fleet, "old").status_code == 401


def test_only_an_admins_key_changes_the_fleet(keyed):
    fleet, _ = keyed(writers=("right", {}), chiefs=("chief", {"admin": "true"}))
    workers = f"{fleet.gateway.metrics_url}/admin/workers"
    change = lambda method, key: httpx.request(method, workers, json={"url": "http://127.0.0.1:1"}, timeout=5,
                                               headers={"authorization": f"Bearer {key}"} if key else {})
    assert [change("POST", key).status_code for key in (None, "wrong", "right", "chief")] == [401, 401, 403, 200]
    assert len(httpx.get(workers, timeout=5).json()["workers"]) == 2
    assert [change("DELETE", key).status_code for key in (None, "right", "chief")] == [401, 403, 200]
    assert ask(fleet, "right").status_code == 200


def test_who_has_no_key_is_told_before_his_body_is_asked_for(keyed):
    fleet, _ = keyed(writers=("right", {}))
    address = fleet.url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1])), timeout=5) as stranger:
        stranger.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: t\r\ncontent-length: 9000000\r\nexpect: 100-continue\r\n\r\n")
        assert stranger.recv(4096).startswith(b"HTTP/1.1 401 ")
    assert ask(fleet, "right").status_code == 200
    wait_until(lambda: metric(fleet_metrics(fleet), 'troupe_gateway_requests_total{code="401"}') == 1, 5, "it is counted, once")


def test_the_example_loads_and_a_mistake_is_named_at_the_start(tmp_path):
    check = lambda file: subprocess.run([BIN / "troupe-gateway", "--worker-urls", "http://127.0.0.1:1", "--api-keys", file, "--check-config"],
                                        capture_output=True, text=True, timeout=20)
    assert check(EXAMPLE).returncode == 0
    for key in ("an example; make your own", "another example; make your own"):
        assert hashlib.sha256(key.encode()).hexdigest() in EXAMPLE.read_text()
    bad = tmp_path / "bad.yaml"
    bad.write_text("writers:\n  sha256: abc\n")
    assert check(bad).returncode == 2 and "key 'writers': sha256 must be the 64 hex digits" in check(bad).stderr
    assert check(tmp_path / "none.yaml").returncode == 2 and "none.yaml" in check(tmp_path / "none.yaml").stderr

"""Accounts: what keys and end users may use, exact over two gateways; usage that adds up; models under other names; moderation."""
import collections
import http.server
import json
import subprocess
import threading
import time

import httpx
import pytest

import etcd
from figures import figure
from fleet import BIN, Fleet, SimWorker, chat_body, in_parallel, post_chat, stream_chat, wait_until
from test_api_keys import keys_file

FAST = ("--sim-speed", 20)


def begin_of_minute(seconds):
    """So that what follows is within one window."""
    left = 60 - time.time() % 60
    if left < seconds:
        time.sleep(left + 0.1)


def metric(url, name):
    lines = httpx.get(f"{url}/metrics", timeout=5).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def rows(gateway, by, when="today"):
    shown = httpx.get(f"{gateway.metrics_url}/admin/usage?by={by}", timeout=5).json()[when]
    return shown["total"], {row["name"]: row for row in shown["rows"]}


# Quotas


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("accounts")
    (folder / "keys.yaml").write_text(keys_file(
        app=("app", {"end_user": "{requests_per_min: 7, tokens_per_min: 400}"}), capped=("capped", {"requests_per_min": 25}),
        daily=("daily", {"tokens_per_day": 300})))
    with etcd.Shared(folder, workers=1, gateways=2, worker_flags=FAST, gateway_flags=("--api-keys", folder / "keys.yaml")) as made:
        yield made


def ask(gateway, key, user=None, max_tokens=1, client=httpx, **headers):
    body = chat_body("Hello", max_tokens=max_tokens, ignore_eos=True, **({"user": user} if user else {}))
    return post_chat(gateway.url, body, client, headers={"authorization": f"Bearer {key}", **headers})


def test_requests_of_a_key_and_an_end_user_are_exact_over_two_gateways(shared):
    begin_of_minute(12)
    with httpx.Client(timeout=20) as client:
        def statuses(key, user, count, spread):
            return [ask(shared.gateways[spread(index)], key, user, client=client) for index in range(count)]
        # All at one gateway, though two share the limit; then evenly, with the last slices in other hands.
        alone = statuses("app", "ann", 12, lambda index: 0)
        assert [answer.status_code for answer in alone].count(200) == 7
        even = statuses("app", "bob", 20, lambda index: index % 2)
        assert [answer.status_code for answer in even].count(200) == 7
        refused = even[-1]
        assert refused.status_code == 429 and refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert "end user" in refused.json()["error"]["message"] and "7 requests a minute" in refused.json()["error"]["message"]
        assert abs(int(refused.headers["retry-after"]) - (60 - time.time() % 60)) <= 1.5
        assert refused.headers["x-ratelimit-limit-requests"] == "7" and refused.headers["x-ratelimit-remaining-requests"] == "0"
        assert int(refused.headers["x-ratelimit-reset-requests"].rstrip("s")) <= 60
        assert int(even[0].headers["x-ratelimit-remaining-requests"]) == 6
    # Many at once, at both.
    def burst(index):
        return ask(shared.gateways[index % 2], "capped").status_code
    let_in = collections.Counter(in_parallel(burst, range(80), 8))
    figure("requests let in of 80 at once by two gateways that share a limit of 25 a minute", let_in[200], "25")
    assert let_in[200] == 25 and let_in[429] == 55, let_in


def test_tokens_are_held_and_settled_by_what_was_used(shared):
    begin_of_minute(8)
    used = 0
    for index in range(40):
        answer = ask(shared.gateways[index % 2], "daily", max_tokens=20)
        if answer.status_code != 200:
            break
        used += answer.json()["usage"]["total_tokens"]
        assert answer.headers["x-ratelimit-limit-tokens"] == "300"
    assert answer.status_code == 429 and answer.json()["error"]["code"] == "budget_exceeded", answer.text
    # (What a gateway holds of a day and gives back takes a moment; an estimate may be short of the truth by a few tokens.)
    figure("tokens used of a budget of 300 a day at two gateways", used, "200 to 310")
    assert 200 <= used <= 310
    assert int(answer.headers["retry-after"]) > 60 or time.time() % 86400 > 86340


def test_who_an_end_user_is(shared):
    begin_of_minute(4)
    gateway = shared.gateways[0]
    for name, how in (("h1", {"x-litellm-customer-id": "carl"}), ("h2", {"x-litellm-end-user-id": "carl"})):
        assert ask(gateway, "app", name, **how).status_code == 200
    answer = post_chat(gateway.url, chat_body("Hello", max_tokens=1, metadata={"user_id": "carl"}), headers={"authorization": "Bearer app"})
    assert answer.headers["x-ratelimit-remaining-requests"] == "4", "three of carl's seven are gone"
    assert "x-ratelimit-limit-requests" not in ask(gateway, "app").headers


# Usage, routes and moderation


class Hook(http.server.ThreadingHTTPServer):
    """Judges by the words of a text; `mode` is what is wrong with it."""
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.asked, self.mode, self.words = [], "well", {}
        self.url = f"http://127.0.0.1:{self.server_address[1]}/judge"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append(asked)
        mode = self.server.mode
        if mode == "slow":
            time.sleep(2)
        verdict = next((verdict for word, verdict in self.server.words.items() if word in asked["text"]), {"verdict": "allow"})
        body = b"what?" if mode == "wrong" else json.dumps(verdict).encode()
        try:
            self.send_response(500 if mode == "error" else 200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            pass

    def log_message(self, *args):
        pass


ROUTES = """
routes:
  - {model: gpt-4o, to: demo-model}
  - {model: tested, split: {demo-model: 50, other.model: 50}}
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    (folder / "routes.yaml").write_text(ROUTES)
    (folder / "keys.yaml").write_text(keys_file(first=("first", {}), second=("second", {"tenant": "acme"})))
    (folder / "secret").write_text("a secret of some length")
    usage = folder / "usage.jsonl"
    flags = ("--config", folder / "routes.yaml", "--api-keys", folder / "keys.yaml", "--tenant-secret", folder / "secret",
             "--usage.file", usage, "--usage.totals", "--no-usage.hash-users", "--usage.rotate-bytes", 20_000)
    with Fleet(folder, workers=2, worker_class=SimWorker, worker_flags=FAST, gateway_flags=flags) as fleet:
        fleet.usage = usage
        yield fleet


def lines_of(usage):
    files = sorted(usage.parent.glob(usage.name + "*"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_usage_adds_up(served):
    """A short soak of whole answers, streams, refusals and two keys: the export, its sums, metrics and the workers say the same."""
    def one(index):
        key = ("first", "second")[index % 2]
        body = chat_body(f"Hello {index % 5}", max_tokens=1 + index % 7, ignore_eos=True, stream=index % 3 == 0, user=f"user-{index % 4}")
        headers = {"authorization": f"Bearer {key}"}
        if index % 10 == 9:
            body["model"] = "nobody's"
        if index % 3:
            return post_chat(served.url, body, headers=headers).status_code
        with httpx.stream("POST", f"{served.url}/v1/chat/completions", json=body, headers=headers, timeout=30) as response:
            return response.status_code if response.read() is not None else 0
    statuses = collections.Counter(in_parallel(one, range(150), 8))
    assert statuses == {200: 135, 404: 15}, statuses
    wait_until(lambda: len(lines_of(served.usage)) >= 150, 5, "all lines are written")
    lines = lines_of(served.usage)
    assert len(lines) == 150 and len(list(served.usage.parent.glob("usage.jsonl.*"))) >= 1, "it was rotated"
    total = lambda name: sum(line[name] for line in lines)
    of_gateway = lambda name: metric(served.gateway.metrics_url, name)
    of_workers = lambda name: sum(metric(worker.url, name) for worker in served.workers)
    summed, by_key = rows(served.gateway, "key")
    assert summed["requests"] == 150 and summed["refused"] == 15
    for kind, series in (("prompt", "vllm:prompt_tokens_total"), ("completion", "vllm:generation_tokens_total"),
                         ("cached", "vllm:prefix_cache_hits_total")):
        tokens = total(f"{kind}_tokens")
        assert tokens > 0
        assert summed[f"{kind}_tokens"] == tokens
        assert of_gateway(f'troupe_gateway_usage_tokens_total{{kind="{kind}"}}') == tokens
        assert of_workers(series) == tokens, kind
    figure("tokens of 150 requests: lines, sums, metrics and workers", f"{total('prompt_tokens')} + {total('completion_tokens')}", "all equal")
    for key in ("first", "second"):
        own = [line for line in lines if line["key"] == key]
        used = sum(line["prompt_tokens"] + line["completion_tokens"] for line in own)
        assert of_gateway(f'troupe_gateway_key_tokens_total{{key="{key}"}}') == used
        assert by_key[key]["prompt_tokens"] + by_key[key]["completion_tokens"] == used
    assert sum(row["requests"] for row in rows(served.gateway, "user")[1].values()) == 150
    good = next(line for line in lines if line["status"] == 200 and line["stream"])
    assert good["finish_reason"] == "length" and good["end"] == "answered" and good["node"] and good["attempts"] == 1
    assert good["counted"] and good["ttft_ms"] > 0 and good["duration_ms"] >= good["ttft_ms"] and good["model"] == "demo-model"
    assert {line["tenant"] for line in lines if line["key"] == "second"} == {"acme"}
    assert not any("Hello" in json.dumps(line) for line in lines), "no text"


def test_a_client_that_leaves_is_in_the_export(served):
    before = len(lines_of(served.usage))
    body = chat_body("Hello", max_tokens=4000, ignore_eos=True, stream=True)
    with httpx.stream("POST", f"{served.url}/v1/chat/completions", json=body, headers={"authorization": "Bearer first"}) as response:
        next(response.iter_lines())
    wait_until(lambda: len(lines_of(served.usage)) > before, 5, "its line is written")
    line = max(lines_of(served.usage), key=lambda line: line["time"])
    assert line["end"] == "cancelled" and line["status"] == 499
    assert 0 < line["prompt_tokens"] and 0 < line["completion_tokens"] < 4000


def test_models_under_other_names(served):
    headers = {"authorization": "Bearer first"}
    answer = post_chat(served.url, chat_body("Hello", max_tokens=2) | {"model": "gpt-4o"}, headers=headers)
    assert answer.status_code == 200 and answer.json()["model"] == "gpt-4o"
    assert answer.headers["x-route-decision"].endswith(";arm=demo-model")
    with httpx.stream("POST", f"{served.url}/v1/chat/completions", headers=headers,
                      json=chat_body("Hello", max_tokens=2, stream=True) | {"model": "gpt-4o"}) as response:
        chunks = [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: {")]
    assert {chunk["model"] for chunk in chunks} == {"gpt-4o"}
    listed = [model["id"] for model in httpx.get(f"{served.url}/v1/models", headers=headers).json()["data"]]
    assert listed == ["demo-model", "gpt-4o", "tested"]
    # Half of the users are led to a model that no worker serves: each of them every time.
    of_user = lambda user: post_chat(served.url, chat_body("Hello", max_tokens=1, user=user) | {"model": "tested"}, headers=headers).status_code
    users = {f"u{index}": of_user(f"u{index}") for index in range(40)}
    assert 8 <= list(users.values()).count(200) <= 32 and set(users.values()) == {200, 404}
    assert all(of_user(user) == status for user, status in list(users.items())[:10])
    wait_until(lambda: any(line["arm"] == "demo-model" and line["model"] == "gpt-4o" for line in lines_of(served.usage)), 5, "the arm is exported")


@pytest.fixture(scope="module")
def hook():
    made = Hook()
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def judged(tmp_path_factory, hook):
    folder = tmp_path_factory.mktemp("judged")
    flags = ("--moderation.url", hook.url, "--moderation.answer", "window", "--moderation.window-bytes", 40, "--moderation.timeout-ms", 300,
             "--moderation.on-error", "block", "--usage.file", folder / "usage.jsonl")
    with Fleet(folder, workers=1, worker_class=SimWorker, worker_flags=FAST, gateway_flags=flags) as fleet:
        fleet.usage = folder / "usage.jsonl"
        yield fleet


@pytest.fixture
def fresh(hook):
    hook.asked.clear()
    hook.mode, hook.words = "well", {}
    return hook


def test_windows_of_an_answer_are_judged_before_they_are_sent(judged, fresh):
    body = chat_body("Tell me", max_tokens=60, ignore_eos=True)
    whole = post_chat(judged.url, body)
    text = whole.json()["choices"][0]["message"]["content"]
    assert [asked["stage"] for asked in fresh.asked] == ["prompt", "answer"] and fresh.asked[0]["text"] == "Tell me"
    fresh.asked.clear()
    streamed = stream_chat(judged.url, body)
    assert streamed.text == text and streamed.finish == "length"
    windows = [asked["text"] for asked in fresh.asked if asked["stage"] == "answer"]
    assert "".join(windows) == text and len(windows) > 1 and all(len(window) <= 170 for window in windows)
    # A window is redacted where it is said, an answer ends where it is blocked.
    fresh.words = {windows[1]: {"verdict": "redact", "text": "[...]", "note": "names"}}
    assert stream_chat(judged.url, body).text == windows[0] + "[...]" + "".join(windows[2:])
    fresh.words = {windows[1]: {"verdict": "block"}}
    blocked = stream_chat(judged.url, body)
    # (An event that has some of the blocked text is not sent, nor is what it has of the window before.)
    assert blocked.text and windows[0].startswith(blocked.text) and len(windows[0]) - len(blocked.text) < 10 and blocked.finish == "content_filter"
    fresh.words = {text: {"verdict": "block"}}
    choice = post_chat(judged.url, body).json()["choices"][0]
    assert choice["finish_reason"] == "content_filter" and choice["message"]["content"] == ""
    wait_until(lambda: metric(judged.workers[0].url, "vllm:num_requests_running") == 0, 5, "its worker is left")


def test_a_prompt_is_judged_before_it_is_sent(judged, fresh):
    fresh.words = {"secret": {"verdict": "block"}, "odd": {"verdict": "annotate", "note": "odd"}}
    refused = post_chat(judged.url, chat_body("the secret", user="ann"))
    assert refused.status_code == 400 and refused.json()["error"]["code"] == "content_filter"
    assert refused.headers["x-troupe-moderation"] == "block" and len(fresh.asked) == 1
    noted = post_chat(judged.url, chat_body("an odd one", max_tokens=1))
    assert noted.status_code == 200 and noted.headers["x-troupe-moderation"] == "annotate"
    of_prompt = lambda: [line for line in lines_of(judged.usage) if line["why"] == "content_filter"]
    wait_until(of_prompt, 5, "the refusal is exported")
    line = of_prompt()[-1]
    assert line["moderation"] == "block" and line["status"] == 400 and line["completion_tokens"] == 0
    assert len(line["end_user"]) == 32 and "ann" not in line["end_user"], "a hash of it"


@pytest.mark.parametrize("mode", ["slow", "wrong", "error"])
def test_a_hook_that_fails_is_as_configured_and_nothing_hangs(judged, fresh, mode):
    fresh.mode = mode
    begun = time.monotonic()
    answer = post_chat(judged.url, chat_body("Hello", max_tokens=2), timeout=10)
    # (It allows what is late, and blocks what is wrong.)
    assert answer.status_code == (200 if mode == "slow" else 400)
    assert time.monotonic() - begun < 1.5
    why = {"slow": "timeout", "wrong": "malformed", "error": "status"}[mode]
    assert metric(judged.gateway.metrics_url, f'troupe_gateway_moderation_failures_total{{why="{why}"}}') >= 1


def test_a_hook_that_is_down(judged, hook):
    hook.shutdown()
    hook.server_close()
    answer = post_chat(judged.url, chat_body("Hello", max_tokens=2), timeout=10)
    assert answer.status_code == 400 and answer.json()["error"]["code"] == "content_filter"


@pytest.mark.parametrize("text, said", [
    ("routes: [{model: a, to: b}, {model: a, to: c}]", "'a' is there twice"),
    ("routes: [{model: a, split: {b: much}}]", "split.b: must be a weight"),
    ("routes: [{model: a, to: b, split: {c: 1}}]", "to and split: name one of them"),
    ("routes: [{model: a, too: b}]", "there is no 'too'"),
    ("moderation: {url: 'http://a:b:c/'}", "moderation.url"),
    ("moderation: {answer: maybe}", "moderation.answer"),
    ("usage: {file: /no/such/folder/usage}", "usage.file"),
])
def test_wrong_settings_are_named(tmp_path, text, said):
    file = tmp_path / "gateway.yaml"
    file.write_text(text)
    done = subprocess.run([BIN / "troupe-gateway", "--worker-urls", "http://127.0.0.1:1", "--config", file, "--check-config"],
                          capture_output=True, text=True)
    assert done.returncode == 2 and said in done.stderr, done.stderr

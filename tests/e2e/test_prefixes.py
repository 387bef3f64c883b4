"""Prefixes kept ahead of use: POST /v1/prefixes at a gateway is computed where its requests will go."""
import hashlib
import http.server
import json
import threading

import httpx
import pytest

from fleet import MODEL, Fleet, Gateway, SimWorker, chat_body, free_port, post_chat, route_decision, wait_until, whole_chat

SMALL = ("--kv-cache-tokens", 1024, "--max-model-len", 512)


def persona(name):
    """Some hundred tokens, others for every name."""
    return f"You are playing {name}. " + " ".join(f"{name} likes plum wine and dislikes wet boots." for _ in range(12))


def system_of(name):
    return {"role": "system", "content": persona(name)}


def make(url, name, **fields):
    return httpx.post(f"{url}/v1/prefixes", json={"model": MODEL, "messages": [system_of(name)], **fields}, timeout=60)


def ask(url, name, question="Hello!", **fields):
    return whole_chat(url, chat_body([system_of(name), {"role": "user", "content": question}], max_tokens=2, **fields))


def cached(answer):
    return answer.usage["prompt_tokens_details"]["cached_tokens"]


def test_a_prefix_is_computed_where_its_first_request_goes_and_every_gateway_knows_of_it(tmp_path):
    with Fleet(tmp_path, workers=3) as fleet:
        response = make(fleet.url, "Ruvo Tamek", pin=True, ttl_s=600)
        assert response.status_code == 200, response.text
        made = response.json()
        assert made["object"] == "prefix" and made["pinned"] and made["expires_at"] == made["created_at"] + 600
        (node,) = made["nodes"]
        assert node["node"] == route_decision(response)["node"] and node["status"] == 200
        assert made["set"] == route_decision(response)["set"]
        first = ask(fleet.url, "Ruvo Tamek")
        assert first.node == node["node"]
        assert cached(first) == made["tokens"] > 100

        other = Gateway([w.url for w in fleet.workers], tmp_path)
        try:
            other.wait_ready()
            wait_until(lambda: httpx.get(f"{other.url}/v1/prefixes/{made['id']}", timeout=5).status_code == 200, 15,
                       "the other gateway has heard of the workers")
            known = httpx.get(f"{other.url}/v1/prefixes/{made['id']}", timeout=5).json()
            assert [n["node"] for n in known["nodes"]] == [node["node"]] and known["tokens"] == made["tokens"]
            deleted = httpx.delete(f"{other.url}/v1/prefixes/{made['id']}", timeout=5).json()
            assert deleted["deleted"] and [n["node"] for n in deleted["nodes"]] == [node["node"]]
        finally:
            other.stop()
        gone = httpx.get(f"{fleet.url}/v1/prefixes/{made['id']}", timeout=5)
        assert gone.status_code == 404 and gone.json()["error"]["code"] == "prefix_not_found"
        # What helps here: there is no list of them at a gateway.
        assert "POST /v1/prefixes" in gone.json()["error"]["message"] and "GET" not in gone.json()["error"]["message"]


def test_a_planned_set_is_computed_by_all_its_homes(tmp_path):
    with Fleet(tmp_path, workers=2, gateway_flags=("--mode", "plan")) as fleet:
        answer = ask(fleet.url, "Dazin Orel")
        name = make(fleet.url, "Dazin Orel").json()["set"]

        def homes():
            table = httpx.get(f"{fleet.gateway.metrics_url}/admin/table", timeout=5).json()
            return [node for item in table["sets"] if item["set"] == name for node in item["nodes"]]
        wait_until(homes, 30, "the planner has seen the set")
        made = make(fleet.url, "Dazin Orel", pin=True).json()
        assert {n["node"] for n in made["nodes"]} == set(homes())
        assert all(n["status"] == 200 and n["pinned"] for n in made["nodes"])
        assert answer.usage["prompt_tokens"] > made["tokens"]


def test_a_pinned_persona_survives_what_an_unpinned_one_does_not(tmp_path):
    with Fleet(tmp_path, workers=1, worker_flags=SMALL) as fleet:
        pinned = make(fleet.url, "Ruvo Tamek", pin=True).json()
        plain = make(fleet.url, "Dazin Orel").json()
        for i in range(14):
            ask(fleet.url, f"passer-by {100 + i}")
        assert cached(ask(fleet.url, "Ruvo Tamek")) == pinned["tokens"]
        blocks = -(-pinned["tokens"] // 16)
        assert fleet.workers[0].load()["kv_blocks_pinned"] == blocks

        def shown():
            (worker,) = httpx.get(f"{fleet.gateway.metrics_url}/admin/workers", timeout=5).json()["workers"]
            return worker["load"]["kv_blocks_pinned"]
        wait_until(lambda: shown() == blocks, 15, "the gateway shows what is pinned")
        table = httpx.get(f"{fleet.gateway.metrics_url}/admin/table", timeout=5).json()
        assert [pin["nodes"] for pin in table["pinned"]] == [[fleet.workers[0].url.removeprefix("http://")]]
        assert cached(ask(fleet.url, "Dazin Orel")) < plain["tokens"]
        # A second one goes over the quarter of the memory that may be pinned; the worker's own words come through.
        refused = make(fleet.url, "Dazin Orel", pin=True)
        assert refused.status_code == 409 and refused.json()["error"]["code"] == "pin_budget_exceeded", refused.text
        # What could never fit beside the pin is told so, and the pin stays.
        big = post_chat(fleet.url, chat_body("Tell me a story. " * 8, max_tokens=400, ignore_eos=True))
        assert big.status_code == 200, big.text
        assert cached(ask(fleet.url, "Ruvo Tamek", "Again!")) == pinned["tokens"]


def pins_of(url, key=""):
    return httpx.get(f"{url}/v1/prefixes", headers={"authorization": f"Bearer {key}"} if key else {}, timeout=5).json()["data"]


def test_a_pin_is_computed_anew_where_its_worker_died(tmp_path):
    with Fleet(tmp_path, workers=2, worker_class=SimWorker) as fleet:
        made = make(fleet.url, "Ruvo Tamek", pin=True, ttl_s=600).json()
        (listed,) = pins_of(fleet.url)
        assert listed["id"] == made["id"] and listed["tokens"] == made["tokens"]
        assert [n["node"] for n in listed["nodes"]] == [n["node"] for n in made["nodes"]]
        dead = fleet.worker_of_node(made["nodes"][0]["node"])
        (other,) = [w for w in fleet.workers if w is not dead]
        dead.kill()
        wait_until(lambda: other.load()["kv_blocks_pinned"] > 0, 20, "the other worker has it")
        at_other = httpx.get(f"{other.url}/v1/prefixes", timeout=5).json()["data"]
        assert [p["id"] for p in at_other] == [made["id"]] and at_other[0]["ttl_s"] <= 600
        wait_until(lambda: [str(other.port) in n["node"] for n in pins_of(fleet.url)[0]["nodes"]] == [True], 5, "the gateway lists it there")
        assert httpx.delete(f"{fleet.url}/v1/prefixes/{made['id']}", timeout=5).json()["deleted"]
        assert pins_of(fleet.url) == []


def test_pins_are_their_tenants_and_leave_room_for_others(tmp_path):
    keys, secret = tmp_path / "keys.yaml", tmp_path / "secret"
    secret.write_text("s" * 64)
    keys.write_text("".join(f'{k}:\n  sha256: "{hashlib.sha256(k.encode()).hexdigest()}"\n  tenant: {k[0]}\n' for k in ("a1", "a2", "b1")))
    flags = ("--api-keys", keys, "--tenant-secret", secret)
    with Fleet(tmp_path, worker_class=SimWorker, worker_flags=("--kv-cache-tokens", 16384), gateway_flags=flags) as fleet:
        def pin(key, name, **fields):
            body = {"model": MODEL, "messages": [system_of(name)], "pin": True, **fields}
            return httpx.post(f"{fleet.url}/v1/prefixes", json=body, headers={"authorization": f"Bearer {key}"}, timeout=30)
        first = pin("a1", "Ruvo").json()
        assert first["ttl_s"] == 604800, "a pin of a key ends"
        assert [p["id"] for p in pins_of(fleet.url, "a2")] == [first["id"]] and pins_of(fleet.url, "b1") == []
        for method in ("GET", "DELETE"):
            known = [httpx.request(method, f"{fleet.url}/v1/prefixes/{first['id']}", headers={"authorization": f"Bearer {k}"}, timeout=5)
                     for k in ("b1", "a2")]
            assert [answer.status_code for answer in known] == [404, 200], method
        unpinned = pin("b1", "Dazin Orel", pin=False).json()
        for method in ("GET", "DELETE"):
            known = [httpx.request(method, f"{fleet.url}/v1/prefixes/{unpinned['id']}", headers={"authorization": f"Bearer {k}"}, timeout=5)
                     for k in ("a1", "b1")]
            assert [answer.status_code for answer in known] == [404, 200], f"{method} of one that is not pinned"
        too_long = pin("a1", "Ruvo", ttl_s=604801)
        assert too_long.status_code == 400 and too_long.json()["error"]["param"] == "ttl_s"
        while (answer := pin("a1", f"greedy {len(pins_of(fleet.url, 'a1'))}")).status_code == 200:
            pass
        assert answer.status_code == 409 and "pins.kv_share" in answer.json()["error"]["message"]
        assert sum(p["tokens"] for p in pins_of(fleet.url, "a1")) <= 1.1 * 16384 / 8, "as estimated before they are computed"
        assert pin("a2", "of the same tenant").status_code == 409
        assert pin("b1", "Dazin").status_code == 200


def test_a_gateway_that_begins_anew_takes_up_its_workers_pins(tmp_path):
    keys, secret = tmp_path / "keys.yaml", tmp_path / "secret"
    secret.write_text("s" * 64)
    keys.write_text("".join(f'{k}:\n  sha256: "{hashlib.sha256(k.encode()).hexdigest()}"\n  tenant: {k[0]}\n' for k in ("a1", "a2", "b1")))
    flags = ("--api-keys", keys, "--tenant-secret", secret)
    with Fleet(tmp_path, workers=2, worker_class=SimWorker, worker_flags=("--kv-cache-tokens", 65536), gateway_flags=flags) as fleet:
        def pin(key, name, **fields):
            body = {"model": MODEL, "messages": [system_of(name)], "pin": True, **fields}
            return httpx.post(f"{fleet.url}/v1/prefixes", json=body, headers={"authorization": f"Bearer {key}"}, timeout=30).json()
        made = {key: pin(key, f"of {key}", ttl_s=600) for key in ("a1", "b1")}
        urls = [w.url for w in fleet.workers]
        again = Gateway(urls, tmp_path, flags)
        try:
            again.wait_ready()
            wait_until(lambda: pins_of(again.url, "b1"), 10, "it has asked the workers")
            wait_until(lambda: pins_of(again.url, "a2"), 10, "both of them")
            (listed,) = pins_of(again.url, "a2")
            assert listed["id"] == made["a1"]["id"] and listed["tokens"] == made["a1"]["tokens"] and listed["ttl_s"] == 600
            assert len(listed["nodes"]) == 1 and "owners" not in listed
            delete = lambda key: httpx.delete(f"{again.url}/v1/prefixes/{made['a1']['id']}", headers={"authorization": f"Bearer {key}"}, timeout=5)
            assert delete("b1").status_code == 404
            assert delete("a2").json()["deleted"] and pins_of(again.url, "a1") == []
        finally:
            again.stop()
        third = Gateway(urls, tmp_path, flags)
        try:
            third.wait_ready()
            wait_until(lambda: pins_of(third.url, "b1"), 10, "it has asked the worker that has the other")
            held = [p["id"] for url in urls for p in httpx.get(f"{url}/v1/prefixes", timeout=5).json()["data"]]
            assert held == [made["b1"]["id"]] and pins_of(third.url, "a1") == [], "it does not come back"
        finally:
            third.stop()


def test_bodies_are_refused_by_the_gateway_itself(tmp_path):
    with Fleet(tmp_path, workers=1) as fleet:
        assert make(fleet.url, "x", pin="yes").json()["error"]["param"] == "pin"
        assert make(fleet.url, "x", model="other").json()["error"]["code"] == "model_not_found"
        assert httpx.delete(f"{fleet.url}/v1/prefixes", timeout=5).headers["allow"] == "GET, HEAD, POST"
        unknown = httpx.get(f"{fleet.url}/v1/prefixes/nonsense", timeout=5)
        assert unknown.status_code == 404 and "32 hex digits" in unknown.json()["error"]["message"]
        at_worker = httpx.get(f"{fleet.workers[0].url}/v1/prefixes/nonsense", timeout=5)
        assert at_worker.status_code == 404 and "GET /v1/prefixes" in at_worker.json()["error"]["message"]


class Foreign(http.server.BaseHTTPRequestHandler):
    """An OpenAI-like server that knows nothing of ours."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def reply(self, status, body):
        body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/v1/models":
            self.reply(200, {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 1, "owned_by": "x"}]})
        else:
            self.reply(200 if self.path == "/health" else 404, {})

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        if self.path != "/v1/chat/completions":
            return self.reply(404, {"detail": "Not Found"})
        message = {"role": "assistant", "content": "I am another."}
        self.reply(200, {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": MODEL,
                         "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                         "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}})

    do_DELETE = do_POST


@pytest.fixture
def foreign():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", free_port()), Foreign)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_server_of_another_kind_is_said_to_be_one_and_is_not_ill(tmp_path, foreign):
    gateway = Gateway([foreign], tmp_path)
    try:
        gateway.wait_ready()
        for _ in range(5):
            refused = make(gateway.url, "Ruvo Tamek")
            assert refused.status_code == 501, refused.text
        assert httpx.get(f"{gateway.url}/v1/prefixes/prefix-{'a' * 32}", timeout=5).status_code == 404
        assert ask(gateway.url, "Ruvo Tamek").text == "I am another."
        (worker,) = httpx.get(f"{gateway.metrics_url}/admin/workers", timeout=5).json()["workers"]
        assert worker["state"] == "ready", worker
    finally:
        gateway.stop()


def test_beside_a_server_of_another_kind_a_worker_of_ours_does_it(tmp_path, foreign):
    with Fleet(tmp_path, workers=1, gateway=False) as fleet:
        gateway = Gateway([foreign, fleet.workers[0].url], tmp_path)
        try:
            gateway.wait_ready()

            def both_alive():
                workers = httpx.get(f"{gateway.metrics_url}/admin/workers", timeout=5).json()["workers"]
                return all(worker["models"] for worker in workers)
            wait_until(both_alive, 15, "both are known")
            for i in range(6):
                response = make(gateway.url, f"Persona {i}")
                assert response.status_code == 200, response.text
                nodes = response.json()["nodes"]
                assert nodes[-1]["status"] == 200
                assert all(node == {"node": foreign.removeprefix("http://"), "status": 404, "supported": False}
                           for node in nodes[:-1])
        finally:
            gateway.stop()

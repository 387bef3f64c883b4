"""Pins in etcd: what was pinned through one gateway is listed, kept and ended by all, and by one that starts anew."""
import hashlib
import json

import httpx
import pytest

from etcd import Shared, StateGateway
from fleet import MODEL, wait_until
from test_prefixes import system_of

SOON = 30
KEYS = ("a1", "a2", "b1")


@pytest.fixture(scope="module")
def shared(logs):
    keys, secret = logs / "keys.yaml", logs / "secret"
    secret.write_text("s" * 64)
    keys.write_text("".join(f'{k}:\n  sha256: "{hashlib.sha256(k.encode()).hexdigest()}"\n  tenant: {k[0]}\n' for k in KEYS))
    flags = ("--api-keys", keys, "--tenant-secret", secret, "--pins.per-owner", 3)
    with Shared(logs, workers=2, gateways=2, worker_flags=("--kv-cache-tokens", 65536), gateway_flags=flags) as all_of_it:
        yield all_of_it


def head(key):
    return {"authorization": f"Bearer {key}"}


def pin(gateway, key, name, **fields):
    body = {"model": MODEL, "messages": [system_of(name)], "pin": True, **fields}
    return httpx.post(f"{gateway.url}/v1/prefixes", json=body, headers=head(key), timeout=30)


def unpin(gateway, key, prefix):
    return httpx.delete(f"{gateway.url}/v1/prefixes/{prefix}", headers=head(key), timeout=10)


def ids(gateway, key):
    listed = httpx.get(f"{gateway.url}/v1/prefixes", headers=head(key), timeout=10).json()["data"]
    return {item["id"] for item in listed}


def nodes(gateway, key, prefix):
    listed = httpx.get(f"{gateway.url}/v1/prefixes", headers=head(key), timeout=10).json()["data"]
    return [node["node"] for item in listed if item["id"] == prefix for node in item["nodes"]]


def stored(shared):
    """Records by prefix. (Their keys are of a prefix and its owner: each owner has a pin of its own.)"""
    records = [value.decode() for value in shared.etcd.keys("pins/").values()]
    return {"prefix-" + json.loads(record)["prefix"]: record for record in records}


def everywhere(shared, key, expected):
    return all(ids(gateway, key) == expected for gateway in shared.gateways)


def test_all_gateways_list_what_one_pinned_and_any_ends_it(shared):
    one, other = shared.gateways
    made = pin(one, "a1", "Ruvo Tamek", ttl_s=600).json()
    wait_until(lambda: everywhere(shared, "a2", {made["id"]}), SOON, "both list it, to its tenant")
    assert ids(other, "b1") == set() and unpin(other, "b1", made["id"]).status_code == 404
    wait_until(lambda: len(nodes(other, "a1", made["id"])) == 1, SOON, "the other one knows who has it")
    record = stored(shared)[made["id"]]
    assert record.count("Ruvo") > 0 and "s" * 64 not in record and "Bearer" not in record
    assert json.loads(record)["body"].endswith('"cache_salt":'), "a tenant's salt is not for whoever reads etcd"
    assert unpin(other, "a2", made["id"]).json()["deleted"]
    wait_until(lambda: everywhere(shared, "a1", set()), SOON, "it is gone everywhere")
    wait_until(lambda: stored(shared) == {}, SOON, "and in etcd")


def test_a_tenants_bounds_hold_across_gateways(shared):
    one, other = shared.gateways
    made = set()
    for i in range(3):
        answer = pin(shared.gateways[i % 2], "a1", f"persona {i}", ttl_s=600)
        assert answer.status_code == 200, answer.text
        made.add(answer.json()["id"])
        wait_until(lambda: everywhere(shared, "a1", made), SOON, "both know")
    for gateway in (one, other):
        refused = pin(gateway, "a2", "one too many", ttl_s=600)
        assert refused.status_code == 409 and "pins.per_owner" in refused.json()["error"]["message"]
    of_b = pin(other, "b1", "Dazin Orel", ttl_s=600)
    assert of_b.status_code == 200
    for prefix in made:
        assert unpin(one, "a1", prefix).json()["deleted"]
    assert unpin(other, "b1", of_b.json()["id"]).json()["deleted"]
    wait_until(lambda: everywhere(shared, "a1", set()), SOON, "all are gone")


def test_a_pin_ends_in_etcd_with_its_time(shared):
    (gateway, _) = shared.gateways
    made = pin(gateway, "b1", "Short Lived", ttl_s=4).json()
    wait_until(lambda: made["id"] in stored(shared), SOON, "it is in etcd")
    wait_until(lambda: made["id"] not in stored(shared), SOON, "its lease has ended")
    assert everywhere(shared, "b1", set())


def test_gateways_that_start_anew_keep_what_was_pinned(shared):
    made = pin(shared.gateways[0], "a1", "Ovane Grisk", ttl_s=600).json()
    wait_until(lambda: made["id"] in stored(shared), SOON, "it is in etcd")
    for gateway in shared.gateways:
        gateway.stop()
    shared.gateways[:] = [StateGateway(shared.etcd, shared.folder, shared.gateway_flags) for _ in range(2)]
    for gateway in shared.gateways:
        gateway.wait_ready()
        wait_until(lambda: shared.sees_all(gateway), SOON, "it has found all workers")
    wait_until(lambda: everywhere(shared, "a1", {made["id"]}), SOON, "both list it")
    node = [n for n in shared.workers if n.load()["kv_blocks_pinned"] > 0]
    assert len(node) == 1, "nobody has computed it a second time"
    node[0].kill()
    shared.workers.remove(node[0])
    (left,) = shared.workers
    wait_until(lambda: left.load()["kv_blocks_pinned"] > 0, SOON, "the worker that is left has it")
    held = httpx.get(f"{left.url}/v1/prefixes", timeout=5).json()["data"]
    assert [p["id"] for p in held] == [made["id"]] and held[0]["ttl_s"] <= 600, "the same prefix, with its tenant's salt"
    left.kill()
    shared.workers.remove(left)
    wait_until(lambda: all(set(gateway.workers().values()) <= {"dead"} for gateway in shared.gateways), SOON, "no worker has it")
    assert unpin(shared.gateways[1], "a1", made["id"]).json()["deleted"], "what is pinned can be ended, whoever died"
    wait_until(lambda: everywhere(shared, "a1", set()) and stored(shared) == {}, SOON, "it is gone everywhere")

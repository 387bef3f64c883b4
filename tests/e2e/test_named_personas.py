"""Personas by name: published at the gateway, assembled there, computed before their first user, kept, and each tenant's own."""
import hashlib
import json

import httpx
import pytest

from etcd import Shared
from fleet import MODEL, ROOT, Fleet, Gateway, post_chat, route_decision, wait_until

KEYS = {"a1": "a", "a2": "a", "b1": "b"}
FOLDER = ROOT / "configs/personas"
CARD = "You are playing {{char}}, a clockmaker of Rumosa. " + " ".join(
    f"{{{{char}}}} has mended clock {i} of the tall tower, which {{{{user}}}} may not touch." for i in range(40))
PERSONA = {
    "card": CARD, "name": "Tubo Renn", "examples": "{{user}}: What do you do?\n{{char}}: I mend clocks.",
    "lore": [{"keys": ["tower"], "content": "The tower leans, {{user}}."}, {"keys": ["bell"], "content": "The bell is cracked.", "depth": 2}],
    "post_history": "Answer as {{char}}, in the {{mood}}.", "variables": {"mood": "morning"}}
SHARED = (CARD + "\n\nHow {{char}} speaks, by examples:\n" + PERSONA["examples"]).replace("{{char}}", "Tubo Renn").replace("{{user}}", "User")
BLOCK = 16


def head(key="a1"):
    return {"authorization": f"Bearer {key}"}


def flags_at(folder):
    keys, secret = folder / "keys.yaml", folder / "secret"
    secret.write_text("s" * 64)
    keys.write_text("".join(f'{k}:\n  sha256: "{hashlib.sha256(k.encode()).hexdigest()}"\n  tenant: {t}\n' for k, t in KEYS.items()))
    return ("--api-keys", keys, "--tenant-secret", secret)


@pytest.fixture(scope="module")
def fleet(logs):
    flags = (*flags_at(logs), "--personas.file", logs / "personas", "--personas.dir", FOLDER, "--personas.versions", 2,
             "--access-log", logs / "access")
    with Fleet(logs, workers=2, gateway_flags=flags) as running:
        yield running


def put(url, name, persona=None, key="a1", headers=(), **fields):
    return httpx.put(f"{url}/v1/personas/{name}", json={**(persona or PERSONA), **fields}, headers={**head(key), **dict(headers)}, timeout=60)


def get(url, name, key="a1"):
    return httpx.get(f"{url}/v1/personas/{name}", headers=head(key), timeout=10)


def ask(url, persona, messages, key="a1", **fields):
    return post_chat(url, {"model": MODEL, "messages": messages, "max_tokens": 8, "persona": persona, **fields}, headers=head(key))


def said(text):
    return [{"role": "user", "content": text}]


def usage_of(response):
    assert response.status_code == 200, response.text
    usage = response.json()["usage"]
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def text_of(response):
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["message"]["content"]


def code_of(response):
    return response.status_code, response.json()["error"]["code"], response.json()["error"]["param"]


def test_the_first_user_finds_the_card_computed_and_every_other_does(fleet):
    made = put(fleet.url, "tubo", pin=True)
    assert made.status_code == 201, made.text
    body = made.json()
    assert body["version"] == 1 and body["prefix"]["pinned"] and len(body["prefix"]["nodes"]) == 1
    assert [w.split("'")[1] for w in body["warnings"]] == ["card", "examples"], "both name {{user}}"
    card = body["prefix"]["tokens"]
    assert card > 500
    for user in ("Ann", "Ben", "Cleo"):
        prompt, cached = usage_of(ask(fleet.url, {"name": "tubo", "user": user}, said(f"I am {user}. What do you do?")))
        assert cached >= card // BLOCK * BLOCK and prompt > card
        assert cached / prompt > 0.9
    table = httpx.get(f"{fleet.gateway.metrics_url}/metrics", timeout=5).text
    assert 'troupe_gateway_persona_requests_total{persona="tubo"} 3' in table
    wait_until(lambda: "persona=tubo@1" in (fleet.log_dir / "access").read_text(), 10, "the access log names it")


def test_a_request_is_the_same_as_its_messages_sent_plainly(fleet):
    put(fleet.url, "tubo")
    history = [*said("Hello"), {"role": "assistant", "content": "Good day."}, *said("And the tower, and its bell?")]
    plain = [{"role": "system", "content": SHARED}, {"role": "system", "content": "User is called Ann."},
             history[0], {"role": "system", "content": "The bell is cracked."}, history[1],
             {"role": "system", "content": "The tower leans, Ann."}, history[2],
             {"role": "system", "content": "Answer as Tubo Renn, in the evening."}]
    fields = {"max_tokens": 24, "seed": 7, "temperature": 0.8}
    named = ask(fleet.url, {"name": "tubo", "user": "Ann", "variables": {"mood": "evening"}}, history, **fields)
    sent = post_chat(fleet.url, {"model": MODEL, "messages": plain, **fields}, headers=head())
    assert text_of(named) == text_of(sent) and usage_of(named)[0] == usage_of(sent)[0]
    set_of = lambda r: r.headers["x-route-decision"].split(";")[0]
    assert set_of(named) == set_of(ask(fleet.url, "tubo", said("Hi")))
    streamed = ask(fleet.url, {"name": "tubo"}, said("Hi"), stream=True)
    assert streamed.status_code == 200 and "data: [DONE]" in streamed.text


def test_versions_are_kept_and_tags_guard_them(fleet):
    first = put(fleet.url, "sevina", {"card": "You are one."}).headers["etag"]
    again = put(fleet.url, "sevina", {"card": "You are one."})
    assert again.status_code == 200 and again.headers["etag"] == first and not again.json()["new_version"]
    assert code_of(put(fleet.url, "sevina", {"card": "x"}, headers={"if-match": '"9-0"'}))[:2] == (412, "precondition_failed")
    assert code_of(put(fleet.url, "sevina", {"card": "x"}, headers={"if-none-match": "*"}))[:2] == (412, "precondition_failed")
    second = put(fleet.url, "sevina", {"card": "You are two, and longer than the other one was."}, headers={"if-match": first})
    assert second.json()["version"] == 2 and second.json()["versions"] == [1, 2]
    prompts = [usage_of(ask(fleet.url, {"name": "sevina", "version": v}, said("Hi")))[0] for v in (1, 2)]
    assert prompts[0] < prompts[1] == usage_of(ask(fleet.url, "sevina", said("Hi")))[0]
    put(fleet.url, "sevina", {"card": "You are three."})
    assert code_of(ask(fleet.url, {"name": "sevina", "version": 1}, said("Hi"))) == (404, "persona_not_found", "persona.version")
    older = httpx.get(f"{fleet.url}/v1/personas/sevina?version=2", headers=head(), timeout=5).json()
    assert older["definition"]["card"].startswith("You are two") and older["versions"] == [2, 3]


def test_a_tenants_personas_are_its_own_and_the_folders_are_everybodys(fleet):
    put(fleet.url, "neton", {"card": "You are a's."})
    assert get(fleet.url, "neton", "a2").json()["definition"] == {"card": "You are a's."}
    assert get(fleet.url, "neton", "b1").json()["read_only"], "of the folder"
    put(fleet.url, "only-a", {"card": "You are a's."})
    assert code_of(get(fleet.url, "only-a", "b1")) == (404, "persona_not_found", "name")
    assert code_of(ask(fleet.url, "only-a", said("Hi"), "b1")) == (404, "persona_not_found", "persona")
    names = lambda key: {p["name"] for p in httpx.get(f"{fleet.url}/v1/personas", headers=head(key), timeout=5).json()["data"]}
    assert names("b1") == {path.stem for path in FOLDER.glob("*.yaml")}
    assert names("a1") >= names("b1") | {"only-a"}
    assert "Rumosa" in text_of(ask(fleet.url, "lady-sevina", said("Where are you from?"), "b1", temperature=0, max_tokens=24))
    gone = httpx.delete(f"{fleet.url}/v1/personas/lady-sevina", headers=head("b1"), timeout=5)
    assert code_of(gone)[:2] == (409, "persona_read_only")
    assert httpx.get(f"{fleet.url}/v1/personas", timeout=5).status_code == 401


def test_a_persona_that_goes_takes_its_pin_with_it(fleet):
    pins = lambda: {p["id"] for p in httpx.get(f"{fleet.url}/v1/prefixes", headers=head("b1"), timeout=5).json()["data"]}
    old = put(fleet.url, "宋江", key="b1", pin=True).json()["prefix"]["id"]
    assert pins() == {old}
    new = put(fleet.url, "宋江", {**PERSONA, "card": "Now " + CARD}, key="b1", pin=True).json()["prefix"]["id"]
    assert new != old and pins() == {new}, "the version before it is not kept computed"
    same = put(fleet.url, "宋江", {**PERSONA, "card": "Now " + CARD, "post_history": "Brief."}, key="b1", pin=True).json()
    assert same["version"] == 3 and same["prefix"]["id"] == new and pins() == {new}, "the card is the same"
    deleted = httpx.delete(f"{fleet.url}/v1/personas/宋江", headers=head("b1"), timeout=10)
    assert deleted.status_code == 200 and deleted.json()["deleted"] and pins() == set()
    assert get(fleet.url, "宋江", "b1").status_code == 404


def test_errors_name_the_field(fleet):
    bad = put(fleet.url, "x", {"card": "It is {{time}}."})
    assert bad.status_code == 400 and bad.json()["error"]["param"] == "card"
    bad = put(fleet.url, "x", {"card": "x", "lore": [{"keys": ["a"], "content": "{{random:a,b}}"}]})
    assert bad.status_code == 400 and bad.json()["error"]["param"] == "lore[0]"
    assert code_of(ask(fleet.url, "nobody", said("Hi"))) == (404, "persona_not_found", "persona")
    put(fleet.url, "x", {"card": "x", "post_history": "It is {{time}}."})
    assert ask(fleet.url, "x", said("Hi")).json()["error"]["param"] == "persona.variables.time"
    assert ask(fleet.url, {"name": "x", "variables": {"time": "noon"}}, said("Hi")).status_code == 200
    assert put(fleet.url, "x", {"card": "y" * 300_000}).status_code in (400, 413)
    worker = post_chat(fleet.workers[0].url, {"model": MODEL, "messages": said("Hi"), "persona": "x"})
    assert worker.status_code == 400 and worker.json()["error"]["param"] == "persona", "a worker does not leave it out in silence"


def test_a_group_speaks_by_turns(fleet):
    for name, card in (("tubo", CARD), ("mora", "You are playing {{char}}, who sails. " * 20)):
        assert put(fleet.url, name, {"card": card, "name": name.title()}).status_code in (200, 201)
    alone = usage_of(ask(fleet.url, {"name": "tubo"}, said("Hi")))[0]
    # The speaker's card is the one that its own conversations have, whoever asks and whoever else is there.
    for user in ("Ann", "Bob"):
        swapped = ask(fleet.url, {"name": "tubo", "others": ["mora"], "user": user}, said(f"I am {user}, hello."))
        assert usage_of(swapped)[1] >= alone - 3 * BLOCK, swapped.text
    # Joined cards begin every speaker's prompt: with another one all but the end is there.
    talk = [*said("Hello, both of you!"), {"role": "assistant", "name": "Mora", "content": "Ahoy, Ann."}, *said("And you?")]
    first = ask(fleet.url, {"name": "mora", "others": ["tubo"], "cards": "join", "user": "Ann"}, talk)
    other = ask(fleet.url, {"name": "tubo", "others": ["mora"], "cards": "join", "user": "Ann"}, talk)
    # (card, user's note, three messages, whose turn it is: the last alone is another one)
    assert other.json()["usage"]["prompt_tokens_details"]["cache_break"]["message"] >= 4, other.text
    assert route_decision(first)["set"] == route_decision(other)["set"] != route_decision(swapped)["set"]
    assert code_of(ask(fleet.url, {"name": "tubo", "others": ["nobody"]}, talk)) == (404, "persona_not_found", "persona.others")


def test_a_gateway_that_begins_again_has_them(fleet, tmp_path):
    flags = (*flags_at(tmp_path), "--personas.file", tmp_path / "personas")
    urls = [worker.url for worker in fleet.workers]
    one = Gateway(urls, tmp_path, flags)
    one.wait_ready()
    made = put(one.url, "tubo", pin=True)
    put(one.url, "gone", {"card": "x"})
    httpx.delete(f"{one.url}/v1/personas/gone", headers=head(), timeout=10).raise_for_status()
    one.kill()  # what was answered is on the disk
    assert (tmp_path / "personas").stat().st_mode & 0o777 == 0o600
    other = Gateway(urls, tmp_path, flags)
    try:
        other.wait_ready()
        assert get(other.url, "tubo").headers["etag"] == made.headers["etag"]
        assert get(other.url, "tubo").json()["prefix"] == made.json()["prefix"]["id"]
        assert get(other.url, "gone").status_code == 404
        assert put(other.url, "tubo", {"card": "x"}).json()["version"] == 2
    finally:
        other.stop()


def test_gateways_that_share_etcd_share_them(logs):
    with Shared(logs, workers=1, gateways=2, gateway_flags=flags_at(logs)) as shared:
        one, other = shared.gateways
        made = put(one.url, "宋江", {"card": "You are {{char}}."})
        assert made.status_code == 201, made.text
        wait_until(lambda: get(other.url, "宋江").status_code == 200, 5, "the other one has heard of it")
        assert get(other.url, "宋江").headers["etag"] == made.headers["etag"]
        assert get(other.url, "宋江", "b1").status_code == 404
        assert ask(other.url, "宋江", said("Hi")).status_code == 200
        # Two at once make two versions.
        versions = sorted(put(gateway.url, "宋江", {"card": f"You are {i}."}).json()["version"] for i, gateway in enumerate(shared.gateways))
        assert versions == [2, 3]
        ((key, record),) = shared.etcd.keys("personas/").items()
        assert key.endswith("/宋江") and [v["number"] for v in json.loads(record)["versions"]] == [1, 2, 3]
        httpx.delete(f"{other.url}/v1/personas/宋江", headers=head(), timeout=10).raise_for_status()
        wait_until(lambda: get(one.url, "宋江").status_code == 404, 5, "it is gone everywhere")
        assert shared.etcd.keys("personas/") == {}

"""A web page that asks the gateway from elsewhere, in a real browser: as `cors.allowed_origins` has it, and never the operators' part."""
import hashlib
import http.server
import json
import threading

import httpx
import pytest

from browser import Browser
from fleet import MODEL, Fleet, chat_body, free_port
from test_openai_client import messages

EMPTY, REBOUND, KEY = "/dev/null", "rebound.example.com", "sk-front-end"


class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self):  # noqa: N802 (the base class calls it by this name)
        page = b"<!doctype html><title>a page from elsewhere</title><link rel=icon href=data:,>"
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_):
        pass


def serve_pages():
    """A site's origin: a server of its own on a port of its own."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", free_port()), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def origin_of(site):
    return f"http://127.0.0.1:{site.server_port}"


@pytest.fixture(scope="module")
def sites():
    """(one that the gateway's settings name, one that they do not)"""
    started = serve_pages(), serve_pages()
    yield started
    for site in started:
        site.shutdown()
        site.server_close()


@pytest.fixture(scope="module")
def fleet(logs, sites):
    keys = logs / "keys.yaml"
    keys.write_text(f"front-end:\n  sha256: {hashlib.sha256(KEY.encode()).hexdigest()}\n")
    settings = logs / "gateway.yaml"
    settings.write_text(f"cors:\n  allowed_origins: [{origin_of(sites[0])}]\napi_keys: {keys}\n")
    with Fleet(logs, workers=1, gateway_flags=["--config", settings]) as running:
        yield running


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser"), [f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1"]) as started:
        yield started


@pytest.fixture
def visit(browser):
    """visit(site): its page, open."""
    opened = []

    def open_page(site):
        page = browser.open(EMPTY)
        page.go(site if isinstance(site, str) else f"{origin_of(site)}/")
        opened.append(page)
        return page

    yield open_page
    for page in opened:
        page.close()


# What fetch() came to: {"failed": …} where the browser kept the answer from the page.
ASK = """(async (url, options) => {
  try {
    const answer = await fetch(url, options);
    const headers = Object.fromEntries(["x-request-id", "x-route-decision", "retry-after"].map(name => [name, answer.headers.get(name)]));
    const pieces = [], reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) pieces.push(piece.value);
    return {status: answer.status, headers, text: pieces.join("")};
  } catch (error) { return {failed: String(error)}; }
})"""


def fetch(page, url, body=None, **options):
    """fetch() of the page. A body in JSON makes the browser ask first (OPTIONS)."""
    if body is not None:
        options = {"method": "POST", "body": json.dumps(body), **options}
    return page.evaluate(f"{ASK}({json.dumps(url)}, {json.dumps(options)})")


AS_JSON = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}


def ask(page, fleet, headers=AS_JSON, **fields):
    body = chat_body(messages("Who is your best friend?"), max_tokens=24, **fields)
    return fetch(page, f"{fleet.url}/v1/chat/completions", body, headers=headers)


def test_a_page_that_is_allowed_asks_and_reads_whole_answers_and_headers(visit, sites, fleet):
    answer = ask(visit(sites[0]), fleet, headers={**AS_JSON, "x-request-id": "page-1", "x-session-id": "talk-1"})
    assert answer.get("status") == 200, answer
    assert "Dazin" in json.loads(answer["text"])["choices"][0]["message"]["content"]
    assert answer["headers"]["x-request-id"] == "page-1" and "node=" in answer["headers"]["x-route-decision"]
    models = fetch(visit(sites[0]), f"{fleet.url}/v1/models", headers={"authorization": f"Bearer {KEY}"})
    assert MODEL in models["text"]


def test_it_reads_a_stream_as_it_comes(visit, sites, fleet):
    answer = ask(visit(sites[0]), fleet, stream=True)
    assert answer.get("status") == 200 and answer["headers"]["x-route-decision"], answer
    events = [line[len("data: "):] for line in answer["text"].splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    assert "Dazin" in "".join(choice["delta"].get("content") or "" for event in events[:-1] for choice in json.loads(event)["choices"])


def test_it_reads_errors(visit, sites, fleet):
    page = visit(sites[0])
    wrong = ask(page, fleet, temperature=7)
    assert wrong.get("status") == 400 and json.loads(wrong["text"])["error"]["param"] == "temperature", wrong
    keyless = ask(page, fleet, headers={"content-type": "application/json"})
    assert keyless.get("status") == 401 and keyless["headers"]["x-request-id"], keyless
    assert fetch(page, f"{fleet.url}/nowhere", headers={"authorization": f"Bearer {KEY}"}).get("status") == 404


def test_a_page_that_is_not_allowed_reads_nothing(visit, sites, fleet):
    page = visit(sites[1])
    for answer in (ask(page, fleet), ask(page, fleet, stream=True), fetch(page, f"{fleet.url}/v1/models"), fetch(page, f"{fleet.url}/health")):
        assert "failed" in answer, answer
    assert any("CORS" in trouble for trouble in page.troubles), page.troubles


def test_without_the_setting_no_page_reads(visit, sites, start):
    answer = ask(visit(sites[0]), start(workers=1))
    assert "failed" in answer, answer


@pytest.fixture(scope="module")
def open_fleet(logs):
    """Every page may ask, and no key is needed: what refuses a page here is that it is one."""
    settings = logs / "open.yaml"
    settings.write_text('cors:\n  allowed_origins: ["*"]\n')
    with Fleet(logs, workers=1, gateway_flags=["--config", settings]) as running:
        yield running


# A form needs no fetch(), and its text can be made JSON.
SEND_FORM = """(url => new Promise(done => {
  const sink = Object.assign(document.createElement("iframe"), {name: "sink"});
  const form = Object.assign(document.createElement("form"), {action: url, method: "post", enctype: "text/plain", target: "sink"});
  form.append(Object.assign(document.createElement("input"), {name: '{"url": "http://127.0.0.1:1', value: '"}'}));
  document.body.append(sink, form);
  sink.onload = () => done(0);
  form.submit();
}))"""


def test_no_page_changes_the_fleet(visit, sites, open_fleet):
    page, admin = visit(sites[0]), f"{open_fleet.gateway.metrics_url}/admin/workers"
    known = lambda: [(worker["id"], worker["state"]) for worker in httpx.get(admin, timeout=5).json()["workers"]]
    before, stranger = known(), {"url": f"http://127.0.0.1:{free_port()}"}
    assert ask(page, open_fleet)["status"] == 200, "it may ask the model"
    # With JSON the browser asks first; as text, or where the answer is not waited for, it sends at once.
    for options in ({"headers": {"content-type": "application/json"}}, {"headers": {"content-type": "text/plain"}}, {"mode": "no-cors"},
                    {"headers": {"content-type": "application/json"}, "method": "DELETE"}):
        fetch(page, admin, stranger, **options)
    fetch(page, f"{admin}/{before[0][0]}/drain", {}, mode="no-cors")
    assert page.evaluate(f"navigator.sendBeacon({json.dumps(admin)}, {json.dumps(json.dumps(stranger))})")
    page.evaluate(f"{SEND_FORM}({json.dumps(admin)})")
    assert "failed" in fetch(page, admin), "it may not even read"
    assert known() == before
    assert httpx.post(admin, json=stranger, timeout=5).status_code == 200 and len(known()) == 2, "an operator may"
    httpx.request("DELETE", admin, json=stranger, timeout=5)


def test_a_name_that_comes_to_mean_this_machine_opens_no_door(visit, open_fleet):
    """DNS rebinding: to the browser the page is of the port's own origin, so that it may read whatever is answered."""
    page = visit(f"http://{REBOUND}:{open_fleet.gateway.metrics_port}/livez")
    for path, body in (("/admin/workers", None), ("/admin/table", None), ("/admin/workers", {"url": "http://127.0.0.1:1"})):
        answer = fetch(page, path, body, headers={"content-type": "application/json"})
        assert answer.get("status") == 403 and json.loads(answer["text"])["error"]["code"] == "cross_site", answer

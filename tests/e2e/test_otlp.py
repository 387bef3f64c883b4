"""Spans over OTLP: what the gateway sends is read by OpenTelemetry's own messages, hangs together, and no collector, however ill,
holds a request up or keeps the gateway from stopping."""
import base64
import collections
import http.server
import json
import signal
import socket
import ssl
import subprocess
import threading
import time

import httpx
import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from certificates import Authority
from figures import figure
from fleet import BIN, SimWorker, chat_body, free_port, in_parallel, post_chat, route_decision, wait_until
from test_record import fleet_metrics
from test_sim import FAST, metric, persona

CLIENT = httpx.Client(timeout=60)
IDS = ("traceId", "spanId", "parentSpanId")


def with_plain_ids(value):
    """OTLP has ids in hex where protobuf's JSON has bytes in base64."""
    if isinstance(value, list):
        return [with_plain_ids(item) for item in value]
    if not isinstance(value, dict):
        return value
    for key in IDS:
        if key in value:
            assert value[key] == value[key].lower() and len(value[key]) == (32 if key == "traceId" else 16), value
    return {key: base64.b64encode(bytes.fromhex(item)).decode() if key in IDS else with_plain_ids(item) for key, item in value.items()}


class Collector:
    """Takes batches, or answers as told: `answers` are statuses (with headers), used up one by one before it takes any."""

    def __init__(self, certificate=None):
        self.batches, self.answers, self.refused, self.faults = [], [], [], []
        self.delay_s, self.partial = 0, None
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                try:
                    outer.take(self)
                except OSError:
                    pass
                except BaseException as error:  # a test looks at it
                    outer.faults.append(repr(error))
                    raise

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self.server.server_port}/v1/traces"

    def take(self, handler):
        body = handler.rfile.read(int(handler.headers["content-length"]))
        time.sleep(self.delay_s)
        status, headers = self.answers.pop(0) if self.answers else (200, {})
        answer = b"{}"
        if status == 200:
            assert handler.path == "/v1/traces" and handler.headers["content-type"] == "application/json"
            request = ExportTraceServiceRequest()
            json_format.Parse(json.dumps(with_plain_ids(json.loads(body))), request)  # refuses what it does not know
            self.batches.append(request)
            if self.partial:
                answer = json.dumps({"partialSuccess": {"rejectedSpans": str(self.partial), "errorMessage": "no"}}).encode()
        else:
            self.refused.append(time.monotonic())
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("content-length", str(len(answer)))
        handler.end_headers()
        handler.wfile.write(answer)

    def spans(self):
        return [span for request in self.batches for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans]

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def collector():
    made = Collector()
    yield made
    made.close()
    assert made.faults == []


def fleet_with(start, url, *flags, workers=1):
    return start(workers=workers, worker_class=SimWorker, worker_flags=FAST,
                 gateway_flags=("--otlp.endpoint", url, "--otlp.interval-ms", 50, *flags))


def ask(fleet, index, **headers):
    messages = [persona(index % 5, 20), {"role": "user", "content": f"The secret of guest {index} is xyzzy"}]
    return post_chat(fleet.url, chat_body(messages, max_tokens=4), CLIENT, headers=headers)


def values(span):
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in span.attributes}


def children(spans, parent):
    return {span.name: span for span in spans if span.parent_span_id == parent.span_id}


def exported(fleet):
    return metric(fleet_metrics(fleet), "troupe_gateway_spans_exported_total")


def dropped(fleet, reason):
    return metric(fleet_metrics(fleet), f'troupe_gateway_spans_dropped_total{{reason="{reason}"}}')


def test_a_requests_spans_hang_together(start, collector):
    fleet = fleet_with(start, collector.url, "--otlp.service-name", "front", workers=2)
    trace, caller = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    answer = ask(fleet, 1, traceparent=f"00-{trace}-{caller}-01", tracestate="vendor=1")
    wait_until(lambda: len(collector.spans()) >= 4, 20, "its spans have come")
    spans = collector.spans()
    assert {span.trace_id.hex() for span in spans} == {trace}
    server = next(span for span in spans if span.kind == Span.SPAN_KIND_SERVER)
    assert server.parent_span_id.hex() == caller and server.name == "POST /v1/chat/completions"
    parts = children(spans, server)
    assert set(parts) == {"parse", "choose", "chat demo-model"} and len(spans) == 4
    assert len({span.span_id for span in spans}) == 4
    for span in spans:
        assert span.flags & 0x101 == 0x101 and bool(span.flags & 0x200) == (span is server)
        assert server.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano <= server.end_time_unix_nano
        assert abs(span.end_time_unix_nano / 1e9 - time.time()) < 60
    assert parts["parse"].end_time_unix_nano == parts["choose"].start_time_unix_nano
    said, decision = values(server), route_decision(answer)
    usage = answer.json()["usage"]
    expected = {"http.request.method": "POST", "url.path": "/v1/chat/completions", "url.scheme": "http", "http.response.status_code": 200,
                "http.route": "/v1/chat/completions", "server.address": "127.0.0.1", "server.port": fleet.gateway.port,
                "client.address": "127.0.0.1", "gen_ai.operation.name": "chat", "gen_ai.request.model": "demo-model",
                "gen_ai.usage.input_tokens": usage["prompt_tokens"], "gen_ai.usage.output_tokens": usage["completion_tokens"],
                "gen_ai.usage.cache_read.input_tokens": 0, "troupe.cached_tokens.actual": 0, "troupe.end": "answered", "troupe.attempts": 1,
                "troupe.set": decision["set"], "troupe.node": decision["node"], "troupe.branch": decision["branch"],
                "troupe.cached_tokens.expected": int(decision["expect"]), "troupe.request_id": answer.headers["x-request-id"]}
    assert {key: said.get(key) for key in expected} == expected
    upstream = parts["chat demo-model"]
    assert upstream.kind == Span.SPAN_KIND_CLIENT and [event.name for event in upstream.events] == ["first_byte"]
    assert values(upstream)["server.port"] == int(decision["node"].split(":")[1]) and values(upstream)["http.response.status_code"] == 200
    resource = {item.key: item.value.string_value for item in collector.batches[0].resource_spans[0].resource.attributes}
    assert resource["service.name"] == "front" and resource["service.instance.id"]
    assert "xyzzy" not in str(collector.batches)


def test_what_failed_is_told(start, collector):
    fleet = fleet_with(start, collector.url, "--probe.interval-ms", 60_000, workers=2)  # else a probe may know it before a request does
    assert post_chat(fleet.url, chat_body("Hi"), headers={"x-request-timeout-ms": "soon"}).status_code == 400
    holder = route_decision(ask(fleet, 1))["node"]
    next(worker for worker in fleet.workers if holder.endswith(f":{worker.port}")).kill()
    answer = ask(fleet, 1)
    assert answer.status_code == 200 and route_decision(answer)["node"] != holder
    wait_until(lambda: any("http.request.resend_count" in values(span) for span in collector.spans()), 20, "the span of a request sent again")
    spans = collector.spans()
    again = next(span for span in spans if "http.request.resend_count" in values(span))
    tries = [span for span in spans if span.parent_span_id == again.parent_span_id and span.kind == Span.SPAN_KIND_CLIENT]
    assert [values(span)["troupe.attempt"] for span in sorted(tries, key=lambda span: span.start_time_unix_nano)] == [1, 2]
    failed = next(span for span in tries if span is not again)
    assert failed.status.code == Status.STATUS_CODE_ERROR and values(failed)["error.type"] in ("connect", "transport")
    assert again.status.code == Status.STATUS_CODE_UNSET
    refused = next(span for span in spans if span.kind == Span.SPAN_KIND_SERVER and values(span).get("http.response.status_code") == 400)
    assert values(refused)["troupe.end"] == "refused" and refused.status.code == Status.STATUS_CODE_UNSET  # the client's own fault


def test_the_caller_decides_what_is_sampled_else_the_ratio(start, collector):
    trace = lambda index: f"{index + 1:032x}"
    none = fleet_with(start, collector.url, "--otlp.sample-ratio", 0)
    for index in range(20):
        ask(none, index, traceparent=f"00-{trace(index)}-00000000000000aa-{index % 2:02x}")
        ask(none, index)
        ask(none, index, traceparent="00-broken")
    wait_until(lambda: exported(none) == 40, 20, "those that were sampled have come")
    assert {span.trace_id.hex() for span in collector.spans()} == {trace(index) for index in range(1, 20, 2)}
    collector.batches.clear()
    half = fleet_with(start, collector.url, "--otlp.sample-ratio", 0.5)
    in_parallel(lambda index: ask(half, index), range(200), 8)
    wait_until(lambda: exported(half) > 0 and exported(half) == len(collector.spans()), 20, "they have come")
    time.sleep(0.3)
    traces = {span.trace_id for span in collector.spans()}
    assert 60 <= len(traces) <= 140  # of 200; five standard deviations and more
    assert not any(values(span).get("url.path") == "/health" for span in collector.spans())


def test_an_overloaded_collector_is_asked_again_when_it_says(start, collector):
    collector.answers = [(503, {"retry-after": "1"}), (429, {}), (502, {})]
    fleet = fleet_with(start, collector.url)
    in_parallel(lambda index: ask(fleet, index), range(20), 4)
    wait_until(lambda: exported(fleet) == 80, 40, "all spans have come")
    assert len(collector.spans()) == 80 and len({span.span_id for span in collector.spans()}) == 80
    assert collector.refused[1] - collector.refused[0] >= 0.99
    assert sum(dropped(fleet, reason) for reason in ("queue_full", "undelivered", "refused")) == 0
    # What it refuses for good is not sent again; what it rejects in part is counted.
    collector.batches.clear()
    collector.answers = [(400, {})]
    ask(fleet, 1)
    wait_until(lambda: dropped(fleet, "refused") == 4, 20, "a batch was refused")
    collector.partial = 3
    ask(fleet, 2)
    wait_until(lambda: dropped(fleet, "refused") == 7 and exported(fleet) == 81, 20, "and a part of one")


class Garbage:
    """Listens, and answers with what is no HTTP; or, silent, with nothing."""

    def __init__(self, words):
        self.words = words
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.peers = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            self.peers.append(peer)
            if self.words:
                peer.sendall(self.words)

    def close(self):
        self.listener.close()
        for peer in self.peers:
            peer.close()


@pytest.mark.parametrize("ill", ["down", "silent", "garbage"])
def test_an_ill_collector_costs_no_request_and_no_memory(start, ill):
    server = None if ill == "down" else Garbage(b"" if ill == "silent" else b"\x00\xff 418 what?\r\n\r\n" * 10)
    url = server.url if server else f"http://127.0.0.1:{free_port()}"
    fleet = fleet_with(start, url, "--otlp.queue-bytes", 65536, "--otlp.batch-bytes", 16384, "--shutdown-grace-period-secs", 10)
    answers = in_parallel(lambda index: ask(fleet, index), range(100), 8)
    assert [answer.status_code for answer in answers] == [200] * 100
    assert sum(dropped(fleet, reason) for reason in ("queue_full", "undelivered")) > 0 and exported(fleet) == 0
    assert metric(fleet_metrics(fleet), "troupe_gateway_spans_queue_bytes") <= 65536
    wait_until(lambda: "event=spans_not_taken" in fleet.gateway.log_path.read_text() or ill == "silent", 20, "the log says so")
    begin = time.monotonic()
    fleet.gateway.stop(15)
    took = time.monotonic() - begin
    figure(f"a gateway whose collector is ill ({ill}) stops", f"within {took:.1f} s", "< 9 s")
    assert took < 9  # 5 at most for the collector, though the grace is longer
    if server:
        server.close()


def test_what_is_there_when_it_stops_is_sent(start, collector):
    fleet = fleet_with(start, collector.url, "--otlp.interval-ms", 3_600_000)
    collector.delay_s = 0.2
    in_parallel(lambda index: ask(fleet, index), range(20), 4)
    assert collector.batches == []
    fleet.gateway.process.send_signal(signal.SIGTERM)
    fleet.gateway.process.wait(20)
    assert len(collector.spans()) == 80
    assert collections.Counter(span.name for span in collector.spans())["chat demo-model"] == 20


def test_a_collector_behind_tls_is_checked(start, tmp_path, monkeypatch):
    """With the system's authorities: nothing goes to one that they do not know, and no request notices."""
    known, unknown = Authority(tmp_path, "known"), Authority(tmp_path, "unknown")
    monkeypatch.setenv("SSL_CERT_FILE", str(known.path))
    for authority, trusted in ((known, True), (unknown, False)):
        made = Collector(authority.issue(f"collector-of-{trusted}"))
        try:
            fleet = fleet_with(start, made.url, "--otlp.timeout-ms", 2000)
            assert ask(fleet, 1).status_code == 200
            if trusted:
                wait_until(lambda: len(made.spans()) >= 4, 20, "its spans have come")
            else:
                wait_until(lambda: "spans_not_taken" in fleet.gateway.log_tail(100), 20, "the gateway says so")
                assert "certificate" in fleet.gateway.log_tail(100) and made.batches == [] and ask(fleet, 2).status_code == 200
        finally:
            made.close()
        assert made.faults == []


def test_an_endpoint_that_is_none_is_refused_by_name():
    flags = [BIN / "troupe-gateway", "--worker-urls", "http://127.0.0.1:1", "--check-config"]
    check = lambda *more: subprocess.run([str(part) for part in (*flags, *more)], capture_output=True, text=True, timeout=20)
    for url in ("ftp://collector:4318", "http://:0/v1/traces", "http://collector:4318/v1 traces"):
        done = check("--otlp.endpoint", url)
        assert done.returncode == 2 and "otlp.endpoint" in done.stderr, (url, done.stderr)
    for url in ("http://collector:4318", "http://[::1]:4318/", "collector:4318/otlp/v1/traces"):
        assert check("--otlp.endpoint", url).returncode == 0
    done = check("--otlp.endpoint", "http://collector:4318", "--otlp.sample-ratio", 2)
    assert done.returncode == 2 and "otlp.sample" in done.stderr

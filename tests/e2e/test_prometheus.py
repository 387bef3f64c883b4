"""deploy/prometheus and deploy/dashboards against a real Prometheus that scrapes a real fleet: rules load, every query has an
answer, and an alert fires when what it is about happens. (Each alert's own fault: test_alerts.py.)"""
import json
import pathlib
import re
import subprocess

import httpx
import pytest
import yaml

from fleet import Program, SimWorker, chat_body, free_port, in_parallel, post_chat, wait_until
from test_sim import FAST, persona

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yml"
DASHBOARD = json.loads((DEPLOY / "dashboards" / "troupe.json").read_text("utf-8"))


class Prometheus(Program):
    def __init__(self, fleet, folder):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        # As it is delivered, but for the hosts and a pace for a test.
        config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        targets = {"troupe-gateway": [fleet.gateway.metrics_url], "troupe-worker": [worker.url for worker in fleet.workers]}
        for job in config["scrape_configs"]:
            job["static_configs"] = [{"targets": [url.removeprefix("http://") for url in targets.pop(job["job_name"])]}]
        assert not targets
        rules = yaml.safe_load(RULES.read_text())
        for rule in (rule for group in rules["groups"] for rule in group["rules"] if "for" in rule):
            rule["for"] = "2s"
        (folder / "rules.yml").write_text(yaml.safe_dump(rules))
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        super().__init__("prometheus", ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
                                        f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn"],
                         folder, f"{self.url}/-/ready")

    def get(self, path, **parameters):
        answer = httpx.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=10).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def values(self, query):
        return [float(result["value"][1]) for result in self.get("query", query=query)["result"]]

    def rules(self):
        return [rule for group in self.get("rules")["groups"] for rule in group["rules"]]


@pytest.fixture
def watched(start, tmp_path):
    # With a record, an access log, spans and another gateway (that is never there), so that all metrics are.
    fleet = start(workers=3, worker_class=SimWorker, worker_flags=FAST, gateway_flags=(
        "--record", tmp_path / "traffic.jsonl", "--access-log", tmp_path / "access.log",
        "--otlp.endpoint", f"http://127.0.0.1:{free_port()}", "--gossip.peers", f"http://127.0.0.1:{free_port()}"))
    prometheus = Prometheus(fleet, tmp_path)
    try:
        prometheus.wait_ready(60)
        yield fleet, prometheus
    finally:
        prometheus.kill()


def some_traffic(fleet, count=40):
    ask = lambda index: post_chat(fleet.url, chat_body([persona(index % 5, 30), {"role": "user", "content": f"Guest {index}"}], max_tokens=4))
    assert [answer.status_code for answer in in_parallel(ask, range(count), 8)] == [200] * count


def test_promtool_finds_nothing():
    for kind, name in (("rules", "rules.yml"), ("config", "prometheus.yml")):
        done = subprocess.run(["promtool", "check", kind, DEPLOY / "prometheus" / name], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_series_and_panel_has_values(watched):
    fleet, prometheus = watched

    def all_there():
        some_traffic(fleet)
        return all(prometheus.values(name) for name in ("fleet:troupe_prefix_hit:ratio_rate5m", "fleet:troupe_ttfb_seconds:p99_rate5m",
                                                        "fleet:troupe_work:cov5m"))
    wait_until(all_there, 60, "rates are known")
    recorded = [rule for rule in prometheus.rules() if rule["type"] == "recording"]
    alerts = [rule for rule in prometheus.rules() if rule["type"] == "alerting"]
    assert len(recorded) + len(alerts) == sum(len(group["rules"]) for group in yaml.safe_load(RULES.read_text())["groups"])
    wait_until(lambda: all(rule["health"] == "ok" for rule in prometheus.rules()), 30, "every rule was evaluated")
    values = {rule["name"]: prometheus.values(rule["name"]) for rule in recorded}
    assert [name for name, found in values.items() if not found] == []
    for name, (low, high) in {"fleet:troupe_prefix_hit:ratio_rate5m": (0.3, 1), "fleet:troupe_failed:ratio_rate5m": (0, 0),
                              "fleet:troupe_expected_over_cached:ratio_rate5m": (0.5, 1.5)}.items():
        assert low <= values[name][0] <= high, (name, values[name])
    # What an alert looks at exists: a metric that is renamed would silence it.
    for rule in alerts:
        looked_at = re.sub(r"\s*(==|<|>)\s*[\d.]+.*$", "", rule["query"])
        assert prometheus.values(looked_at), rule["query"]
        assert rule["annotations"]["summary"] and rule["annotations"]["description"]
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            assert prometheus.values(target["expr"]), (panel["title"], target["expr"])


def test_a_dead_worker_is_an_alert(watched):
    fleet, prometheus = watched
    some_traffic(fleet)
    state = lambda: {rule["name"]: rule["state"] for rule in prometheus.rules() if rule["type"] == "alerting"}
    assert state()["TroupeWorkerDown"] == "inactive"
    fleet.workers[0].kill()
    wait_until(lambda: state()["TroupeWorkerDown"] == "firing", 60, "the alert about the worker fires")
    some_traffic(fleet)
    assert state()["TroupeGatewayDown"] == "inactive" and state()["TroupeRequestsFail"] == "inactive"
    # One that is taken out for good is missed by nobody.
    removed = httpx.request("DELETE", f"{fleet.gateway.metrics_url}/admin/workers", json={"url": fleet.workers[0].url}, timeout=5)
    assert removed.status_code == 200, removed.text
    wait_until(lambda: state()["TroupeWorkerDown"] == "inactive", 60, "the alert about the worker ends")

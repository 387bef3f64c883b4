"""SIGHUP while requests run: workers, limits and weights change, a mistake changes nothing, and nobody's request fails."""
import signal

import httpx
import yaml

from figures import figure
from fleet import Gateway, SimWorker, chat_body, post_chat, wait_until
from persona_load import PersonaLoad

FLAGS = ("--sim-speed", 4)


class Config:
    def __init__(self, path):
        self.path = path

    def write(self, workers, **more):
        self.path.write_text(yaml.safe_dump({"worker_urls": [w.url for w in workers], "probe": {"interval_ms": 100}, **more}))


def reload(gateway, event, count):
    gateway.process.send_signal(signal.SIGHUP)
    lines = lambda: [line for line in gateway.log_path.read_text().splitlines() if f"event={event} " in line + " "]
    wait_until(lambda: len(lines()) >= count, 10, f"{event} in the log")
    return lines()[-1]


def workers_of(gateway):
    listed = httpx.get(f"{gateway.metrics_url}/admin/workers", timeout=5).json()["workers"]
    return {worker["url"]: worker["state"] for worker in listed}


def test_a_gateway_changes_under_load(logs, tmp_path):
    config = Config(tmp_path / "gateway.yaml")
    workers = [SimWorker(index, logs, FLAGS) for index in range(3)]
    gateway = None
    try:
        for worker in workers:
            worker.wait_ready()
        config.write(workers[:2])
        gateway = Gateway([], logs, ["--config", config.path])
        gateway.expected_errors = ["not_reloaded"]
        gateway.wait_ready()
        with PersonaLoad(gateway.url, starts_per_s=4) as load:
            load.wait_warm(40)
            config.write(workers[1:], route={"load_tokens": 400}, limits={"body_bytes": 100_000}, port=1)
            line = reload(gateway, "reloaded", 1)
            # (The port is given as a flag, which wins.)
            assert "worker_urls" in line and "route.load_tokens" in line and "limits.body_bytes" in line, line
            wait_until(lambda: workers_of(gateway) == {w.url: "ready" for w in workers[1:]}, 20, "one has gone, one has come")
            load.wait_warm(len(load.asked) + 40)
            last = load.asked[-20:]
            assert not any(f";node=127.0.0.1:{workers[0].port};" in asked.node for asked in last)
            large = post_chat(gateway.url, chat_body("x" * 200_000, max_tokens=1))
            assert large.status_code == 413, large.text

            config.write(workers, limits={"requests": -1})
            assert "limits.requests" in reload(gateway, "not_reloaded", 1)
            config.write(workers[1:], route={"load_tokens": 400}, limits={"body_bytes": 100_000}, mode="gossip")
            assert "key=mode" in reload(gateway, "not_changed", 1)
            assert workers_of(gateway) == {w.url: "ready" for w in workers[1:]}
        assert load.failed() == []
        figure("requests that failed while workers, limits and weights changed", f"0 of {len(load.asked)}", "0")
    finally:
        for program in [*([gateway] if gateway else []), *workers]:
            program.stop()

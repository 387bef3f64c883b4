"""`resolve: each`: every address of a name is a worker of its own, over TLS with a certificate that is the name's. The gateway has an
/etc/hosts of its own, in which its workers come and go."""
import os
import subprocess

import httpx
import pytest

from certificates import Authority
from fleet import BIN, Gateway, Program, SimWorker, chat_body, free_port, post_chat, wait_until

NAME = "workers.test"


def possible():
    """None, or why not."""
    if os.geteuid() != 0:
        return "needs root"
    tried = subprocess.run(["unshare", "-m", "mount", "--bind", "/etc/hosts", "/etc/hosts"], capture_output=True, text=True)
    return tried.stderr.strip() if tried.returncode else None


class WorkerAt(SimWorker):
    """At one address of this machine; the port is the same at all."""

    def __init__(self, address, port, log_dir, files, authority):
        self.address, self.port, self.url = address, port, f"https://{address}:{port}"
        command = [BIN / "troupe-worker", "--host", address, "--port", port, *self.OWN_FLAGS, "--tls.certificate", files[0],
                   "--tls.private-key", files[1]]
        self.client = httpx.Client(verify=False)
        self.authority = authority
        Program.__init__(self, f"worker-{address}", command, log_dir, None)

    def load(self):
        return self.client.get(f"{self.url}/v1/load", timeout=5).json()

    def is_ready(self):
        try:
            return self.client.get(f"{self.url}/readyz", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False


class NamedGateway(Gateway):
    def __init__(self, port, log_dir, authority):
        self.hosts, config = log_dir / "hosts", log_dir / "gateway.yaml"
        self.port, self.metrics_port = free_port(), free_port()
        self.url, self.metrics_url = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.metrics_port}"
        self.name_has()
        config.write_text(f"worker_urls: []\nupstreams:\n  - {{url: 'https://{NAME}:{port}', resolve: each, tls: {{ca_file: {authority.path}}}}}\n"
                          "upstream: {resolve_secs: 1}\nprobe: {interval_ms: 100}\n")
        command = ["unshare", "-m", "sh", "-c", f'mount --make-rprivate / && mount --bind "{self.hosts}" /etc/hosts && exec "$@"', "-",
                   BIN / "troupe-gateway", "--config", config, "--port", self.port, "--metrics-port", self.metrics_port]
        Program.__init__(self, "gateway", command, log_dir, f"{self.metrics_url}/readyz")

    def name_has(self, *addresses):
        """(In place: the gateway has this very file.)"""
        self.hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{address} {NAME}\n" for address in addresses))

    def states(self):
        workers = httpx.get(f"{self.metrics_url}/admin/workers", timeout=5).json()["workers"]
        return {worker["id"].partition("/")[2]: worker["state"] for worker in workers}


def test_workers_come_and_go_with_their_addresses(tmp_path):
    if why := possible():
        pytest.skip(why)
    authority, port = Authority(tmp_path, "authority"), free_port()
    files = authority.issue("server", f"DNS:{NAME}")
    addresses = [f"127.0.0.{i}" for i in (1, 2, 3)]
    workers = [WorkerAt(address, port, tmp_path, files, authority) for address in addresses]
    gateway = NamedGateway(port, tmp_path, authority)
    try:
        wait_until(lambda: all(worker.is_ready() for worker in workers), 30, "all workers are ready")
        gateway.name_has(*addresses[:2])
        wait_until(lambda: gateway.states() == dict.fromkeys(addresses[:2], "ready"), 20, "each address is a worker, and its certificate the name's")

        def ask(count):
            for i in range(count):
                body = chat_body([{"role": "system", "content": f"You are character {i}. " * 40}, {"role": "user", "content": "Hello"}], max_tokens=2)
                assert post_chat(gateway.url, body).status_code == 200
        ask(20)
        assert all(worker.load()["work_tokens_total"] > 0 for worker in workers[:2]) and workers[2].load()["work_tokens_total"] == 0
        gateway.name_has(*addresses[1:])
        wait_until(lambda: gateway.states() == dict.fromkeys(addresses[1:], "ready"), 20, "one has left, another come")
        ask(5)
        gateway.name_has()
        workers[1].kill()
        wait_until(lambda: gateway.states() == {addresses[1]: "dead", addresses[2]: "ready"}, 20, "each is probed by itself; while the name has no address all stay")
        ask(5)
    finally:
        gateway.stop()
        for worker in workers:
            worker.kill()

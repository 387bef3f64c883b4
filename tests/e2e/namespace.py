"""A worker whose network can be cut: inside a network namespace, with one cable to ours. Needs root and `ip` (iproute2)."""
import os
import shutil
import subprocess

from fleet import BIN, Program, SimWorker, free_port


class Namespace:
    """A network of its own, one cable to ours. `cut()` takes it out: whatever is sent is lost without a word."""

    def __init__(self, number):
        self.name, self.cable = f"troupe{os.getpid()}", f"tr{os.getpid() % 100000}"
        net = f"10.231.{number}"
        self.address, self.hosts = f"{net}.2", f"{net}.1"
        # Neighbours are written down: nobody learns from a question unanswered that the cable is out.
        near, far = "02:00:00:00:07:01", "02:00:00:00:07:02"
        self._ip("netns", "add", self.name)
        try:
            self._ip("link", "add", self.cable, "address", near, "type", "veth", "peer", "name", "eth0", "address", far, "netns", self.name)
            self._ip("addr", "add", f"{self.hosts}/30", "dev", self.cable)
            self._ip("link", "set", self.cable, "up")
            self._inside("addr", "add", f"{self.address}/30", "dev", "eth0")
            self._inside("link", "set", "eth0", "up")
            self._inside("link", "set", "lo", "up")
            self._ip("neigh", "replace", self.address, "lladdr", far, "nud", "permanent", "dev", self.cable)
            self._inside("neigh", "replace", self.hosts, "lladdr", near, "nud", "permanent", "dev", "eth0")
        except BaseException:
            self.remove()
            raise

    @staticmethod
    def _ip(*arguments):
        subprocess.run(["ip", *arguments], check=True, capture_output=True)

    def _inside(self, *arguments):
        self._ip("-n", self.name, *arguments)

    def cut(self):
        self._inside("link", "set", "eth0", "down")

    def mend(self):
        self._inside("link", "set", "eth0", "up")
        self._inside("neigh", "replace", self.hosts, "lladdr", "02:00:00:00:07:01", "nud", "permanent", "dev", "eth0")

    def remove(self):
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True)
        subprocess.run(["ip", "link", "del", self.cable], capture_output=True)

    @staticmethod
    def possible():
        """None, or why not."""
        if shutil.which("ip") is None:
            return "no `ip` command (package iproute2)"
        if os.geteuid() != 0:
            return "needs root"
        try:
            Namespace(6).remove()
        except subprocess.CalledProcessError as error:
            return error.stderr.decode().strip()
        return None


class FarWorker(SimWorker):
    """A worker inside a namespace. Of what is on this side of the cable it reaches nothing on loopback, so its etcd, if it is to have
    one, must be asked at `namespace.hosts`; else gateways are told of it."""

    def __init__(self, index, log_dir, flags, namespace):
        self.port = free_port()
        self.url = f"http://{namespace.address}:{self.port}"
        command = ["ip", "netns", "exec", namespace.name, BIN / "troupe-worker", "--host", namespace.address, "--port", self.port,
                   *self.OWN_FLAGS, *flags]
        Program.__init__(self, f"worker-{index}-{self.port}", command, log_dir, f"{self.url}/readyz")

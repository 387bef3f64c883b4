"""Who has nothing to do sleeps: an idle gateway is woken by its probes, a few times a second, and by no tick of its own."""
import pathlib
import time

from figures import figure
from fleet import SimWorker

SECONDS = 3
WAKES_MAX = 30  # a second; probes and what is told once a second make about a dozen


def wakes(pid):
    """How often its threads have slept so far."""
    statuses = [(task / "status").read_text() for task in pathlib.Path(f"/proc/{pid}/task").iterdir()]
    return sum(int(line.split()[1]) for status in statuses for line in status.splitlines() if line.startswith("voluntary_ctxt_switches"))


def test_an_idle_gateway_sleeps(start):
    gateway = start(workers=1, worker_class=SimWorker).gateway
    time.sleep(1)  # what begins has begun
    before, began = wakes(gateway.pid), time.monotonic()
    time.sleep(SECONDS)
    a_second = (wakes(gateway.pid) - before) / (time.monotonic() - began)
    figure("wakes of an idle gateway", f"{a_second:.1f} a second", f"< {WAKES_MAX}")
    assert a_second < WAKES_MAX

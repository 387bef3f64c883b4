"""What can be broken in a ChaosFleet, and schedules of it: what was done to whom and when, which can be done again.

A run's schedule is a line `schedule: {"seed": 1, "rate": 53, "faults": [{"fault": "kill", "victim": 3, "at_s": 20.1, "for_s": 8}]}`.
Victims of a first run are chosen by what the fleet does then (the busiest worker), so they are written down by number, and a second
run takes them from there.
"""
import dataclasses
import json
import os
import pathlib
import signal
import time

import httpx

from fleet import wait_until


@dataclasses.dataclass
class Done:
    fault: str
    victim: int | None  # number of the worker, or of the gateway; None: no single one
    at_s: float         # since the load began
    for_s: float


@dataclasses.dataclass
class Schedule:
    seed: int
    rate: float
    faults: list  # of Done, in order of time

    def line(self):
        return "schedule: " + json.dumps(dataclasses.asdict(self))


def _checked(entry, kinds, where):
    """A dict as a dataclass; `kinds`: type by field."""
    if not isinstance(entry, dict) or set(entry) != set(kinds):
        raise ValueError(f"{where}: must have the fields {', '.join(kinds)}, and has {', '.join(entry) if isinstance(entry, dict) else entry!r}")
    for name, kind in kinds.items():
        if not isinstance(entry[name], kind) or isinstance(entry[name], bool):
            raise ValueError(f"{where}: field '{name}' is {entry[name]!r}; a first run's output shows what would be right")
    return entry


NUMBER, RUNS_MAX, FAULTS_MAX = (int, float), 1000, 10000


def read_schedules(path, known):
    """Of every line that begins with `schedule: ` (a run's whole output may be given); `known`: names of faults. ValueError names the
    line and field."""
    schedules = []
    for number, line in enumerate(pathlib.Path(path).read_text("utf-8").splitlines(), 1):
        if not line.startswith("schedule: "):
            continue
        where = f"{path}:{number}"
        try:
            entry = json.loads(line.removeprefix("schedule: "))
        except json.JSONDecodeError as error:
            raise ValueError(f"{where}: not JSON: {error}") from None
        _checked(entry, {"seed": int, "rate": NUMBER, "faults": list}, where)
        faults = [Done(**_checked(one, {"fault": str, "victim": (int, type(None)), "at_s": NUMBER, "for_s": NUMBER}, f"{where}: faults"))
                  for one in entry["faults"][:FAULTS_MAX]]
        for one in faults:
            if one.fault not in known:
                raise ValueError(f"{where}: field 'fault': no fault is named {one.fault!r}; there are {', '.join(known)}")
            if not 0 <= one.at_s < 1e6 or not 0 <= one.for_s < 1e6:
                raise ValueError(f"{where}: fields 'at_s' and 'for_s' are seconds >= 0, not {one.at_s} and {one.for_s}")
        schedules.append(Schedule(entry["seed"], entry["rate"], sorted(faults, key=lambda one: one.at_s)))
    if not schedules:
        raise ValueError(f"{path}: no line begins with 'schedule: '; give what an earlier run printed")
    return schedules[:RUNS_MAX]


BACK_S = 30  # in which whoever was lost is to be used again


def hit_tokens(worker):
    """Of prompts that were asked of it, those that it held."""
    lines = httpx.get(f"{worker.url}/metrics", timeout=5).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:prefix_cache_hits_total"))


# Each fault begins when it is called with the fleet and its victim's number, and returns what was done, in words, and how it ends.

def calm(fleet, victim):
    return "nothing", lambda: None


def kill(fleet, victim):
    worker = fleet.workers.pop(victim)
    worker.kill()
    return f"kill -9 of {worker.name}", lambda: None


def hang(fleet, victim):
    worker = fleet.workers[victim]
    os.kill(worker.pid, signal.SIGSTOP)
    return f"SIGSTOP of {worker.name}, SIGCONT after {{for_s:.0f}} s", lambda: os.kill(worker.pid, signal.SIGCONT)


def partition(fleet, victim):
    fleet.namespace.cut()
    return f"no packet to or from {fleet.workers[victim].name} for {{for_s:.0f}} s", fleet.namespace.mend


def lease(fleet, victim):
    """As a partition, but of a worker that has its place by a lease, and until that is lost: it is no member any more, and comes back
    as one with all that its cache held."""
    worker = fleet.workers[victim]
    fleet.namespace.cut()

    def end():
        wait_until(lambda: not fleet.registered(worker) and fleet.states_of(worker) == [None, None], 30, "it is no member any more")
        fleet.namespace.mend()
        begin = time.monotonic()
        wait_until(lambda: fleet.registered(worker), BACK_S, "it is a member again")
        before = hit_tokens(worker)
        wait_until(lambda: set(fleet.states_of(worker)) == {"ready"} and hit_tokens(worker) > before, BACK_S, "it is asked for what it holds")
        fleet.back_s = time.monotonic() - begin
    return f"no packet to or from {worker.name}, neither gateways' nor etcd's, for {{for_s:.0f}} s, longer than its lease", end


def slow(fleet, victim):
    worker = fleet.workers[victim]
    worker.set_faults(slow_factor=10)
    return f"{worker.name} ten times as slow for {{for_s:.0f}} s", lambda: worker.set_faults(slow_factor=1)


def rolling(fleet, victim):
    """One after the other: SIGTERM, its end, a new one on the same port, until both gateways use it; and five seconds more, as with
    Kubernetes' minReadySeconds."""
    begin = time.monotonic()
    for index, old in enumerate(fleet.workers):
        old.process.send_signal(signal.SIGTERM)
        assert old.process.wait(60) == 0, old.log_tail()
        fleet.restart_worker(index)
        for one in fleet.gateways:
            wait_until(lambda: fleet.ready_count(one) == len(fleet.workers), 30, "a gateway uses it again")
        time.sleep(5)
    return f"every worker stopped (SIGTERM) and started anew, one after the other, in {time.monotonic() - begin:.0f} s", lambda: None


def gateway(fleet, victim):
    # (In a run that is done again the other one may lead: a schedule names a process.)
    leads = fleet.leader() == victim
    fleet.gateways[victim].kill()
    return (f"kill -9 of the gateway that {'plans the table' if leads else 'does not lead'}, started again after {{for_s:.0f}} s",
            lambda: fleet.restart_gateway(victim))


leader = gateway  # by another choice


def etcd(fleet, victim):
    for member in fleet.etcd.members:
        member.kill()
    return "kill -9 of all three members of etcd, started again after {for_s:.0f} s", fleet.etcd.restart


FAULTS = {"calm": calm, "kill": kill, "hang": hang, "partition": partition, "lease": lease, "slow": slow, "rolling": rolling, "gateway": gateway,
          "leader": leader, "etcd": etcd}


def choose(name, fleet):
    """The victim's number."""
    chosen = {"kill": fleet.busiest, "hang": fleet.busiest, "slow": fleet.busiest, "partition": lambda: len(fleet.workers) - 1, "lease": lambda: len(fleet.workers) - 1,
              "gateway": lambda: 1 - fleet.leader(), "leader": fleet.leader}
    return chosen[name]() if name in chosen else None

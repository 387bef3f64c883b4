"""A worker dies, one that the network has lost, and one that is lost for so long that its lease is: no request fails, no stream tells another text.
All faults at full length, with the table: tests/bench/chaos.py."""
import json

import pytest

import chaos_run
from chaos_faults import BACK_S, FAULTS, Done, Schedule, read_schedules
from figures import figure

# Nodes half as fast as the bench's and half its rate: as many places are taken, for half of the machine's work.
SPEED, RATE = chaos_run.SPEED / 2, chaos_run.RATE / 2
# The goal is a prefill and half a second, of the fleet. Here some fifteen processes share two cores, perhaps with other work: each of
# the three that a cut stream waits for (gateway, worker, reader) may be late for its turn.
BUSY_S = 1.0
STALL_MAX_S = chaos_run.prefill_s(SPEED) + 0.5 + BUSY_S


def check(figures, reasons):
    print(figures)
    print(figures.schedule.line())
    figure(f"{figures.fault}, {figures.busy:.0%} of places taken", f"{figures.failed} of {figures.requests} failed, {figures.wrong} of "
           f"{figures.texts} texts wrong, {figures.resumed} resumed, hits {figures.hit_before:.3f} then {figures.hit_during:.3f}", "0, 0, > 0")
    figure(f"{figures.fault}: longest pause; hits back to 95 %", f"{figures.stall_s:.2f} s; {figures.t95_s} s", f"< {STALL_MAX_S:.2f} s; at all")
    assert figures.failed == 0 and figures.wrong == 0, reasons
    # Gateways live through both faults: no client has to ask again.
    assert figures.retried == 0 and figures.stall_s < STALL_MAX_S
    assert figures.resumed > 0, "no stream was cut: this has shown nothing"
    assert figures.requests > 400 and figures.texts > 10 and figures.busy > 0.5
    assert 0 <= figures.t95_s, "hits did not come back to 95 %"


def short(name, logs, seed, again=None):
    folder = logs / f"{name}-{seed}"  # of its own: etcd keeps its data there
    folder.mkdir()
    return chaos_run.run(name, folder, seed, warm_s=5, fault_s=12, for_s=5, end_s=32, rate=RATE, speed=SPEED, again=again)


def test_a_worker_is_killed(logs):
    check(*short("kill", logs, seed=1))


def test_the_network_loses_a_worker(logs):
    reason = chaos_run.Namespace.possible()
    if reason is not None:
        pytest.skip(f"no network namespace: {reason}")
    check(*short("partition", logs, seed=2))


def test_a_worker_loses_its_lease_and_comes_back(logs):
    reason = chaos_run.Namespace.possible()
    if reason is not None:
        pytest.skip(f"no network namespace: {reason}")
    figures, reasons = short("lease", logs, seed=4)
    check(figures, reasons)
    figure("lease: a worker that comes back is asked for what it holds", f"{figures.back_s:.1f} s", f"< {BACK_S} s")
    assert figures.back_s < BACK_S


def test_what_was_done_is_done_again(logs, tmp_path):
    """Not to whoever is busiest now: to the one that the schedule names, when it says."""
    plan = Schedule(3, RATE, [Done("slow", 5, 6.3, 1.5)])
    written = tmp_path / "said.txt"
    written.write_text(f"slow (seed 3): …\n{plan.line()}\n")
    read = read_schedules(written, FAULTS)
    assert read == [plan]
    folder = logs / "again"
    folder.mkdir()
    figures, reasons = chaos_run.run("slow", folder, 3, warm_s=3, fault_s=6, end_s=10, rate=5, again=read[0].faults[0])
    assert figures.failed == 0, reasons
    done = figures.schedule.faults[0]
    assert (done.fault, done.victim, done.for_s) == ("slow", 5, 1.5) and 6.3 <= done.at_s < 7.8
    assert "worker-5-" in figures.what


@pytest.mark.parametrize("line, said", [
    ("schedule: {", ":1: not JSON"), ("", "no line begins with 'schedule: '"),
    (dict(seed=1, rate=5), "must have the fields seed, rate, faults"), (dict(seed="1", rate=5, faults=[]), "field 'seed' is '1'"),
    (dict(seed=1, rate=5, faults=[dict(fault="kill", victim=0, at_s=1)]), "must have the fields fault, victim, at_s, for_s"),
    (dict(seed=1, rate=5, faults=[dict(fault="flood", victim=0, at_s=1, for_s=1)]), "no fault is named 'flood'"),
    (dict(seed=1, rate=5, faults=[dict(fault="kill", victim=0, at_s=-1, for_s=1)]), "are seconds >= 0")])
def test_a_schedule_that_is_none_is_refused(tmp_path, line, said):
    path = tmp_path / "said.txt"
    path.write_text(line if isinstance(line, str) else f"schedule: {json.dumps(line)}")
    with pytest.raises(ValueError, match=said):
        read_schedules(path, FAULTS)

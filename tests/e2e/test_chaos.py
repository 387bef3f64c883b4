"""A worker dies, and one that the network has lost: no request fails, no stream tells another text. All faults at full length, with
the table: tests/bench/chaos.py."""
import pytest

import chaos_run


def check(figures, reasons):
    print(figures)
    assert figures.failed == 0 and figures.wrong == 0, reasons
    # Gateways live through both faults: no client has to ask again. (The goal is a prefill and .5 s; other work may stop all of this.)
    assert figures.retried == 0 and figures.stall_s < 5
    assert figures.requests > 200 and figures.texts > 10
    assert 0 <= figures.t95_s, "hits did not come back to 95 %"


def short(name, logs, seed):
    folder = logs / name  # of its own: etcd keeps its data there
    folder.mkdir()
    # Less than half the rate: beside other work the machine must still keep up.
    return chaos_run.run(name, folder, seed, warm_s=5, fault_s=12, for_s=5, end_s=32, rate=20)


def test_a_worker_is_killed(logs):
    check(*short("kill", logs, seed=1))


def test_the_network_loses_a_worker(logs):
    reason = chaos_run.Namespace.possible()
    if reason is not None:
        pytest.skip(f"no network namespace: {reason}")
    check(*short("partition", logs, seed=2))

"""etcd slow, or out of reach, for one gateway of two: it says so, keeps what it knew and serves on, nobody's request fails, and it is
one of them again afterwards."""
import types

import pytest

from etcd import TTL_SECS, Load, Shared, StateGateway, start_worker
from figures import figure
from fleet import wait_until
from link import Link
from test_etcd import SOON, mostly, same_table


@pytest.fixture(scope="module")
def shared(logs):
    with Shared(logs, workers=3, gateways=1) as all_of_it:
        yield all_of_it


@pytest.fixture(scope="module")
def link(shared):
    with Link(shared.etcd.members[0].url) as between:
        yield between


@pytest.fixture(scope="module")
def far(shared, link):
    """The gateway behind the link. The other one leads: it was there first."""
    gateway = StateGateway(types.SimpleNamespace(urls=link.url), shared.folder)
    shared.gateways.append(gateway)
    gateway.wait_ready()
    wait_until(lambda: shared.sees_all(gateway), SOON, "it has found all workers")
    return gateway


def in_step(shared, far):
    return not far.degraded() and shared.sees_all(far) and same_table(shared.gateways)


@pytest.mark.parametrize("trouble", ["slow", "cut"])
def test_one_gateway_without_etcd_serves_on(shared, link, far, trouble):
    near = shared.gateways[0]
    with Load(shared.gateways) as load:
        wait_until(lambda: in_step(shared, far), SOON, "both go by one table")
        known, epoch = far.workers(), far.table()["epoch"]
        if trouble == "slow":
            link.delay_s = 2
        else:
            link.is_cut = True
        took = wait_until(far.degraded, SOON, "it says that it is degraded")
        # Something changes meanwhile that only the other one can hear of.
        joined = start_worker(shared.etcd, 7, shared.folder)
        shared.workers.append(joined)
        wait_until(lambda: shared.sees_all(near), SOON, "the other one sees a worker join")
        before = len(load.outcomes)
        # Every lease of the one without etcd has run out then.
        assert mostly(lambda: not near.degraded(), 2 * TTL_SECS), "the other one is served all the time"
        assert far.degraded()
        assert near.leads() and not far.leads()
        assert {url: state for url, state in far.workers().items() if url in known} == known, "it forgot workers"
        assert far.table()["epoch"] >= epoch, "it forgot the table"
        wait_until(lambda: len(load.outcomes) > before + 20, SOON, "load goes on")
        link.delay_s, link.is_cut = 0, False
        back = wait_until(lambda: in_step(shared, far), SOON, "it is one of them again")
        count = len(load.outcomes)
        shared.workers.remove(joined)
        joined.stop()
        wait_until(lambda: in_step(shared, far), SOON, "both see the worker leave")
    figure(f"etcd {trouble} for one gateway of two: degraded, and in step again afterwards", f"after {took:.1f} s, after {back:.1f} s; "
           f"0 of {count} requests failed", f"< {SOON} s each, 0 failed")

"""The simulator against real processes, for some seconds and with bounds that a busy machine keeps. The measurement is
tests/sim/model_check.py, ten minutes a fleet; its figures are in tests/bench/RESULTS.md."""
import json
import pathlib
import sys

import pytest

from figures import figure

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))

from model_check import FAULT_FLEET, Fault, check, check_faults, measure_network  # noqa: E402


def of_file(path, warmup_s):
    """Of --requests' lines: how many count, and the share of their prompts that was cached."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    counted = [line for line in lines if line["timestamp"] >= 1000 * warmup_s]
    return len(counted), sum(line["cached"] for line in counted) / sum(line["input_length"] for line in counted)


def test_the_simulator_tells_what_real_processes_do(tmp_path):
    result = check("sim", duration_s=20, warmup_s=8, mode="exact", seed=1, keep=tmp_path)
    told = {name: "{:.3g}, {:.3g}".format(*result[name]) for name in ("hit", "ttft_p50_ms", "tpot_ms")}
    figure("live and simulated", "; ".join(f"{name} {both}" for name, both in told.items()), "hits .05 apart at most")
    assert result["requests"] > 100 and result["lost"] == 0
    for file, hit in zip(("live.jsonl", "simulated.jsonl"), result["hit"]):
        counted, cached = of_file(tmp_path / file, 8)
        assert cached == pytest.approx(hit, rel=1e-5), file
        assert counted == pytest.approx(result["requests"], abs=2), "the record begins with its first request, not before it"
    live, simulated = result["hit"]
    assert abs(live - simulated) < 0.05, "measured on a calm machine: .003"
    # Live times grow with the machine's load. Nothing real is faster than its profile, and a node is no ten times slower.
    for name in ("ttft_p50_ms", "tpot_ms"):
        live, simulated = result[name]
        assert 0.7 * simulated < live < 10 * simulated, name


@pytest.fixture(scope="module")
def network_ms(tmp_path_factory):
    return measure_network(tmp_path_factory.mktemp("network"), FAULT_FLEET, ())(FAULT_FLEET["profile"])


# Every kind of fault, two a run, so far apart that each has seconds of its own. A stream's worst pause is the first one's.
SCHEDULES = {
    "hang, then join": [Fault("hang", 8, for_s=3, victim=1), Fault("join", 13)],
    "kill, then drain": [Fault("kill", 8, victim=2), Fault("drain", 13, victim=0)],
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_simulator_tells_what_faults_do(name, network_ms, tmp_path):
    """The goals are those of tests/sim/model_check.py --faults, of half a minute a fault and three seeds."""
    result = check_faults(SCHEDULES[name], 18, tmp_path, network_ms=network_ms)
    shown = [f"{key} {result[key]}" for key in ("lost", "resent")]
    shown += [f"pause_ms {[round(value) for value in result['pause_ms']]}",
             f"hit_dip {[[round(dip, 3) for dip in dips] for dips in result['hit_dip']]}"]
    figure(f"live and simulated, {name}", "; ".join(shown), "none lost, dips .15 apart at most")
    assert result["lost"] == [0, 0] and result["requests"] > 300
    assert min(result["resent"]) > 0, "nothing was cut: this has shown nothing"
    for live, simulated in zip(*result["hit_dip"]):
        assert abs(live - simulated) < 0.15, "of some hundred requests before and after: measured up to .07 on a busy machine"
    live, simulated = result["pause_ms"]
    assert live < 1.5 * simulated + 500, "on two cores that some ten processes share, each may be late for its turn"

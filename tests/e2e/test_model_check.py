"""The simulator against real processes, for some seconds and with bounds that a busy machine keeps. The measurement is
tests/sim/model_check.py, ten minutes a fleet; its figures are in tests/bench/RESULTS.md."""
import pathlib
import sys

from figures import figure

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))

from model_check import check  # noqa: E402


def test_the_simulator_tells_what_real_processes_do():
    result = check("sim", duration_s=20, warmup_s=8, mode="exact", seed=1)
    told = {name: "{:.3g}, {:.3g}".format(*result[name]) for name in ("hit", "ttft_p50_ms", "tpot_ms")}
    figure("live and simulated", "; ".join(f"{name} {both}" for name, both in told.items()), "hits .05 apart at most")
    assert result["requests"] > 100 and result["lost"] == 0
    live, simulated = result["hit"]
    assert abs(live - simulated) < 0.05, "measured on a calm machine: .003"
    # Live times grow with the machine's load. Nothing real is faster than its profile, and a node is no ten times slower.
    for name in ("ttft_p50_ms", "tpot_ms"):
        live, simulated = result[name]
        assert 0.7 * simulated < live < 10 * simulated, name

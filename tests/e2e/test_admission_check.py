"""The simulated queue in front of the workers against a live gateway's, one trace with a viral persona through both. The measurement
and its goals are tests/sim/admission_check.py; the bounds here are wider, for a busy machine."""
import pathlib
import sys

from figures import figure

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))

from admission_check import apart, check  # noqa: E402


def test_a_viral_persona_is_queued_and_refused_in_the_simulator_as_live(tmp_path):
    live, simulated = check(tmp_path)
    shown = "; ".join(f"{name} {live[name]:.4g}, {simulated[name]:.4g}" for name in live)
    figure("queue, live and simulated", shown, "within 15 %; on a calm machine 5 %")
    assert live["requests"] == simulated["requests"]
    assert live["429"] > 50 and live["waited"] > 50, "the trace is more than the workers can bear"
    assert live["lost otherwise"] == simulated["lost otherwise"] == 0
    assert apart(live, simulated, 0.15) == []

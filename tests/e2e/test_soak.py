"""A minute of everything at once; ten of them: tests/bench/soak.py."""
import soak_run
from figures import figure


def test_nothing_grows_and_every_request_is_accounted_for(logs):
    figures, reasons = soak_run.run(logs, seconds=50, rate=15)
    print(figures)
    figure(f"soak of {figures.seconds:g} s, {figures.faults} faults", f"{figures.failed} of {figures.requests} failed, {figures.wrong} of "
           f"{figures.texts} texts wrong, longest pause {figures.stall_s:.2f} s", "0 failed, 0 wrong")
    assert figures.faults >= 3 and figures.left > 20 and figures.refused > 10 and figures.requests > 300
    assert figures.failed == 0 and figures.wrong == 0, reasons
    assert set(figures.unaccounted.values()) == {0}
    for name, memory in figures.memory_mb.items():
        assert len(memory) == 10 and memory[9] < memory[2] * 1.1 + 2, f"{name}: MB at each tenth of the way: {memory}"
    # Connections to workers and the other gateway are kept (a dozen), those of the hundreds of clients that left are gone.
    for name, (before, after) in figures.descriptors.items():
        assert after < before + 40, f"{name}: {before} descriptors became {after}"

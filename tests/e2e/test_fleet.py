"""The end-to-end tests' own rule, that no program may log an error which its test does not expect, can fail a test."""
import pytest

from fleet import Program, wait_until

LINES = """ts=2026-01-01T00:00:00.000Z level=warn event=worker_down reason="it said level=error "
ts=2026-01-01T00:00:00.000Z level=error event=step_failed requests=1"""


def program(log_dir, lines):
    started = Program("shell", ["bash", "-c", f"trap 'exit 0' TERM; echo '{lines}'; echo up; while :; do sleep 0.01; done"], log_dir, "")
    wait_until(lambda: started.log_tail(1) == "up", 10, "the shell is up")
    return started


def test_an_error_in_the_log_fails_the_test(tmp_path):
    with pytest.raises(AssertionError, match="step_failed") as failure:
        program(tmp_path, LINES).stop()
    assert "worker_down" not in str(failure.value)


def test_an_expected_error_does_not(tmp_path):
    started = program(tmp_path, LINES)
    started.expected_errors = ["step_failed"]
    started.stop()


def test_blocks_that_do_not_add_up_are_an_error_at_any_level(tmp_path):
    with pytest.raises(AssertionError, match="kv_blocks_inconsistent"):
        program(tmp_path, "ts=2026-01-01T00:00:00.000Z level=warn event=kv_blocks_inconsistent reason=x").stop()

"""deploy/local/run.sh as a stranger uses it: up, the printed command pasted twice, Ctrl-C; then up again, quickly.

The programs are built already, so its own build has nothing to do.
"""
import contextlib
import json
import random
import signal
import socket
import subprocess
import time

import pytest

from figures import figure
from fleet import ROOT, wait_until

WORKERS = 3


def answers(port):
    with socket.socket() as s:
        s.settimeout(1)
        return s.connect_ex(("127.0.0.1", port)) == 0


def choose_ports():
    """Gateway, metrics, and the workers' in a row, none of them in use; below the range the kernel takes others from."""
    for _ in range(100):
        first = random.SystemRandom().randrange(20000, 28000, 10)
        ports = list(range(first, first + 2 + WORKERS))
        if not any(map(answers, ports)):
            return ports
    raise AssertionError("no free ports")


class Run:
    """One run of the script in front mode; what it says goes into a file."""

    def __init__(self, tmp_path, ports):
        self.ports, self.said_path = ports, tmp_path / f"run-{time.monotonic_ns()}.txt"
        command = ["deploy/local/run.sh", "--workers", WORKERS, "--port", ports[0], "--metrics-port", ports[1], "--worker-port", ports[2],
                   "--", "--record", "traffic.jsonl"]  # of the gateway, in the caller's folder
        with open(self.said_path, "wb") as out:
            # A shell cannot trap what it was started with ignored, and whoever starts the tests may ignore SIGINT.
            self.process = subprocess.Popen([str(ROOT / command[0]), *map(str, command[1:])], cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))

    def said(self):
        return self.said_path.read_text("utf-8", "replace")

    def wait_said(self, words, seconds):
        def found():
            assert words in self.said() or self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.said()}"
            return words in self.said()
        return wait_until(found, seconds, words)

    def interrupt(self):
        """Ctrl-C; the exit code, once everything has stopped."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(30)
        assert not [port for port in self.ports if answers(port)], "something still listens"
        return code

    def ask(self):
        """The command it printed, pasted into a shell."""
        lines = self.said().splitlines()
        first = next(i for i, line in enumerate(lines) if line.startswith("curl "))
        last = next(i for i in range(first, len(lines)) if lines[i].endswith("]}'"))
        pasted = subprocess.run(["bash", "-c", "\n".join(lines[first:last + 1])], capture_output=True, text=True, timeout=60)
        assert pasted.returncode == 0, pasted
        answer = json.loads(pasted.stdout)
        return answer["choices"][0]["message"]["content"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.fixture
def start(tmp_path):
    ports, runs = choose_ports(), []

    def start_run():
        runs.append(Run(tmp_path, ports))
        return runs[-1]

    yield start_run
    for run in runs:
        if run.process.poll() is None:
            run.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.process.wait(30)
            run.process.kill()


def test_up_ask_twice_ctrl_c_and_up_again(start, tmp_path):
    run = start()
    run.wait_said("Ctrl-C stops everything", 60)
    assert "Troupe is up" in run.said()
    text, cached = run.ask()
    assert "one-eyed cat" in text
    text_again, cached_again = run.ask()
    assert text_again == text and cached == 0 and cached_again > 0
    assert run.interrupt() == 0
    recorded = [json.loads(line) for line in (tmp_path / "traffic.jsonl").read_text().splitlines()]
    assert [line["status"] for line in recorded] == [200, 200], "flags behind -- went to the gateway"
    assert (ROOT / "build/bin/troupe-sim").exists()

    again = start()
    took = again.wait_said("Ctrl-C stops everything", 15)
    figure("run.sh is up again", f"in {took:.1f} s", "< 15 s")
    assert "one-eyed cat" in again.ask()[0]
    assert again.interrupt() == 0


def test_ctrl_c_before_it_is_up_leaves_nothing(start):
    run = start()
    run.wait_said("starting", 60)
    assert run.interrupt() == 130  # as a shell ends that Ctrl-C interrupted
    assert "Troupe is up" not in run.said()


@pytest.mark.parametrize("arguments, word", [(("--", "--port", "1"), "--port"), (("--records", "x"), "--records"), (("--model", "/nowhere"), "config.json")])
def test_wrong_flags_are_refused_before_anything_starts(arguments, word):
    done = subprocess.run([str(ROOT / "deploy/local/run.sh"), *arguments], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2 and word in done.stderr
